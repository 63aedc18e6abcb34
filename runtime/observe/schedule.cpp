#include "schedule.h"

#include <algorithm>

namespace sealift::observe {

Schedule::Schedule(const sealift_recorder_options &options)
    : every_(options.every),
      most_probability_(options.sampling_probability),
      most_duty_cycle_(options.duty_cycle),
      most_burst_duty_cycle_(options.every == SEALIFT_EVERY_BURST ? options.duty_cycle : options.every == SEALIFT_EVERY_STEP ? 0
                                                                                                                             : options.burst_duty_cycle),
      budget_(options.budget),
      burst_duty_cycle_(most_burst_duty_cycle_) {
  // A step is drawn as a whole, and a burst records all: neither has windows.
  if (every_ != SEALIFT_EVERY_OPERATOR) most_duty_cycle_ = 1;
  choose(budget_ > 0 && every_ == SEALIFT_EVERY_OPERATOR ? std::min(most_probability_, FIRST_PROBABILITY) : most_probability_, most_duty_cycle_);
}

// Weights are whole numbers, so the probability is moved to the nearest that gives one, and the duty cycle where that would be above 1.
void Schedule::choose(double probability, double duty_cycle) {
  weight_ = std::max<uint64_t>(1, static_cast<uint64_t>(1 / (probability * duty_cycle) + 0.5));
  duty_cycle_ = std::max(duty_cycle, 1 / static_cast<double>(weight_));
}

uint64_t Schedule::burst_weight() const { return static_cast<uint64_t>(std::max(1.0, 1 / std::max(burst_duty_cycle_, 1e-9) + 0.5)); }

Period Schedule::draw(Random &random) const {
  Period period;
  if (has_windows()) {
    const double length = duty_cycle_ * PERIOD_NS, begin = random.uniform() * PERIOD_NS, end = begin + length;
    period.window[0] = {begin, std::min(end, PERIOD_NS)};
    if (end > PERIOD_NS) period.window[1] = {0, end - PERIOD_NS};
  }
  // A burst lies within its period, with this probability in each.
  const double length = std::min(PERIOD_NS, std::max(BURST_NS, burst_duty_cycle_ * PERIOD_NS));
  if (has_bursts() && random.uniform() < burst_duty_cycle_ * PERIOD_NS / length) {
    const double begin = random.uniform() * (PERIOD_NS - length);
    period.burst = {begin, begin + length};
  }
  return period;
}

bool Schedule::adapt(const Cost &cost) {
  if (budget_ <= 0) return false;
  const double duty_before = duty_cycle_, burst_before = burst_duty_cycle_;
  const auto weight_before = static_cast<double>(weight_);
  // A tenth of the budget is kept back for what a measured cost misses; bursts get a quarter of the rest, fixed costs half.
  const double budget = budget_ * 0.9;
  const double burst_scale = cost.bursts > 0 ? budget / 4 / cost.bursts : 4;
  burst_duty_cycle_ = std::min(most_burst_duty_cycle_, std::max(burst_before * std::min(burst_scale, 4.0), most_burst_duty_cycle_ / 1000));
  if (every_ == SEALIFT_EVERY_OPERATOR) {
    double duty = duty_before;
    if (most_duty_cycle_ < 1 || cost.fixed > budget / 2) {
      const double scale = cost.fixed > 0 ? budget / 2 / cost.fixed : 4;
      duty = std::min(most_duty_cycle_, std::max(duty * std::min(scale, 4.0), LEAST_DUTY_CYCLE));
    }
    const double fixed = cost.fixed * duty / duty_before;
    const double left = std::max(budget * 0.1, budget - fixed - std::min(cost.bursts, budget / 4));
    // Per unit of probability, at the new duty cycle.
    const double per_probability = cost.samples / probability() * duty / duty_before;
    const double probability_now = 1 / (duty_before * weight_before);
    const double allowed = per_probability > 0 ? left / per_probability : 4 * probability_now;
    choose(std::min(most_probability_, std::max(LEAST_PROBABILITY, std::min(allowed, 4 * probability_now))), duty);
  }
  const auto differs = [](double now, double before) { return now > before * 1.2 || now < before * 0.8; };
  return differs(static_cast<double>(weight_), weight_before) || differs(duty_cycle_, duty_before) || differs(burst_duty_cycle_, burst_before);
}

}  // namespace sealift::observe
