#pragma once

#include <stdint.h>

#include <string>

/* The trace's calls first ... first + count - 1 as events of Chrome's trace format, each behind a comma and a line's end. Times are in microseconds
 * since `base_ns` of CLOCK_MONOTONIC. Needs no GIL. */
std::string trace_json(uint64_t first, uint64_t count, int64_t pid, uint64_t base_ns);
