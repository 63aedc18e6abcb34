// branch: what the library says about itself.
#include "sealift_model.h"
#include "kernels/loops/loops.h"
#include "kernels/gemm/gemm.h"

namespace sealift_baseline {
int32_t run_branch(sealift_frame *frame);
}
namespace sealift_avx2 {
int32_t run_branch(sealift_frame *frame);
}
namespace sealift_avx512 {
int32_t run_branch(sealift_frame *frame);
}

namespace {

using namespace SEALIFT_NS;

const sealift_size_slot input0_shape[] = {0, 1};
const char *const input0_text[] = {"batch", "8"};
const sealift_size_slot input1_shape[] = {0};
const char *const input1_text[] = {nullptr};
const sealift_size_slot output0_shape[] = {0, 1};
const char *const output0_text[] = {"batch", "8"};
const int64_t constant0_shape[] = {8, 8};
const int64_t constant1_shape[] = {8};
const sealift_tensor_spec inputs[] = {
  {"x", 0, 2, input0_shape, input0_text, nullptr, 0, -1},
  {"n", 3, 0, input1_shape, input1_text, nullptr, 0, -1},
};
const sealift_tensor_spec outputs[] = {
  {"output", 0, 2, output0_shape, output0_text, nullptr, 0, -1},
};
const sealift_symbol_spec symbols[] = {
  {"batch", 1, INT64_C(64), 0, 0},
};
const sealift_constant_spec constants[] = {
  {"w", "proj.weight", 0, 2, constant0_shape, 0},
  {"b", "proj.bias", 0, 1, constant1_shape, 0},
};
const sealift_weight_spec weights[] = {
  {0, 1, 0, 1024, 0},
  {1, 0, 1024, 32, 0},
  {0, 2, 1088, 1024, 0},
};
const sealift_kernel_spec kernels[] = {
  {0, "k0_mean", "aten.mean.default", "branch.py:8"},
  {1, "k1_mean_gt", "aten.mean.default, aten.gt.Scalar", "branch.py:8"},
  {2, "k2_cond", "higher_order.cond", "branch.py:8"},
  {3, "k3_scalar_tensor", "aten.scalar_tensor.default", "branch.py:13"},
  {4, "k4_while_loop", "higher_order.while_loop", "branch.py:16"},
};

void compute_sizes(int64_t *sizes) {
  const int64_t batch = sizes[0];
  (void)batch;
  sizes[1] = 8;
  sizes[2] = ((batch * 32 + 63) / 64) * 128 + 256;
  sizes[3] = (size_max(size_max(0, 0), gemm_f32_scratch_bytes(batch, 8, 8, kBPanel32)) + 63) / 64 * 64;
}

const sealift_model_api api = {
  SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_model_api),
  "branch", "sealift, g++",
  2, 1, 1, 4, 2, 3, 0, 5,  // inputs, outputs, symbols, sizes, constants, weights, states, kernels
  inputs, outputs, symbols, constants, weights, nullptr, kernels,
  "",
  "",
  2112u, 2, 3, 7u,
  compute_sizes,
  {sealift_baseline::run_branch, sealift_avx2::run_branch, sealift_avx512::run_branch, nullptr},
  nullptr,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : nullptr;
}
