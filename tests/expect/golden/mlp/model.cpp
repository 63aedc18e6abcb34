// mlp: what the library says about itself.
#include "sealift_model.h"
#include "kernels/loops/loops.h"
#include "kernels/gemm/gemm.h"

namespace sealift_baseline {
int32_t run_mlp(sealift_frame *frame);
}
namespace sealift_avx2 {
int32_t run_mlp(sealift_frame *frame);
}
namespace sealift_avx512 {
int32_t run_mlp(sealift_frame *frame);
}

namespace {

using namespace SEALIFT_NS;

const sealift_size_slot input0_shape[] = {0, 1};
const char *const input0_text[] = {"batch", "10"};
const sealift_size_slot output0_shape[] = {0, 2};
const char *const output0_text[] = {"batch", "1"};
const int64_t constant0_shape[] = {16, 10};
const int64_t constant1_shape[] = {16};
const int64_t constant2_shape[] = {1, 16};
const int64_t constant3_shape[] = {1};
const sealift_tensor_spec inputs[] = {
  {"x", 0, 2, input0_shape, input0_text, nullptr, 0, -1},
};
const sealift_tensor_spec outputs[] = {
  {"output", 0, 2, output0_shape, output0_text, nullptr, 0, -1},
};
const sealift_symbol_spec symbols[] = {
  {"batch", 1, INT64_C(1024), 0, 0},
};
const sealift_constant_spec constants[] = {
  {"fc1_weight", "fc1.weight", 0, 2, constant0_shape, 0},
  {"fc1_bias", "fc1.bias", 0, 1, constant1_shape, 0},
  {"fc2_weight", "fc2.weight", 0, 2, constant2_shape, 0},
  {"fc2_bias", "fc2.bias", 0, 1, constant3_shape, 0},
};
const sealift_weight_spec weights[] = {
  {0, 1, 0, 1280, 0},
  {1, 0, 1280, 64, 0},
  {2, 1, 1344, 2048, 0},
  {3, 0, 3392, 4, 0},
};
const sealift_kernel_spec kernels[] = {
  {0, "k0_linear_relu", "aten.linear.default, aten.relu.default", "model.py:10 fc1; model.py:10 relu"},
  {1, "k1_linear_sigmoid", "aten.linear.default, aten.sigmoid.default", "model.py:11 fc2; model.py:11 sigmoid"},
};

void compute_sizes(int64_t *sizes) {
  const int64_t batch = sizes[0];
  (void)batch;
  sizes[1] = 10;
  sizes[2] = 1;
  sizes[3] = batch * 64;
  sizes[4] = (size_max(size_max(0, gemm_f32_scratch_bytes(batch, 16, 10, kBPanel32)), gemm_f32_scratch_bytes(batch, 1, 16, kBPanel32)) + 63) / 64 * 64;
}

const sealift_model_api api = {
  SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_model_api),
  "mlp", "sealift, g++",
  1, 1, 1, 5, 4, 4, 0, 2,  // inputs, outputs, symbols, sizes, constants, weights, states, kernels
  inputs, outputs, symbols, constants, weights, nullptr, kernels,
  "",
  "",
  3396u, 3, 4, 7u,
  compute_sizes,
  {sealift_baseline::run_mlp, sealift_avx2::run_mlp, sealift_avx512::run_mlp, nullptr},
  nullptr,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : nullptr;
}
