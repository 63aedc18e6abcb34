// PyTorch's API usage, from the first moment: linked to libc10 alone, so that it can be loaded before `import torch`, whose own import is the
// first thing that PyTorch logs.
#include <c10/util/Logging.h>

#include <string>

#include "sealift_observe.h"

namespace {
const sealift_observe_host *host = nullptr;
}

extern "C" __attribute__((visibility("default"))) int sealift_torch_api_usage_install(const sealift_observe_host *runtime) {
  if (runtime == nullptr || runtime->version != SEALIFT_OBSERVE_VERSION) return 0;
  host = runtime;
  c10::SetAPIUsageLogger([](const std::string &key) { host->log_api_usage(key.c_str()); });
  return 1;
}
