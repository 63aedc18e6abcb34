#include "trace.h"

#include <sys/mman.h>

#include <atomic>

#include "info.h"
#include "recorder.h"
#include "series.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

struct Call {
  std::atomic<uint64_t> start_ns;  // 0: not whole yet
  uint64_t dur_ns;
  int64_t thread;
  sealift_info *info;  // one reference
  uint32_t series;
};

// Written by threads inside record() only, so it can be unmapped once all of those are over.
std::atomic<Call *> calls{nullptr};
std::atomic<bool> is_open{false};
std::atomic<uint64_t> written{0};  // may pass `capacity`: those were lost
uint64_t capacity = 0;

uint64_t num_calls() { return written.load(std::memory_order_acquire) < capacity ? written.load(std::memory_order_acquire) : capacity; }

size_t bytes_of(uint64_t count) { return sizeof(Call) * static_cast<size_t>(count); }

}  // namespace

void keep_traced_call(uint32_t series, const sealift_sample &sample) {
  if (!is_open.load(std::memory_order_acquire)) return;
  const uint64_t place = written.fetch_add(1, std::memory_order_relaxed);
  if (place >= capacity) return;
  Call &call = calls.load(std::memory_order_relaxed)[place];
  call.dur_ns = sample.dur_ns;
  call.thread = thread_number(thread_state());
  call.info = sealift_info_retain(sample.info);
  call.series = series;
  call.start_ns.store(sample.start_ns, std::memory_order_release);
}

bool open_trace(uint64_t max_calls) {
  void *memory = mmap(nullptr, bytes_of(max_calls), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  capacity = max_calls;
  written.store(0, std::memory_order_relaxed);
  calls.store(static_cast<Call *>(memory), std::memory_order_relaxed);
  is_open.store(true, std::memory_order_release);
  return true;
}

bool trace_is_kept() { return calls.load(std::memory_order_relaxed) != nullptr; }

uint64_t traced_calls(uint64_t *lost) {
  const uint64_t all = trace_is_kept() ? written.load(std::memory_order_acquire) : 0, kept = all < capacity ? all : capacity;
  if (lost != nullptr) *lost = all - kept;
  return kept;
}

void close_trace() { is_open.store(false, std::memory_order_seq_cst); }

void trace_after_fork() {
  close_trace();
  sealift_recorder_trace_free();
}

}  // namespace sealift::observe

using namespace sealift::observe;

void sealift_recorder_trace_visit(uint64_t first, uint64_t count, void (*visit)(void *user, const sealift_burst_event *event), void *user) {
  const Call *all = calls.load(std::memory_order_acquire);
  const uint64_t end = all == nullptr ? 0 : num_calls();
  for (uint64_t i = first; i < end && i - first < count; ++i) {
    const uint64_t start_ns = all[i].start_ns.load(std::memory_order_acquire);
    if (start_ns == 0) continue;
    const Series &series = series_at(all[i].series);
    const sealift_burst_event event{series.name, series.source, series.scope, series.labels->model_id, series.shapes, series.origin,
                                    start_ns, all[i].dur_ns, all[i].thread, 0, all[i].info};
    visit(user, &event);
  }
}

void sealift_recorder_trace_free(void) {
  Call *all = calls.exchange(nullptr, std::memory_order_acq_rel);
  if (all == nullptr) return;
  const uint64_t end = num_calls();
  for (uint64_t i = 0; i < end; ++i) sealift_info_release(all[i].info);
  munmap(static_cast<void *>(all), bytes_of(capacity));
}
