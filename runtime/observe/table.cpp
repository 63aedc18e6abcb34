#include "table.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

#include "thread_state.h"

namespace sealift::observe {

namespace {

std::mutex tables_mutex;
Table *tables[MAX_TABLES + 1] = {};  // the last is the shared one
std::atomic<int> used{0};
std::atomic<Table *> shared{nullptr};
int series_capacity = 0;

size_t cells_bytes(int series) { return sizeof(Cell) * static_cast<size_t>(series); }

Cell *map_cells(int series) {
  void *memory = mmap(nullptr, cells_bytes(series), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Cell *>(memory);
}

Table *make_table(bool is_shared) {
  auto *table = new (std::nothrow) Table;
  if (table == nullptr) return nullptr;
  table->cells = map_cells(series_capacity);
  table->is_shared = is_shared;
  if (table->cells != nullptr) return table;
  delete table;
  return nullptr;
}

// floor(2^52 * 2^(k/8)) for k = 0..8: the mantissas at which the eight buckets of an octave begin.
constexpr uint64_t MANTISSAS[9] = {0x10000000000000, 0x1172b83c7d517a, 0x1306fe0a31b715, 0x14bfdad5362a27, 0x16a09e667f3bcc,
                                   0x18ace5422aa0db, 0x1ae89f995ad3ad, 0x1d5818dcfba487, 0x20000000000000};

}  // namespace

Table *table_of_thread() {
  ThreadState &state = thread_state();
  if (__builtin_expect(state.table != nullptr, 1)) return state.table;
  const std::lock_guard<std::mutex> lock(tables_mutex);
  if (series_capacity == 0) return nullptr;
  if (!state.is_gone) {
    const int count = used.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      if (tables[i]->is_shared || tables[i]->owned.load(std::memory_order_acquire) != 0) continue;
      tables[i]->owned.store(1, std::memory_order_relaxed);
      watch_thread_end();
      return state.table = tables[i];
    }
    if (count < MAX_TABLES) {
      Table *table = make_table(false);
      if (table == nullptr) return nullptr;
      table->owned.store(1, std::memory_order_relaxed);
      tables[count] = table;
      used.store(count + 1, std::memory_order_release);
      watch_thread_end();
      return state.table = table;
    }
  }
  // More threads than tables, or one that is ending.
  Table *common = shared.load(std::memory_order_relaxed);
  if (common == nullptr) {
    common = make_table(true);
    shared.store(common, std::memory_order_release);
  }
  return common;
}

void give_table_back(Table &table) { table.owned.store(0, std::memory_order_release); }

int num_tables() { return used.load(std::memory_order_acquire) + (shared.load(std::memory_order_acquire) != nullptr ? 1 : 0); }

Table &table_at(int index) { return index < used.load(std::memory_order_acquire) ? *tables[index] : *shared.load(std::memory_order_acquire); }

bool clear_tables(int max_series) {
  const std::lock_guard<std::mutex> lock(tables_mutex);
  const int before = series_capacity;
  for (int i = 0; i < num_tables(); ++i) {
    Table &table = table_at(i);
    if (max_series != before) {
      Cell *cells = map_cells(max_series);
      if (cells == nullptr) return false;
      munmap(static_cast<void *>(table.cells), cells_bytes(before));
      table.cells = cells;
    } else {
      madvise(static_cast<void *>(table.cells), cells_bytes(before), MADV_DONTNEED);
    }
    for (auto &word : table.touched) word.store(0, std::memory_order_relaxed);
    for (Counter *counter : {&table.kernel_samples, &table.torch_samples, &table.bursts, &table.nodes, &table.traced, &table.spent_ns}) counter->store(0, std::memory_order_relaxed);
  }
  series_capacity = max_series;
  return true;
}

void lock_tables() { tables_mutex.lock(); }

void unlock_tables() { tables_mutex.unlock(); }

void tables_after_fork() {
  new (&tables_mutex) std::mutex;
  Table *mine = thread_state().table;
  for (int i = 0; i < num_tables(); ++i) {
    Table &table = table_at(i);
    table.busy.store(0, std::memory_order_relaxed);
    if (&table != mine) table.owned.store(0, std::memory_order_relaxed);
  }
  if (series_capacity != 0) clear_tables(series_capacity);
}

int bucket_of(uint64_t ns) {
  const int exponent = 63 - __builtin_clzll(ns);
  // The mantissa as 52 bits behind a leading one; bits that fall off make a value on a bound larger than it.
  uint64_t mantissa = exponent <= 52 ? ns << (52 - exponent) : ns >> (exponent - 52);
  if (exponent > 52 && (ns & ((uint64_t{1} << (exponent - 52)) - 1)) != 0) mantissa |= 1;
  int part = 0;
  if (mantissa > MANTISSAS[4]) part = 4;
  if (mantissa > MANTISSAS[part + 2]) part += 2;
  if (mantissa > MANTISSAS[part + 1]) part += 1;
  // Upper-inclusive: a power of two, which is no more than the first bound, belongs to the bucket below.
  const int bucket = exponent * 8 + part - (mantissa == MANTISSAS[0] ? 1 : 0);
  if (bucket < 0) return 0;  // 1 ns lies in bucket -1: (2^(-1/8), 1]; one array is worth more than telling it from 2^(1/8)
  return bucket < SEALIFT_HISTOGRAM_BUCKETS ? bucket : SEALIFT_HISTOGRAM_BUCKETS - 1;
}

}  // namespace sealift::observe
