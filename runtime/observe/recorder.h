// The recorder: samples in, counts and histograms out.
#pragma once

#include <stdint.h>

#include "sealift_observe.h"

namespace sealift::observe {

void record(const sealift_sample &sample);
// A kernel's, whose name and origin were hashed before.
void record_kernel(const sealift_sample &sample, uint64_t key, const sealift_kernel_info &kernel);
void drop(uint64_t count);

// Between these two, record() takes samples. open_recorder waits until nobody is inside record() any more, then empties everything.
bool open_recorder(int max_series, const char *labels);
void close_recorder();
bool recorder_is_open();
uint64_t recording_number();  // changes when the recorder is opened

uint64_t dropped_samples();
uint64_t overflowed_samples();

// What one table's threads had to do since the start.
struct Work {
  uint64_t torch_samples, kernel_samples, burst_samples, nodes, traced;
  uint64_t spent_ns;  // of samples in windows, as the source measured
};
Work work_of_table(int index);

// Returns when every call of record() that had begun is over.
void wait_for_records();

void recorder_after_fork();

}  // namespace sealift::observe
