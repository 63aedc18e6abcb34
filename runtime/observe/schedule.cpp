#include "schedule.h"

#include <math.h>

#include <algorithm>

namespace sealift::observe {

Schedule::Schedule(const sealift_recorder_options &options) {
  limit(options);
  choose_bursts(most_burst_duty_cycle_);
  const bool grows = budget_ > 0 && every_ == SEALIFT_EVERY_OPERATOR;
  if (grows) period_ = FIRST_PERIOD_NS;
  choose(most_probability_, grows ? std::min(most_duty_cycle_, FIRST_DUTY_CYCLE) : most_duty_cycle_);
}

void Schedule::limit(const sealift_recorder_options &options) {
  every_ = options.every;
  most_probability_ = options.sampling_probability;
  // A step is drawn as a whole, and a burst records all: neither has windows.
  most_duty_cycle_ = every_ == SEALIFT_EVERY_OPERATOR ? options.duty_cycle : 1;
  most_burst_duty_cycle_ = every_ == SEALIFT_EVERY_BURST ? options.duty_cycle : every_ == SEALIFT_EVERY_STEP ? 0
                                                                                                             : options.burst_duty_cycle;
  budget_ = options.budget;
  host_ = options.host_probability;
}

void Schedule::change(const sealift_recorder_options &options) {
  const double budget_before = budget_;
  limit(options);
  if (budget_ <= 0 || every_ != SEALIFT_EVERY_OPERATOR) {
    choose_bursts(most_burst_duty_cycle_);
    choose(most_probability_, most_duty_cycle_);
    return;
  }
  // Less at once, in proportion; more from period to period, as adapt() sees that it may.
  const double less = budget_before > 0 ? std::min(1.0, budget_ / budget_before) : 1;
  choose_bursts(std::min(most_burst_duty_cycle_, std::max(burst_duty_cycle_ * less, most_burst_duty_cycle_ / 1000)));
  choose(most_probability_, std::min(most_duty_cycle_, std::max(LEAST_DUTY_CYCLE, budget_before > 0 ? duty_cycle_ * less : FIRST_DUTY_CYCLE)));
}

// Weights are whole numbers, so the probability is moved to the nearest that gives one, and the duty cycle where that would be above 1. A
// probability of 1 stays: drawing with nearly 1 would cost what drawing costs.
void Schedule::choose(double probability, double duty_cycle) {
  weight_ = std::max<uint64_t>(1, static_cast<uint64_t>(1 / (probability * duty_cycle * host_) + 0.5));
  const double whole = 1 / (host_ * static_cast<double>(weight_));  // the duty cycle at which all are recorded
  duty_cycle_ = probability >= 1 ? whole : std::max(duty_cycle, whole);
  if (duty_cycle_ > 1) {  // a host probability that is no 1 / n: the next larger weight, of a smaller probability
    ++weight_;
    const double next = 1 / (host_ * static_cast<double>(weight_));
    duty_cycle_ = probability >= 1 ? next : std::max(duty_cycle, next);
  }
}

// Where bursts are what counts, their weight is exact, too.
void Schedule::choose_bursts(double duty_cycle) {
  burst_duty_cycle_ = duty_cycle;
  if (every_ != SEALIFT_EVERY_BURST || duty_cycle <= 0) return;
  const double weight = std::max(1.0, floor(1 / (duty_cycle * host_) + 0.5));
  burst_duty_cycle_ = 1 / (host_ * weight) <= 1 ? 1 / (host_ * weight) : 1 / (host_ * (weight + 1));
}

uint64_t Schedule::burst_weight() const { return static_cast<uint64_t>(std::max(1.0, 1 / std::max(burst_duty_cycle_ * host_, 1e-9) + 0.5)); }

Period Schedule::draw(Random &random) {
  Period period;
  if (has_windows()) {
    const double length = std::min(period_, std::max(0.0, duty_cycle_ * (period_ + owed_ns_))), begin = random.uniform() * period_, end = begin + length;
    if (length >= period_) {  // one, not two that touch
      period.window[0] = {0, period_};
    } else {
      period.window[0] = {begin, std::min(end, period_)};
      if (end > period_) period.window[1] = {0, end - period_};
    }
  }
  // A burst lies within its period, with this probability in each. Operator by operator, there is none before it is known what it would cost.
  burst_share_ = 0;
  const double length = std::min(period_, std::max(BURST_NS, burst_duty_cycle_ * period_));
  const bool is_known = every_ != SEALIFT_EVERY_OPERATOR || budget_ <= 0 || period_ >= PERIOD_NS;
  if (has_bursts() && is_known && random.uniform() < burst_duty_cycle_ * period_ / length) {
    const double begin = random.uniform() * (period_ - length);
    period.burst = {begin, begin + length};
    burst_share_ = length / period_;
  }
  return period;
}

// Each moment of the next period is as likely to be inside as any other, whatever its window's length, which the past alone determines: so nothing
// is biased. In the long run windows stand for exactly the time that passed, however late they begin and end.
void Schedule::lasted(double period_ns, double on_ns, double recording_ns) {
  constexpr double MOST_OWED_NS = 60e9;  // after a suspended machine, no minute of windows alone
  owed_ns_ = has_windows() ? std::min(MOST_OWED_NS, std::max(-MOST_OWED_NS, owed_ns_ + (period_ns - recording_ns) - (on_ns - recording_ns) / duty_cycle_)) : 0;
}

// The probability at which recording costs this share of what it costs at 1: p * rarity(p) = share.
static double probability_of(double share) {
  if (share >= 1) return 1;
  const double a = 1 - RARE_FACTOR * RARE_PROBABILITY, b = RARE_PROBABILITY * (1 + RARE_FACTOR) - share;
  return (sqrt(b * b + 4 * a * share * RARE_PROBABILITY) - b) / (2 * a);
}

bool Schedule::adapt(const Cost &cost) {
  if (budget_ <= 0) return false;
  period_ = std::min(PERIOD_NS, period_ * 2.5);
  const double duty_before = duty_cycle_, burst_before = burst_duty_cycle_;
  const auto weight_before = static_cast<double>(weight_);
  // A tenth of the budget is kept back for what a measured cost misses; bursts get a quarter of the rest.
  const double budget = budget_ * 0.9, for_bursts = every_ == SEALIFT_EVERY_OPERATOR ? budget / 4 : budget;
  // What recording every operator would cost: by what windows saw, or a burst itself. Bursts are rare, so they cannot wait for their own evidence.
  const auto smooth = [](double &known, double now) { known = known < 0 ? now : 0.75 * known + 0.25 * now; };
  const double probability_now = probability();
  smooth(whole_samples_, cost.samples / (probability_now * rarity(probability_now) * duty_before));
  smooth(whole_fixed_, cost.fixed / duty_before);
  const double seen = every_ == SEALIFT_EVERY_OPERATOR ? whole_samples_ : burst_share_ > 0 ? cost.bursts / burst_share_
                                                                                           : full_;
  full_ = std::max(seen, full_ * 0.9 + seen * 0.1);
  if (full_ > 0) {
    const double allowed = for_bursts / full_;
    choose_bursts(std::min(most_burst_duty_cycle_, std::max(std::min(allowed, burst_before * 4), most_burst_duty_cycle_ / 1000)));
  }
  if (every_ == SEALIFT_EVERY_OPERATOR) {
    // Shorter windows before rarer samples, which cost more each.
    const double left = budget - std::min(full_ * burst_duty_cycle_, budget / 4);
    const double whole = whole_samples_ * most_probability_ * rarity(most_probability_) + whole_fixed_;
    const double wanted = whole > 0 ? left / whole : 1;
    const double duty = std::min(most_duty_cycle_, std::max(std::min(wanted, 4 * duty_before), LEAST_DUTY_CYCLE));
    double probability = most_probability_;
    if (wanted < LEAST_DUTY_CYCLE && whole_samples_ > 0)
      probability = std::min(probability, std::max(LEAST_PROBABILITY, probability_of(std::max(budget * 0.1, left - whole_fixed_ * duty) / (whole_samples_ * duty))));
    choose(probability, duty);
  }
  const auto differs = [](double now, double before) { return now > before * 1.2 || now < before * 0.8; };
  return differs(static_cast<double>(weight_), weight_before) || differs(duty_cycle_, duty_before) || differs(burst_duty_cycle_, burst_before);
}

}  // namespace sealift::observe
