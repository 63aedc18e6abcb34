#include "recorder.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

#include "bursts.h"
#include "series.h"
#include "table.h"
#include "thread_state.h"
#include "trace.h"

namespace sealift::observe {

namespace {

std::atomic<bool> is_open{false};
std::atomic<uint64_t> dropped{0}, recordings{0};
std::mutex reader_mutex;  // one snapshot at a time, and none while the recorder is emptied

constexpr char NODE[] = "autograd::engine::evaluate_function";

template <bool SHARED>
void add(Counter &counter, uint64_t value) {
  if (SHARED) {
    counter.fetch_add(value, std::memory_order_relaxed);
  } else {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
}

template <bool SHARED>
void put(Table &table, uint32_t series, const sealift_sample &sample) {
  if ((sample.flags & SEALIFT_SAMPLE_TRACE) != 0) {
    add<SHARED>(table.traced, 1);
    keep_traced_call(series, sample);
    return;
  }
  std::atomic<uint64_t> &word = table.touched[series / 64];
  const uint64_t bit = uint64_t{1} << (series % 64), touched = word.load(std::memory_order_relaxed);
  if (__builtin_expect((touched & bit) == 0, 0)) word.fetch_or(bit, std::memory_order_relaxed);
  Cell &cell = table.cells[series];
  const uint64_t dur_ns = sample.dur_ns - sample.inner_ns;
  if ((sample.flags & SEALIFT_SAMPLE_COUNT) != 0) {
    add<SHARED>(cell.count, sample.weight);
    add<SHARED>(cell.total_ns, sample.weight * dur_ns);
    add<SHARED>(dur_ns == 0 ? cell.zero : cell.buckets[bucket_of(dur_ns)], sample.weight);
    add<SHARED>(cell.samples, 1);
  }
  if ((sample.flags & SEALIFT_SAMPLE_SELF) != 0) {
    if (sample.self_ns != UINT64_MAX) {
      add<SHARED>(cell.burst_samples, 1);
      add<SHARED>(cell.burst_total_ns, dur_ns);
      add<SHARED>(cell.burst_self_ns, sample.self_ns);
    }
    add<SHARED>(table.bursts, 1);
  } else {
    add<SHARED>(sample.source == SEALIFT_SOURCE_KERNEL ? table.kernel_samples : table.torch_samples, 1);
    add<SHARED>(table.spent_ns, sample.spent_ns);
  }
  if (sample.source == SEALIFT_SOURCE_TORCH && strncmp(sample.name, NODE, sizeof NODE - 1) == 0) add<SHARED>(table.nodes, 1);
}

// Makes every thread's earlier stores visible and its later loads fresh: what a fence in record() would cost at each event.
bool fence_all_threads() {
  static const bool is_registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return is_registered && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

namespace {

template <class SeriesOf>
void record_as(const sealift_sample &sample, SeriesOf series_of_sample) {
  Table *table = table_of_thread();
  if (table == nullptr) {
    if (is_open.load(std::memory_order_relaxed)) drop(1);
    return;
  }
  if (__builtin_expect(table->is_shared, 0)) {
    table->busy.fetch_add(1, std::memory_order_seq_cst);
    if (is_open.load(std::memory_order_seq_cst)) put<true>(*table, series_of_sample(), sample);
    table->busy.fetch_sub(1, std::memory_order_release);
    return;
  }
  table->busy.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (is_open.load(std::memory_order_acquire)) {
    const uint32_t series = series_of_sample();
    put<false>(*table, series, sample);
    if ((sample.flags & SEALIFT_SAMPLE_SELF) != 0) keep_burst_event(series, sample);
  }
  table->busy.store(0, std::memory_order_release);
}

}  // namespace

void record(const sealift_sample &sample) {
  if (sample.flags == 0) return;  // a source that measures itself
  record_as(sample, [&] { return series_of(sample, text_key(sample.name, sample.origin, sample.shapes), nullptr); });
}

void record_kernel(const sealift_sample &sample, uint64_t key, const sealift_kernel_info &kernel) {
  record_as(sample, [&] { return series_of(sample, key, &kernel); });
}

void drop(uint64_t count) { dropped.fetch_add(count, std::memory_order_relaxed); }

void wait_for_records() {
  // Where the kernel has no membarrier, samples that are still on their way may find what they write to gone: wait as long as one can take.
  if (num_tables() > 0 && !fence_all_threads()) usleep(10000);
  for (int i = 0; i < num_tables(); ++i) {
    while (table_at(i).busy.load(std::memory_order_acquire) != 0) sched_yield();
  }
}

bool open_recorder(int max_series, const char *labels) {
  const std::lock_guard<std::mutex> lock(reader_mutex);
  wait_for_records();
  dropped.store(0, std::memory_order_relaxed);
  // Bursts first: whoever takes their calls looks at the series.
  if (!clear_bursts() || !clear_series(max_series, labels) || !clear_tables(max_series)) return false;
  recordings.fetch_add(1, std::memory_order_relaxed);
  is_open.store(true, std::memory_order_seq_cst);
  return true;
}

void close_recorder() { is_open.store(false, std::memory_order_seq_cst); }

uint64_t recording_number() { return recordings.load(std::memory_order_relaxed); }

bool recorder_is_open() { return is_open.load(std::memory_order_relaxed); }

Work work_of_table(int index) {
  const Table &table = table_at(index);
  return {table.torch_samples.load(std::memory_order_relaxed), table.kernel_samples.load(std::memory_order_relaxed),
          table.bursts.load(std::memory_order_relaxed), table.nodes.load(std::memory_order_relaxed), table.traced.load(std::memory_order_relaxed), table.spent_ns.load(std::memory_order_relaxed)};
}

void recorder_after_fork() {
  new (&reader_mutex) std::mutex;
  dropped.store(0, std::memory_order_relaxed);
  tables_after_fork();
  series_after_fork();
  bursts_after_fork();
  trace_after_fork();
}

uint64_t dropped_samples() { return dropped.load(std::memory_order_relaxed); }

namespace {

struct Sum {
  uint64_t count = 0, samples = 0, total_ns = 0, zero = 0, burst_samples = 0, burst_total_ns = 0, burst_self_ns = 0;
  uint64_t buckets[SEALIFT_HISTOGRAM_BUCKETS] = {};

  void add(const Cell &cell) {
    const auto get = [](const Counter &counter) { return counter.load(std::memory_order_relaxed); };
    count += get(cell.count);
    samples += get(cell.samples);
    total_ns += get(cell.total_ns);
    zero += get(cell.zero);
    burst_samples += get(cell.burst_samples);
    burst_total_ns += get(cell.burst_total_ns);
    burst_self_ns += get(cell.burst_self_ns);
    for (int i = 0; i < SEALIFT_HISTOGRAM_BUCKETS; ++i) buckets[i] += get(cell.buckets[i]);
  }
};

bool sum_series(uint32_t series, Sum &sum) {
  bool any = false;
  for (int i = 0; i < num_tables(); ++i) {
    const Table &table = table_at(i);
    if ((table.touched[series / 64].load(std::memory_order_relaxed) >> (series % 64) & 1) == 0) continue;
    sum.add(table.cells[series]);
    any = true;
  }
  return any && (sum.samples != 0 || sum.burst_samples != 0);
}

}  // namespace

uint64_t overflowed_samples() {
  Sum sum;
  return num_series() != 0 && sum_series(OVERFLOW_SERIES, sum) ? sum.samples : 0;
}

void visit_series(void (*visit)(void *, const sealift_series *), void *user) {
  const std::lock_guard<std::mutex> lock(reader_mutex);
  const uint32_t count = num_series();
  for (uint32_t i = 0; i < count; ++i) {
    Sum sum;
    if (!sum_series(i, sum)) continue;
    const Series &series = series_at(i);
    const sealift_series out{sizeof(sealift_series), series.source, series.scope, series.name, series.origin, series.shapes,
                             series.labels->model_id, series.labels->count, series.labels->labels, sum.count, sum.samples, sum.total_ns,
                             sum.burst_samples, sum.burst_total_ns, sum.burst_self_ns, sum.zero, sum.buckets};
    visit(user, &out);
  }
}

}  // namespace sealift::observe

void sealift_recorder_visit(void (*visit)(void *user, const sealift_series *series), void *user) { sealift::observe::visit_series(visit, user); }
