// The worker threads of a process: one pool, taken by one run at a time.
//
// A run that finds the pool taken stays on its own thread, so concurrent runs never wait for each other. Workers spin (bounded) between the
// loops of one run and sleep in a futex when the run ends, so an inference costs at most one wake per worker. Worker i always begins with the
// i-th contiguous part of a loop, so it meets the same slice of the weights again in its own cache. A part is done in a few pieces, a large one
// first; whoever is through with its own part takes over pieces of the others', so that a core that is slow for a moment delays nobody for long.
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

  static constexpr int32_t PIECES = 3;        // of a part
  static constexpr int64_t LEAST_CHUNKS = 4;  // of a part that is cut into pieces

  // The loop that is run. Who holds a piece of it that is not done may read it: it stays until all pieces are.
  struct Loop {
    sealift_task_fn fn;
    void *arg;
    int64_t count, grain;
    int32_t parts;
  };

  // A contiguous part of a loop, and how many of its pieces nobody has taken yet.
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};  // the loop's number in the upper half, so that a thread that comes late sees that its loop is over
    int64_t begin, end;             // in chunks of the loop's grain
    int32_t pieces;
  };

  struct alignas(64) Worker {
    Part part;
    std::atomic<uint32_t> ticket;  // the number of the loop it is called to; an odd one ends it
    std::atomic<uint32_t> sleeping;
    int32_t index;  // 1-based: the caller is worker 0
    ThreadPool *pool;
    pthread_t thread;
  };

  static void *thread_main(void *worker);
  static void after_fork_in_child();
  void work(Worker &self);
  int32_t grow(int32_t workers);
  static void call(Worker &worker, uint32_t ticket);
  Part &part_of(int32_t worker);
  int32_t run_piece(Part &part, uint32_t number, int32_t worker);
  void run_pieces(uint32_t number, int32_t worker);
  void finish_one();
  void wait_until_done();

  alignas(64) std::atomic<uint32_t> taken_{0};
  std::atomic<uint32_t> in_run_{0};     // workers may spin
  std::atomic<int32_t> spin_limit_{0};  // pauses before a sleep; 0 where workers outnumber the cores
  int32_t started_ = 0;                 // owned by whoever has taken the pool
  uint32_t number_ = 0;                 // of the last loop: even, never 0
  Loop loop_ = {};
  bool handles_fork_ = false;
  alignas(64) std::atomic<int32_t> pending_{0};  // pieces of the current loop that are not done
  std::atomic<uint32_t> owner_sleeps_{0};
  Part own_ = {};  // the caller's
  alignas(64) Worker *workers_[MAX_WORKERS] = {};
};

}  // namespace sealift::runtime
