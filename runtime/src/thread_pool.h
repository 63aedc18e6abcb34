// The worker threads of a process: one pool, taken by one run at a time.
//
// A run that finds the pool taken stays on its own thread, so concurrent runs never wait for each other. Workers spin (bounded) between the
// loops of one run and sleep in a futex when the run ends, so an inference costs at most one wake per worker. A loop is split statically:
// worker i always gets the i-th contiguous part, so it meets the same slice of the weights again in its own cache.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "sealift_model.h"

namespace sealift::runtime {

class ThreadPool {
 public:
  // The pool of this process (of this model library where the host is embedded). A forked child starts with a fresh one.
  static ThreadPool &of_process();

  constexpr ThreadPool() = default;
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  bool try_take();
  void release();

  // Only between try_take() and release(). Starts threads as needed; where the system refuses them, fewer take part.
  void parallel_for(int32_t workers, int64_t count, int64_t grain, sealift_task_fn fn, void *arg);

  // Ends and joins every thread. Only when no run is in progress; the pool starts anew at its next use.
  void stop();

 private:
  static constexpr int32_t MAX_WORKERS = 1023;

  // One worker's mailbox. The owner of the pool writes the job, then `claim`, then `ticket`; whoever changes `claim` from the ticket to 0
  // does the job: the worker, or the owner itself when it is done with its own part and the worker has not woken yet.
  struct alignas(64) Worker {
    std::atomic<uint32_t> ticket;
    std::atomic<uint32_t> sleeping;
    std::atomic<uint32_t> claim;
    int32_t index;  // 1-based: the caller is worker 0
    sealift_task_fn fn;
    void *arg;
    int64_t begin, end;
    ThreadPool *pool;
    pthread_t thread;
  };

  static void *thread_main(void *worker);
  static void after_fork_in_child();
  void work(Worker &self);
  int32_t grow(int32_t workers);
  static void post(Worker &worker, sealift_task_fn fn, void *arg, int64_t begin, int64_t end);
  void finish_one();
  void wait_until_done();

  alignas(64) std::atomic<uint32_t> taken_{0};
  std::atomic<uint32_t> in_run_{0};     // workers may spin
  std::atomic<int32_t> spin_limit_{0};  // pauses before a sleep; 0 where workers outnumber the cores
  int32_t started_ = 0;                 // owned by whoever has taken the pool
  bool handles_fork_ = false;
  alignas(64) std::atomic<int32_t> pending_{0};  // parts of the current loop that are not done
  std::atomic<uint32_t> owner_sleeps_{0};
  alignas(64) Worker *workers_[MAX_WORKERS] = {};
};

}  // namespace sealift::runtime
