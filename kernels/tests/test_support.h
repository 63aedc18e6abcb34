// What the kernel tests share: buffers that end at an unreadable page, numbers, comparison, one exit code.
#ifndef SEALIFT_KERNELS_TESTS_TEST_SUPPORT_H
#define SEALIFT_KERNELS_TESTS_TEST_SUPPORT_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Reading or writing one element past the end is a fault, so no test needs to look for it.
template <typename T>
class Guarded {
public:
  explicit Guarded(int64_t count) : count_(count) {
    const size_t page = 4096, bytes = static_cast<size_t>(count) * sizeof(T);
    map_bytes_ = (bytes + page - 1) / page * page + page;
    map_ = static_cast<char *>(mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (map_ == MAP_FAILED) abort();
    mprotect(map_ + map_bytes_ - page, page, PROT_NONE);
    data = reinterpret_cast<T *>(map_ + map_bytes_ - page - bytes);
  }
  ~Guarded() { munmap(map_, map_bytes_); }
  Guarded(const Guarded &) = delete;
  Guarded &operator=(const Guarded &) = delete;
  T &operator[](int64_t i) { return data[i]; }
  int64_t size() const { return count_; }
  T *data;

private:
  int64_t count_;
  char *map_;
  size_t map_bytes_;
};

class Random { // SplitMix64
public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform(float scale) { return scale * static_cast<float>(static_cast<int64_t>(bits() >> 40) - (1 << 23)) / static_cast<float>(1 << 23); }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  template <typename T>
  void fill(Guarded<T> &to, float scale) {
    for (int64_t i = 0; i < to.size(); i++) to[i] = uniform(scale);
  }

private:
  uint64_t state_;
};

static int g_failures = 0;
static int64_t g_checks = 0;

static inline void expect_close(double got, double want, double tolerance, const char *what, int64_t i, int64_t j) {
  g_checks++;
  const bool same = (isnan(got) && isnan(want)) || got == want || fabs(got - want) <= tolerance;
  if (!same && ++g_failures <= 20) printf("FAIL %s at (%ld, %ld): got %.9g want %.9g tolerance %.3g\n", what, (long)i, (long)j, got, want, tolerance);
}

static inline void expect_true(bool ok, const char *what) {
  g_checks++;
  if (!ok && ++g_failures <= 20) printf("FAIL %s\n", what);
}

static inline int finish_tests(const char *name) {
  printf("%s: %ld checks, %d failures\n", name, (long)g_checks, g_failures);
  return g_failures == 0 ? 0 : 1;
}

#endif
