#include "model.h"

#include <string.h>

#include <algorithm>

#include "cpu.h"
#include "dtype.h"
#include "failure.h"
#include "model_table.h"

using sealift::runtime::Failure;

namespace {

// Called in the initializer list, where the table is first used.
const sealift_model_api &checked(const sealift::runtime::Library &library, const sealift::runtime::Package &package,
                                 const sealift::runtime::Mapping &weights) {
  char text[512];
  const sealift_status status = sealift::runtime::check_model_table(library.api(), sealift::runtime::ErrorText{text, sizeof text});
  if (status != SEALIFT_OK) throw Failure(status, package.path() + ": " + (strchr(text, ']') + 2));
  if (weights.size_bytes() < library.api()->weights_bytes) {
    throw Failure(SEALIFT_ERROR_PACKAGE, package.path() + ": the weights are missing or too short (" + std::to_string(weights.size_bytes()) +
                                             " bytes, the model needs " + std::to_string(library.api()->weights_bytes) +
                                             "); help: compile the model again");
  }
  return *library.api();
}

int32_t choose_isa(const sealift::runtime::Package &package, const sealift_model_api &api, int32_t wanted) {
  const uint32_t built = sealift::runtime::built_isas(api), machine = sealift::runtime::machine_isas();
  char built_text[64], machine_text[64];
  const std::string both = std::string("built for ") + sealift::runtime::isa_names(built, built_text) + "; this machine has " +
                           sealift::runtime::isa_names(machine, machine_text);
  if (wanted < -1 || wanted >= SEALIFT_ISA_COUNT)
    throw Failure(SEALIFT_ERROR_ARGUMENT, "there is no instruction set " + std::to_string(wanted) + "; help: pass -1, or a sealift_isa");
  const int32_t best = sealift::runtime::best_isa(wanted < 0 ? built : built & (1u << wanted), machine);
  if (best < 0) {
    const int32_t other = sealift::runtime::best_isa(built, machine);
    throw Failure(SEALIFT_ERROR_ISA, package.path() + ": model '" + api.name + "' cannot run" +
                                         (wanted < 0 ? "" : std::string(" with ") + sealift::runtime::isa_name(wanted)) + " here: " + both +
                                         (other < 0 ? std::string("; help: compile it for this machine's instruction set as well")
                                                    : std::string("; help: ask for no instruction set, and ") + sealift::runtime::isa_name(other) + " runs"));
  }
  return best;
}

int32_t choose_threads(int32_t wanted) {
  if (wanted < 0 || wanted > 1024)
    throw Failure(SEALIFT_ERROR_ARGUMENT, "num_threads is " + std::to_string(wanted) + "; help: pass 1..1024, or 0 for every core");
  return wanted == 0 ? sealift::runtime::usable_cores() : wanted;
}

}  // namespace

std::shared_ptr<sealift::runtime::Mapping> sealift_model::map_weights(const Package &package, const Package::Member *member, bool verify) {
  if (member == nullptr) return std::make_shared<Mapping>();
  if (member->offset % 64 != 0) {
    throw Failure(SEALIFT_ERROR_PACKAGE, package.path() + ": member '" + member->name +
                                             "' does not start at a multiple of 64 bytes; help: it was packed by another tool: compile the model again");
  }
  auto mapping = std::make_shared<Mapping>(package.file(), member->offset, member->size_bytes);
  if (verify) package.verify_weights(*member, *mapping);
  return mapping;
}

sealift_model::sealift_model(std::shared_ptr<Package> opened, const std::string &model, std::shared_ptr<Mapping> weights, const sealift_open_options &options)
    : package(std::move(opened)),
      name(model),
      weights_file(std::move(weights)),
      library(*package, package->library(name), name),
      api(checked(library, *package, *weights_file)),
      isa(choose_isa(*package, api, options.isa)),
      num_threads(choose_threads(options.num_threads)),
      weight_sets(api, weights_file->data()) {
  describe();
}

std::unique_ptr<sealift_model> sealift_model::open(const char *path, const sealift_open_options &options) {
  auto package = std::make_shared<Package>(path);
  const std::string name = package->choose_model(options.model_name);
  package->verify_small_members(name);
  auto weights = map_weights(*package, package->weights(name), options.verify != 0);
  return std::make_unique<sealift_model>(std::move(package), name, std::move(weights), options);
}

// The range of a derived size: its value where every symbol is at its least and where it is at its most, which is exact for what export
// derives (sums, products and quotients by constants).
void sealift_model::describe() {
  constexpr int64_t LARGE = int64_t{1} << 31;  // beyond it a derived size may not be computed without overflow
  const size_t num_sizes = static_cast<size_t>(api.num_sizes);
  std::vector<int64_t> low(num_sizes), high(num_sizes);
  bool bounded = true;
  for (int32_t s = 0; s < api.num_symbols; ++s) {
    low[static_cast<size_t>(s)] = std::min(api.symbols[s].min, LARGE);
    high[static_cast<size_t>(s)] = std::min(api.symbols[s].max, LARGE);
    bounded = bounded && api.symbols[s].max <= LARGE;
  }
  sealift::runtime::compute_sizes(api, low.data());
  sealift::runtime::compute_sizes(api, high.data());
  auto dim = [&](const sealift_tensor_spec &tensor, int32_t d) {
    const sealift_size_slot slot = tensor.shape[d];
    if (slot < api.num_symbols) return sealift_dim{tensor.shape_text[d], api.symbols[slot].min, api.symbols[slot].max};
    const int64_t a = low[static_cast<size_t>(slot)], b = high[static_cast<size_t>(slot)];
    return sealift_dim{tensor.shape_text[d], std::min(a, b), !bounded && a != b ? INT64_MAX : std::max(a, b)};
  };
  size_t total = 0;
  auto count = [&](const sealift_tensor_spec &tensor) { total += tensor.optional != 0 ? 0 : static_cast<size_t>(tensor.rank); };
  std::for_each(api.inputs, api.inputs + api.num_inputs, count);
  std::for_each(api.outputs, api.outputs + api.num_outputs, count);
  dims.reserve(total);
  auto add = [&](std::vector<sealift_tensor_info> &infos, const sealift_tensor_spec &tensor) {
    const sealift_dim *first = dims.data() + dims.size();
    const bool none = tensor.optional != 0;
    for (int32_t d = 0; d < tensor.rank && !none; ++d) dims.push_back(dim(tensor, d));
    const DLDataType dtype = none ? DLDataType{kDLOpaqueHandle, 0, 0} : sealift::runtime::dlpack_dtype(tensor.dtype);
    infos.push_back(sealift_tensor_info{tensor.name, dtype, none ? 0 : tensor.rank, first, none ? 1 : 0});
  };
  for (int32_t i = 0; i < api.num_inputs; ++i) add(inputs, api.inputs[i]);
  for (int32_t i = 0; i < api.num_outputs; ++i) add(outputs, api.outputs[i]);
  for (int32_t i = 0; i < api.num_constants; ++i) {
    const sealift_constant_spec &constant = api.constants[i];
    constants.push_back(sealift_constant_info{constant.fqn, sealift::runtime::dlpack_dtype(constant.dtype), constant.rank, constant.shape});
  }
  kernel_keys = std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(api.num_kernels));
  for (int32_t i = 0; i < api.num_kernels; ++i) kernels.push_back(sealift_kernel_info{i, api.kernels[i].name, api.kernels[i].ops, api.kernels[i].origin});
}
