// A trace on demand: the calls of every operator for a time, in memory that is taken for it and given back.
#pragma once

#include <stdint.h>

#include "sealift_observe.h"

namespace sealift::observe {

// From inside record().
void keep_traced_call(uint32_t series, const sealift_sample &sample);
// False without memory.
bool open_trace(uint64_t max_calls);
bool trace_is_kept();  // from open_trace to free
void close_trace();
uint64_t traced_calls(uint64_t *lost);
void trace_after_fork();

}  // namespace sealift::observe
