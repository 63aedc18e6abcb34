// What observing keeps for each thread.
#pragma once

#include <stdint.h>

#include "sealift_observe.h"

namespace sealift::observe {

struct Table;

// Plain data without a destructor: operators still run while a thread, or the process, ends.
struct ThreadState {
  sealift_observe_thread shared;  // first: the address that event sources keep
  bool is_gone;                   // its end has begun: it takes no table any more
  sealift_info *info;             // owned
  Table *table;                   // owned until the thread ends
  int64_t id;                     // gettid(), 0: not asked for yet
};

// In ThreadState::shared.disabled: sealift_observe_enable_thread(0). The other bits count callbacks that are running.
inline constexpr int32_t USER_DISABLED = 0x40000000;

ThreadState &thread_state();
int64_t thread_number(ThreadState &state);
// Called before a thread keeps anything that has to be given back when it ends.
void watch_thread_end();

// The calling thread is inside an observer's callback, where nothing may be added or removed.
inline bool inside_callback() { return (thread_state().shared.disabled & ~USER_DISABLED) != 0; }

// While one lives, nothing that this thread does is reported.
class Quiet {
 public:
  explicit Quiet(ThreadState &state) : state_(state) { ++state_.shared.disabled; }
  ~Quiet() { --state_.shared.disabled; }
  Quiet(const Quiet &) = delete;
  Quiet &operator=(const Quiet &) = delete;

 private:
  ThreadState &state_;
};

}  // namespace sealift::observe
