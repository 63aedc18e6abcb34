// The recorder's memory: one table of cells for each thread that records, a cell for each series. Its owner alone writes it, by plain loads
// and stores; a reader adds up all tables while they go on. A thread that ends leaves its table, counts and all, to the next one that begins,
// so nothing is ever merged or lost and memory is bounded by the threads that record at the same time.
#pragma once

#include <stdint.h>

#include <atomic>

#include "sealift_observe.h"

namespace sealift::observe {

inline constexpr int MAX_TABLES = 256;  // beyond: threads share one, with atomic additions
inline constexpr int MAX_SERIES_LIMIT = 16384;

using Counter = std::atomic<uint64_t>;

struct Cell {
  Counter count, samples, total_ns, zero;
  Counter burst_samples, burst_total_ns, burst_self_ns;
  Counter buckets[SEALIFT_HISTOGRAM_BUCKETS];
};

struct Table {
  std::atomic<uint32_t> owned{0};
  std::atomic<uint32_t> busy{0};  // its owner is inside record()
  bool is_shared = false;
  Counter kernel_samples{0}, torch_samples{0}, bursts{0}, nodes{0}, traced{0}, spent_ns{0};  // for the overhead: weighted by nothing
  std::atomic<uint64_t> touched[MAX_SERIES_LIMIT / 64] = {};                                 // which cells hold something
  Cell *cells = nullptr;                                                                     // [max_series], zero pages until they are written
};

// The calling thread's, taken now if it has none; NULL without memory.
Table *table_of_thread();
void give_table_back(Table &table);
// Every table that was ever used.
int num_tables();
Table &table_at(int index);
// With nobody inside record(): room for that many series, all empty. False without memory.
bool clear_tables(int max_series);
// Around fork(): nobody is halfway through taking a table.
void lock_tables();
void unlock_tables();
// In a forked child, whose only thread is the calling one.
void tables_after_fork();

// Bucket i of an OTLP exponential histogram of scale 3: (2^(i/8), 2^((i+1)/8)]. `ns` is above 0.
int bucket_of(uint64_t ns);

}  // namespace sealift::observe
