// The calls of bursts one by one, for a trace: a ring that threads fill without a lock and one reader empties.
#pragma once

#include <stdint.h>

#include "sealift_observe.h"

namespace sealift::observe {

void keep_burst_event(uint32_t series, const sealift_sample &sample);
void next_burst();  // a new one begins
bool clear_bursts();
void bursts_after_fork();

}  // namespace sealift::observe
