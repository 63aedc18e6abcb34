#include "thread_pool.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "cpu.h"
#include "glibc_baseline.h"

namespace sealift::runtime {

namespace {

// About 50 to 150 us of pauses: longer than the gap between two loops of a model, shorter than a scheduler's slice.
constexpr int32_t SPIN_PAUSES = 4000;

ThreadPool process_pool;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Word>
void futex_wait(std::atomic<Word> &word, Word expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(expected), nullptr, nullptr, 0);
}

template <class Word>
void futex_wake(std::atomic<Word> &word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool &ThreadPool::of_process() { return process_pool; }

bool ThreadPool::try_take() {
  if (taken_.load(std::memory_order_relaxed) != 0 || taken_.exchange(1, std::memory_order_acquire) != 0) return false;
  in_run_.store(1, std::memory_order_relaxed);
  return true;
}

void ThreadPool::release() {
  in_run_.store(0, std::memory_order_relaxed);
  taken_.store(0, std::memory_order_release);
}

void ThreadPool::parallel_for(int32_t workers, int64_t count, int64_t grain, sealift_task_fn fn, void *arg) {
  const int64_t chunks = count / grain + (count % grain != 0);
  int64_t parts = workers < chunks ? workers : chunks;
  if (parts > 1) {
    const int32_t helpers = grow(static_cast<int32_t>(parts) - 1);
    parts = parts < helpers + 1 ? parts : helpers + 1;
  }
  if (parts <= 1) {
    fn(arg, 0, count, 0);
    return;
  }
  loop_ = {fn, arg, count, grain, static_cast<int32_t>(parts)};
  number_ = number_ + 2 != 0 ? number_ + 2 : 2;
  // The first `chunks % parts` parts have one chunk more.
  const int64_t base = chunks / parts, extra = chunks % parts;
  const int32_t pieces = base < LEAST_CHUNKS ? 1 : PIECES;
  pending_.store(static_cast<int32_t>(parts) * pieces, std::memory_order_relaxed);
  for (int32_t i = 0; i < parts; ++i) {
    const int64_t begin = i * base + (i < extra ? i : extra);
    Part &part = part_of(i);
    part.begin = begin, part.end = begin + base + (i < extra ? 1 : 0), part.pieces = pieces;
    part.left.store(static_cast<uint64_t>(number_) << 32 | static_cast<uint32_t>(pieces), std::memory_order_release);
  }
  for (int32_t i = 1; i < parts; ++i) call(*workers_[i - 1], number_);
  run_pieces(number_, 0);
  wait_until_done();
}

ThreadPool::Part &ThreadPool::part_of(int32_t worker) { return worker == 0 ? own_ : workers_[worker - 1]->part; }

// One piece of the loop with this number, if one is left of the part. Says how many parts the loop has; 0: nothing was left.
int32_t ThreadPool::run_piece(Part &part, uint32_t number, int32_t worker) {
  uint64_t left = part.left.load(std::memory_order_relaxed);
  do {
    if (left >> 32 != number || static_cast<uint32_t>(left) == 0) return 0;
  } while (!part.left.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed));
  const Loop loop = loop_;
  const int64_t chunks = part.end - part.begin, small = part.pieces == 1 ? 0 : chunks < 8 ? 1
                                                                                          : chunks / 8;
  const int64_t after = static_cast<int64_t>(static_cast<uint32_t>(left)) - 1;  // pieces that follow
  const int64_t begin = after + 1 == part.pieces ? part.begin : part.end - (after + 1) * small;
  const int64_t end = (part.end - after * small) * loop.grain;
  loop.fn(loop.arg, begin * loop.grain, end < loop.count ? end : loop.count, worker);
  finish_one();
  return loop.parts;
}

// The worker's own part, then what is left of the others', the last first: nobody may have woken for it yet.
void ThreadPool::run_pieces(uint32_t number, int32_t worker) {
  int32_t parts = 0;
  for (int32_t some = 1; some > 0;) {
    some = run_piece(part_of(worker), number, worker);
    if (some > 0) parts = some;
  }
  for (int32_t other = parts - 1; other >= 0; --other) {
    while (other != worker && run_piece(part_of(other), number, worker) > 0) {
    }
  }
}

void ThreadPool::call(Worker &worker, uint32_t ticket) {
  worker.ticket.store(ticket, std::memory_order_seq_cst);
  if (worker.sleeping.load(std::memory_order_seq_cst) != 0) futex_wake(worker.ticket);
}

void ThreadPool::wait_until_done() {
  for (int32_t spin = spin_limit_.load(std::memory_order_relaxed); spin > 0; --spin) {
    if (pending_.load(std::memory_order_acquire) == 0) return;
    pause();
  }
  owner_sleeps_.store(1, std::memory_order_seq_cst);
  for (;;) {
    const int32_t pending = pending_.load(std::memory_order_seq_cst);
    if (pending == 0) break;
    futex_wait(pending_, pending);
  }
  owner_sleeps_.store(0, std::memory_order_relaxed);
}

void ThreadPool::finish_one() {
  if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1 && owner_sleeps_.load(std::memory_order_seq_cst) != 0) futex_wake(pending_);
}

