// What this machine and operating system can execute.
#pragma once

#include <stdint.h>

namespace sealift::runtime {

// Bit i: sealift_isa i runs here (the operating system saves its registers too).
uint32_t machine_isas();
bool has_sse42();
bool has_sha_ni();

// The highest instruction set in both masks, or -1.
int32_t best_isa(uint32_t built, uint32_t machine);

const char *isa_name(int32_t isa);
// "baseline, avx2", or "none".
const char *isa_names(uint32_t mask, char (&buffer)[64]);

// Cores that this process may use (its affinity mask), at least 1.
int32_t usable_cores();

}  // namespace sealift::runtime
