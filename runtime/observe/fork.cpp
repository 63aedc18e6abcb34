#include "fork.h"

#include <pthread.h>

#include <mutex>

#include "context_handle.h"
#include "recorder.h"
#include "series.h"
#include "sources.h"
#include "table.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

void before_fork() {
  control_mutex().lock();
  let_sources_settle();
  // What is held for moments alone, by threads that wait for nobody meanwhile: in the child, what they guard is whole.
  lock_tables();
  lock_series();
  lock_api_usage();
}

void after_fork_in_parent() {
  unlock_api_usage();
  unlock_series();
  unlock_tables();
  control_mutex().unlock();
}

void after_fork_in_child() {
  unlock_api_usage();
  thread_state().id = 0;
  observers_after_fork();
  recorder_after_fork();
  control_after_fork();
  control_mutex().unlock();
}

}  // namespace

void handle_fork() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Locks are taken here before those of the record points, and handlers run last first: theirs must be registered before ours.
    const sealift_callback callback = runtime::add_callback(nullptr, nullptr, nullptr, 1);
    if (callback != 0) runtime::remove_callback(callback);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  });
}

}  // namespace sealift::observe
