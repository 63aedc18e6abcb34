// A host with nothing but parallel_for, for tests and benchmarks: workers are threads that spin, then sleep on a futex.
#ifndef SEALIFT_KERNELS_TESTS_TEST_HOST_H
#define SEALIFT_KERNELS_TESTS_TEST_HOST_H

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../contracts/sealift_model.h"

class TestHost {
public:
  TestHost(int32_t num_workers, int64_t scratch_stride_bytes) : num_workers_(num_workers) {
    memset(&frame, 0, sizeof frame);
    memset(&host_, 0, sizeof host_);
    host_.abi_version = SEALIFT_MODEL_ABI_VERSION;
    host_.struct_bytes = sizeof host_;
    host_.parallel_for = parallel_for;
    frame.host = &host_;
    frame.host_context = this;
    frame.num_workers = num_workers;
    frame.scratch_stride_bytes = (scratch_stride_bytes + 63) / 64 * 64;
    const size_t bytes = static_cast<size_t>(frame.scratch_stride_bytes) * static_cast<size_t>(num_workers);
    frame.scratch = bytes ? static_cast<char *>(aligned_alloc(64, bytes)) : nullptr;
    for (int32_t w = 1; w < num_workers; w++) {
      starts_[w] = {this, w};
      pthread_create(&threads_[w], nullptr, loop, &starts_[w]);
    }
  }
  ~TestHost() {
    fn_ = nullptr;
    release();
    for (int32_t w = 1; w < num_workers_; w++) pthread_join(threads_[w], nullptr);
    free(frame.scratch);
  }
  TestHost(const TestHost &) = delete;
  TestHost &operator=(const TestHost &) = delete;

  sealift_frame frame;

private:
  static constexpr int32_t kMaxWorkers = 64;
  static constexpr int kSpins = 20000; // about 0.3 ms
  struct Start {
    TestHost *host;
    int32_t worker;
  };

  static void parallel_for(sealift_frame *frame, int64_t count, int64_t grain, sealift_task_fn fn, void *arg) {
    TestHost *h = static_cast<TestHost *>(frame->host_context);
    h->count_ = (count + grain - 1) / grain;
    h->grain_ = grain;
    h->end_ = count;
    h->fn_ = fn;
    h->arg_ = arg;
    __atomic_store_n(&h->running_, h->num_workers_ - 1, __ATOMIC_RELAXED);
    h->release();
    h->part(0);
    while (__atomic_load_n(&h->running_, __ATOMIC_ACQUIRE) > 0) _mm_pause();
  }

  void part(int32_t worker) {
    int64_t begin = count_ * worker / num_workers_ * grain_, end = count_ * (worker + 1) / num_workers_ * grain_;
    if (end > end_) end = end_;
    if (begin < end) fn_(arg_, begin, end, worker);
  }

  void release() {
    __atomic_add_fetch(&generation_, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sleepers_, __ATOMIC_SEQ_CST) > 0) syscall(SYS_futex, &generation_, FUTEX_WAKE_PRIVATE, kMaxWorkers, nullptr, nullptr, 0);
  }

  static void *loop(void *arg) {
    const Start *start = static_cast<const Start *>(arg);
    TestHost *h = start->host;
    uint32_t seen = 0;
    for (;;) {
      for (int spins = 0; __atomic_load_n(&h->generation_, __ATOMIC_ACQUIRE) == seen;) {
        if (++spins < kSpins) {
          _mm_pause();
        } else {
          __atomic_add_fetch(&h->sleepers_, 1, __ATOMIC_SEQ_CST);
          syscall(SYS_futex, &h->generation_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
          __atomic_sub_fetch(&h->sleepers_, 1, __ATOMIC_SEQ_CST);
        }
      }
      seen++;
      if (!h->fn_) return nullptr;
      h->part(start->worker);
      __atomic_sub_fetch(&h->running_, 1, __ATOMIC_RELEASE);
    }
  }

  sealift_host host_;
  int32_t num_workers_;
  uint32_t generation_ = 0;
  int32_t sleepers_ = 0, running_ = 0;
  int64_t count_ = 0, grain_ = 1, end_ = 0;
  sealift_task_fn fn_ = nullptr;
  void *arg_ = nullptr;
  pthread_t threads_[kMaxWorkers];
  Start starts_[kMaxWorkers];
};

#endif
