// Debug info as a kind of PyTorch's own, which torch.jit.fork and backward carry to their threads.
#pragma once

#include "sealift_observe.h"

namespace sealift::bridge {

sealift_info *get_info(int32_t *is_set);  // one reference
void set_info(const sealift_info *info);  // NULL: none
void use_info_functions(const sealift_observe_host *host);

}  // namespace sealift::bridge
