// Which series there are: an operator under one set of labels, numbered in the order of appearance. Bounded; what finds no room is series 0.
#pragma once

#include <stdint.h>

#include "sealift_observe.h"

namespace sealift::observe {

inline constexpr uint32_t OVERFLOW_SERIES = 0;
inline constexpr int MAX_LABEL_SETS = 1024;
inline constexpr size_t TEXT_BYTES = 1 << 20;  // of all names, shapes and labels together
inline constexpr size_t MAX_TEXT_BYTES = 512;  // of one; a longer one ends with a number that tells it from others

struct LabelSet {
  const char *model_id;
  int32_t count;
  const sealift_label *labels;
};

struct Series {
  const char *name, *origin, *shapes;
  int32_t source, scope;
  const LabelSet *labels;
};

// A hash of name, origin and shapes; never 0.
uint64_t text_key(const char *name, const char *origin, const char *shapes);
uint64_t kernel_key(const sealift_kernel_info &kernel);
// The number of a sample's series. Lock-free but for a series', or an info's, first time. `kernel`: gives the origin instead of the sample, `key`
// being its kernel_key.
uint32_t series_of(const sealift_sample &sample, uint64_t key, const sealift_kernel_info *kernel);
uint32_t num_series();
const Series &series_at(uint32_t index);
// With nobody inside record(): forgets every series. `labels`: comma-separated keys besides model_id. False without memory.
bool clear_series(int max_series, const char *labels);
// Around fork(): nobody is halfway through adding a series.
void lock_series();
void unlock_series();
void series_after_fork();

}  // namespace sealift::observe
