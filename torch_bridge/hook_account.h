// What observing took on one thread, so that it can be taken out of the times of the operators around it. Plain arithmetic, without torch.
#pragma once

#include <stdint.h>

#include <algorithm>

namespace sealift::bridge {

// Of one operator, in a loop, where all is in the caches.
struct HookCosts {
  double own_ns = 150;  // the recorder's two hooks, between their own readings of the clock
  double once_ns = 60;  // PyTorch's part, however many listen
  double each_ns = 15;  // PyTorch's part for each listener
};

class HookAccount {
 public:
  struct Mark {
    uint64_t own_ns = 0, torch_ns = 0;
  };

  // From here on: see since().
  Mark mark() const { return {own_ns_, torch_ns_}; }

  // A hook of the operator at that address ran for own_ns, at the operator's end or its beginning. What it cost the program in all: PyTorch's part
  // is estimated, and counted for the first of an operator's listeners alone, but for what each adds.
  // `is_recorders`: where our own code is slow, its caches being cold, PyTorch's is; a user's callback takes as long as it takes.
  uint64_t note(const void *operation, bool is_end, uint64_t own_ns, bool is_recorders, const HookCosts &costs) {
    const uintptr_t moment = reinterpret_cast<uintptr_t>(operation) | (is_end ? 1 : 0);
    const double scale = is_recorders ? std::min(2 * static_cast<double>(own_ns) / costs.own_ns, MOST_SCALE) : 1;
    const double part_ns = scale / 2 * (costs.each_ns + (moment == last_ ? 0 : costs.once_ns));  // each operator has two moments
    last_ = moment;
    own_ns_ += own_ns;
    torch_ns_ += static_cast<uint64_t>(part_ns);
    return std::min(own_ns, MOST_HOOK_NS) + static_cast<uint64_t>(part_ns);
  }

  // An operator ended, whether or not its hook is noted: another one may have its address.
  void forget_moment() { last_ = 0; }

  // Of dur_ns since the mark: what hooks took.
  uint64_t since(const Mark &mark, uint64_t dur_ns) const {
    if (own_ns_ < mark.own_ns) return 0;
    const uint64_t own_ns = std::min(dur_ns, own_ns_ - mark.own_ns);
    return own_ns + std::min((dur_ns - own_ns) / 2, torch_ns_ - mark.torch_ns);  // an estimate takes half of the rest at most
  }

  uint64_t own_ns() const { return own_ns_; }

 private:
  static constexpr double MOST_SCALE = 4;
  static constexpr uint64_t MOST_HOOK_NS = 5000;  // what takes longer was interrupted: another program had the processor

  uint64_t own_ns_ = 0, torch_ns_ = 0;  // as measured; as estimated
  uintptr_t last_ = 0;
};

}  // namespace sealift::bridge
