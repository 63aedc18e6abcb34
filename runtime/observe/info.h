// Debug info: immutable sets of labels, counted, and which one a thread has.
#pragma once

#include <stdint.h>

#include <atomic>
#include <string>
#include <vector>

#include "sealift_observe.h"

struct sealift_info {
  std::atomic<int64_t> references{1};
  // The recorder's number for these labels, with the generation of its choice of labels in the upper half; 0: not asked for yet.
  std::atomic<uint64_t> label_set{0};
  std::vector<std::pair<std::string, std::string>> labels;  // sorted by key
};

namespace sealift::observe {

const std::string *find_label(const sealift_info &info, const char *key);
// The calling thread's, one reference, or NULL.
sealift_info *current_info();
// The source's way to carry it, or NULL.
void carry_info_by(const sealift_event_source *source);

}  // namespace sealift::observe
