// The files that are added to every TorchScript archive the process writes.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>

#include <string>

#include "sealift_torch_bridge.h"

namespace {

void put_file(void *files, const char *name, const char *data, size_t size) {
  (*static_cast<torch::jit::ExtraFilesMap *>(files))[name] = std::string(data, size);
}

}  // namespace

// PyTorch keeps one hook and does not give it out, so a hook that somebody set before is replaced.
void sealift_torch_bridge_set_export_hook(sealift_export_hook hook, void *user) {
  if (hook == nullptr) {
    torch::jit::SetExportModuleExtraFilesHook(nullptr);
    return;
  }
  torch::jit::SetExportModuleExtraFilesHook([hook, user](const torch::jit::Module &module) {
    torch::jit::ExtraFilesMap files;
    const auto name = module.type()->name();
    hook(user, name ? name->qualifiedName().c_str() : "", put_file, &files);
    return files;
  });
}
