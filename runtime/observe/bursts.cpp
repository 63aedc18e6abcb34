#include "bursts.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>

#include "series.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

constexpr uint64_t KEPT = 16384;

struct Call {
  std::atomic<uint64_t> ready;  // its place in the order + 1, when it is whole
  uint64_t start_ns, dur_ns;
  int64_t thread;
  uint32_t series, burst;
};

std::atomic<Call *> ring{nullptr};
std::atomic<uint64_t> written{0}, taken{0};
std::atomic<uint32_t> burst{0};
std::mutex taker_mutex;

}  // namespace

void keep_burst_event(uint32_t series, const sealift_sample &sample) {
  Call *calls = ring.load(std::memory_order_acquire);
  if (calls == nullptr) return;
  // Full: the newer ones are left out, so that what is kept are whole bursts from their start.
  if (written.load(std::memory_order_relaxed) - taken.load(std::memory_order_relaxed) >= KEPT) return;
  const uint64_t place = written.fetch_add(1, std::memory_order_relaxed);
  if (place - taken.load(std::memory_order_acquire) >= KEPT) return;  // others were faster: the reader passes a place that nobody fills
  Call &call = calls[place % KEPT];
  call.start_ns = sample.start_ns;
  call.dur_ns = sample.dur_ns;
  call.thread = thread_number(thread_state());
  call.series = series;
  call.burst = burst.load(std::memory_order_relaxed);
  call.ready.store(place + 1, std::memory_order_release);
}

void next_burst() { burst.fetch_add(1, std::memory_order_relaxed); }

void bursts_after_fork() {
  new (&taker_mutex) std::mutex;
  if (ring.load(std::memory_order_relaxed) != nullptr) clear_bursts();
}

bool clear_bursts() {
  const std::lock_guard<std::mutex> lock(taker_mutex);
  if (ring.load(std::memory_order_relaxed) == nullptr) {
    void *memory = mmap(nullptr, KEPT * sizeof(Call), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    ring.store(static_cast<Call *>(memory), std::memory_order_release);
  }
  madvise(static_cast<void *>(ring.load(std::memory_order_relaxed)), KEPT * sizeof(Call), MADV_DONTNEED);
  written.store(0, std::memory_order_relaxed);
  taken.store(0, std::memory_order_relaxed);
  burst.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace sealift::observe

using namespace sealift::observe;

void sealift_recorder_take_events(void (*visit)(void *user, const sealift_burst_event *event), void *user) {
  const std::lock_guard<std::mutex> lock(taker_mutex);
  const Call *calls = ring.load(std::memory_order_acquire);
  if (calls == nullptr) return;
  const uint64_t end = written.load(std::memory_order_acquire);
  for (uint64_t place = taken.load(std::memory_order_relaxed); place < end; ++place) {
    const Call &call = calls[place % KEPT];
    if (call.ready.load(std::memory_order_acquire) != place + 1) continue;  // still being written, or left out: one call less in the trace
    const Series &series = series_at(call.series);
    const sealift_burst_event event{series.name, series.source, series.scope, series.labels->model_id, series.shapes, series.origin,
                                    call.start_ns, call.dur_ns, call.thread, call.burst, nullptr};
    visit(user, &event);
  }
  taken.store(end, std::memory_order_release);
}
