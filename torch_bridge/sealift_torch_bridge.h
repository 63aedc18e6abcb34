/* What the bridge exports. It is given the runtime's table and links to no sealift library; built for one version of torch, whose hooks are in
 * no stable ABI. C99. */
#ifndef SEALIFT_TORCH_BRIDGE_H
#define SEALIFT_TORCH_BRIDGE_H

#include "sealift_observe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEALIFT_TORCH_BRIDGE_VERSION 1u
#define SEALIFT_BRIDGE_API __attribute__((visibility("default")))

/* Attaches PyTorch's operators to the runtime and sends it PyTorch's API usage. 1: done, or done before; 0: the versions differ. */
SEALIFT_BRIDGE_API int sealift_torch_bridge_install(const sealift_observe_host *host);
/* The torch that it was built for: "2.13.0". */
SEALIFT_BRIDGE_API const char *sealift_torch_bridge_torch_version(void);

/* Called for each TorchScript module that is saved, with the name of its type; calls `put` for each file to be added to the archive. */
typedef void (*sealift_put_file)(void *files, const char *name, const char *data, size_t size);
typedef void (*sealift_export_hook)(void *user, const char *module_type, sealift_put_file put, void *files);
SEALIFT_BRIDGE_API void sealift_torch_bridge_set_export_hook(sealift_export_hook hook, void *user); /* NULL: none */

/* ns of processor time per call of `calls` adds of one element from C++, for the measurement of overheads. */
SEALIFT_BRIDGE_API double sealift_torch_bridge_time_adds(int64_t calls);

#ifdef __cplusplus
}
#endif
#endif