void ThreadPool::work(Worker &self) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t ticket = self.ticket.load(std::memory_order_acquire);
    for (int32_t spin = spin_limit_.load(std::memory_order_relaxed); ticket == seen && spin > 0; --spin) {
      if (in_run_.load(std::memory_order_relaxed) == 0) break;
      pause();
      ticket = self.ticket.load(std::memory_order_acquire);
    }
    if (ticket == seen) {
      self.sleeping.store(1, std::memory_order_seq_cst);
      ticket = self.ticket.load(std::memory_order_seq_cst);
      if (ticket == seen) futex_wait(self.ticket, seen);
      self.sleeping.store(0, std::memory_order_relaxed);
      continue;
    }
    seen = ticket;
    if (ticket & 1) return;
    run_pieces(ticket, self.index);
  }
}

void *ThreadPool::thread_main(void *argument) {
  Worker &self = *static_cast<Worker *>(argument);
  char name[16];
  snprintf(name, sizeof name, "sealift-%d", static_cast<int>(self.index));
  prctl(PR_SET_NAME, name, 0, 0, 0);
  self.pool->work(self);
  return nullptr;
}

// Returns how many workers there are, `workers` if the system allows.
int32_t ThreadPool::grow(int32_t workers) {
  if (started_ >= workers || !can_make_threads()) return started_;
  if (workers > MAX_WORKERS) workers = MAX_WORKERS;
  if (!handles_fork_) {
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    handles_fork_ = true;
  }
  // Signals belong to the application's own threads.
  uint64_t all = ~uint64_t{0}, before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  while (started_ < workers) {
    Worker *&slot = workers_[started_];
    if (slot == nullptr) {
      void *memory = nullptr;
      if (posix_memalign(&memory, alignof(Worker), sizeof(Worker)) != 0) break;
      slot = static_cast<Worker *>(memory);
    }
    new (slot) Worker{};
    slot->index = started_ + 1;
    slot->pool = this;
    if (pthread_create(&slot->thread, nullptr, thread_main, slot) != 0) break;
    ++started_;
  }
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  spin_limit_.store(started_ + 1 <= usable_cores() ? SPIN_PAUSES : 0, std::memory_order_relaxed);
  return started_;
}

void ThreadPool::stop() {
  while (!try_take()) sched_yield();
  in_run_.store(0, std::memory_order_relaxed);
  for (int32_t i = 0; i < started_; ++i) call(*workers_[i], 1);
  for (int32_t i = 0; i < started_; ++i) {
    pthread_join(workers_[i]->thread, nullptr);
    free(workers_[i]);
    workers_[i] = nullptr;
  }
  started_ = 0;
  release();
}

// The child has only the thread that forked: forget the others. Their mailboxes are used again by new threads.
void ThreadPool::after_fork_in_child() {
  ThreadPool &pool = process_pool;
  pool.started_ = 0;
  pool.pending_.store(0, std::memory_order_relaxed);
  pool.owner_sleeps_.store(0, std::memory_order_relaxed);
  pool.release();
}

}  // namespace sealift::runtime
