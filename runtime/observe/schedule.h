// When the recorder listens, as plain arithmetic on a clock that is given: windows, bursts, and the budget. control.cpp carries it out.
#pragma once

#include <stdint.h>

#include "random.h"
#include "sealift_observe.h"

namespace sealift::observe {

// Four windows a second: what a machine does for a while (another program, a slower clock) is the same for a whole window, so that many short ones
// see more of it than a few long ones. With a budget they grow to the full length, so that a process's first second has data.
inline constexpr double PERIOD_NS = 250e6, FIRST_PERIOD_NS = 20e6;
// Of a burst: longer than a step of most services. At the default duty cycle there is one in ten seconds.
inline constexpr double BURST_NS = 50e6;
inline constexpr double LEAST_PROBABILITY = 1e-5, LEAST_DUTY_CYCLE = 1e-3;
inline constexpr double FIRST_DUTY_CYCLE = 0.01;  // with a budget, until the first period has shown how many operators there are

// Parts of one period in ns since its beginning; empty ones have begin == end. A window that would pass the end goes on at the beginning, so
// that each moment is as likely to be inside as any other.
struct Span {
  double begin = 0, end = 0;
};
struct Period {
  Span window[2];
  Span burst;
};

// What recording one operator costs among operators that are not recorded, over what it costs where all are: nothing of its path is in the caches,
// and PyTorch draws anew for each. Training a small network, each took 1.4 us with p = 1, twice that with p = 0.25, four times with p = 0.1, eight
// times with p = 0.02. So a budget buys most samples in short windows that record all.
inline constexpr double RARE_FACTOR = 10, RARE_PROBABILITY = 0.05;
inline double rarity(double probability) { return 1 + RARE_FACTOR * RARE_PROBABILITY * (1 - probability) / (RARE_PROBABILITY + probability); }

// What a period cost, as shares of the running time.
struct Cost {
  double samples;  // grows with the probability
  double fixed;    // grows with the duty cycle alone: operators that are passed over, backward nodes
  double bursts;
  double traced = 0;  // a trace on demand: told, and not held against the rest
  double total() const { return samples + fixed + bursts + traced; }
};

class Schedule {
 public:
  explicit Schedule(const sealift_recorder_options &options);

  Period draw(Random &random);
  // A period lasted that long, and its windows were on for so long: threads wake late. The next windows make up for it.
  // Of both, recording took `recording_ns`: a program that is slowed down does less of its work in a window, which must be the longer for it.
  void lasted(double period_ns, double on_ns, double recording_ns = 0);
  double period_ns() const { return period_; }
  // From now on. The period that runs is over: windows of another duty cycle must be drawn anew.
  void change(const sealift_recorder_options &options);
  // The next period's probability and duty cycles from the last one's cost. True if anything changed by more than a fifth.
  bool adapt(const Cost &cost);

  bool has_windows() const { return every_ == SEALIFT_EVERY_OPERATOR && duty_cycle_ < 1; }
  bool has_bursts() const { return burst_duty_cycle_ > 0; }
  bool needs_clock() const { return budget_ > 0 || has_windows() || has_bursts(); }
  double probability() const {  // within a window; exactly 1, whatever the rounding, where all are recorded
    const double probability = 1 / (duty_cycle_ * host_ * static_cast<double>(weight_));
    return probability > 1 - 1e-9 ? 1 : probability;
  }
  double duty_cycle() const { return duty_cycle_; }
  double burst_duty_cycle() const { return burst_duty_cycle_; }
  uint64_t weight() const { return weight_; }  // of an event: 1 / (probability * duty cycle * host probability), exactly
  uint64_t burst_weight() const;

 private:
  void limit(const sealift_recorder_options &options);
  void choose(double probability, double duty_cycle);
  void choose_bursts(double duty_cycle);

  int32_t every_ = SEALIFT_EVERY_OPERATOR;
  double most_probability_ = 1, most_duty_cycle_ = 1, most_burst_duty_cycle_ = 0, budget_ = 0, host_ = 1;
  double period_ = PERIOD_NS;
  double full_ = 0;         // share of the time that recording everything would cost, with some memory
  double burst_share_ = 0;  // of the last period that was drawn
  // What recording costs at p = 1 and a duty cycle of 1, of the last second or two: one window sees few backward nodes.
  double whole_samples_ = -1, whole_fixed_ = -1;
  double owed_ns_ = 0;  // time that no window has stood for yet; below 0: windows were on for too long
  double duty_cycle_ = 1, burst_duty_cycle_ = 0;
  uint64_t weight_ = 1;
};

}  // namespace sealift::observe
