#include "thread_state.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "info.h"
#include "table.h"

namespace sealift::observe {

namespace {

thread_local ThreadState state_of_thread;

struct Leaver {
  bool armed = false;
  ~Leaver() {
    ThreadState &state = state_of_thread;
    state.is_gone = true;
    if (state.table != nullptr) give_table_back(*state.table);
    state.table = nullptr;
    sealift_info_release(state.info);
    state.info = nullptr;
  }
};
thread_local Leaver leaver;

}  // namespace

ThreadState &thread_state() { return state_of_thread; }

int64_t thread_number(ThreadState &state) {
  if (__builtin_expect(state.id == 0, 0)) state.id = syscall(SYS_gettid);
  return state.id;
}

void watch_thread_end() { leaver.armed = true; }

}  // namespace sealift::observe

int32_t sealift_observe_enable_thread(int32_t enabled) {
  sealift_observe_thread &shared = sealift::observe::thread_state().shared;
  const int32_t was = (shared.disabled & sealift::observe::USER_DISABLED) == 0;
  shared.disabled = enabled != 0 ? shared.disabled & ~sealift::observe::USER_DISABLED : shared.disabled | sealift::observe::USER_DISABLED;
  return was;
}
