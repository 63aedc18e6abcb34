// block: what the library says about itself.
#include "sealift_model.h"
#include "kernels/loops/loops.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"

namespace sealift_baseline {
int32_t run_block(sealift_frame *frame);
}
namespace sealift_avx2 {
int32_t run_block(sealift_frame *frame);
}
namespace sealift_avx512 {
int32_t run_block(sealift_frame *frame);
}

namespace {

using namespace SEALIFT_NS;

const sealift_size_slot input0_shape[] = {0, 1, 2};
const char *const input0_text[] = {"batch", "seq", "16"};
const sealift_size_slot input1_shape[] = {0, 1};
const char *const input1_text[] = {"batch", "seq"};
const sealift_size_slot output0_shape[] = {0, 1, 2};
const char *const output0_text[] = {"batch", "seq", "16"};
const int64_t constant0_shape[] = {16};
const int64_t constant1_shape[] = {16};
const int64_t constant2_shape[] = {48, 16};
const int64_t constant3_shape[] = {48};
const int64_t constant4_shape[] = {16, 16};
const int64_t constant5_shape[] = {16};
const int64_t constant6_shape[] = {16};
const int64_t constant7_shape[] = {16};
const int64_t constant8_shape[] = {64, 16};
const int64_t constant9_shape[] = {64};
const int64_t constant10_shape[] = {16, 64};
const int64_t constant11_shape[] = {16};
const sealift_tensor_spec inputs[] = {
  {"x", 0, 3, input0_shape, input0_text, nullptr, 0, -1},
  {"mask", 4, 2, input1_shape, input1_text, nullptr, 0, -1},
};
const sealift_tensor_spec outputs[] = {
  {"output", 0, 3, output0_shape, output0_text, nullptr, 0, -1},
};
const sealift_symbol_spec symbols[] = {
  {"batch", 1, INT64_C(64), 0, 0},
  {"seq", 1, INT64_C(128), 0, 1},
};
const sealift_constant_spec constants[] = {
  {"norm1_weight", "norm1.weight", 0, 1, constant0_shape, 0},
  {"norm1_bias", "norm1.bias", 0, 1, constant1_shape, 0},
  {"qkv_weight", "qkv.weight", 0, 2, constant2_shape, 0},
  {"qkv_bias", "qkv.bias", 0, 1, constant3_shape, 0},
  {"proj_weight", "proj.weight", 0, 2, constant4_shape, 0},
  {"proj_bias", "proj.bias", 0, 1, constant5_shape, 0},
  {"norm2_weight", "norm2.weight", 0, 1, constant6_shape, 0},
  {"norm2_bias", "norm2.bias", 0, 1, constant7_shape, 0},
  {"up_weight", "up.weight", 0, 2, constant8_shape, 0},
  {"up_bias", "up.bias", 0, 1, constant9_shape, 0},
  {"down_weight", "down.weight", 0, 2, constant10_shape, 0},
  {"down_bias", "down.bias", 0, 1, constant11_shape, 0},
};
const sealift_weight_spec weights[] = {
  {0, 0, 0, 64, 0},
  {1, 0, 64, 64, 0},
  {2, 1, 128, 4096, 0},
  {3, 0, 4224, 192, 0},
  {4, 1, 4416, 2048, 0},
  {5, 0, 6464, 64, 0},
  {6, 0, 6528, 64, 0},
  {7, 0, 6592, 64, 0},
  {8, 1, 6656, 4096, 0},
  {9, 0, 10752, 256, 0},
  {10, 1, 11008, 8192, 0},
  {11, 0, 19200, 64, 0},
};
const sealift_kernel_spec kernels[] = {
  {0, "k0_layer_norm", "aten.layer_norm.default", "model.py:20 norm1"},
  {1, "k1_linear", "aten.linear.default", "model.py:20 qkv"},
  {2, "k2_unbind_scaled_dot_product_attention", "aten.view.default, aten.permute.default, aten.unbind.int, aten.unsqueeze.default, aten.scaled_dot_product_attention.default", "model.py:20; model.py:21"},
  {3, "k3_linear_add", "aten.transpose.int, aten.reshape.default, aten.linear.default, aten.add.Tensor", "model.py:22; model.py:22 proj"},
  {4, "k4_layer_norm", "aten.layer_norm.default", "model.py:23 norm2"},
  {5, "k5_linear_gelu", "aten.linear.default, aten.gelu.default", "model.py:23 up; model.py:23"},
  {6, "k6_linear_add", "aten.linear.default, aten.add.Tensor", "model.py:23 down; model.py:23"},
};

void compute_sizes(int64_t *sizes) {
  const int64_t batch = sizes[0];
  (void)batch;
  const int64_t seq = sizes[1];
  (void)seq;
  sizes[2] = 16;
  sizes[3] = batch * seq * 512;
  sizes[4] = (size_max(size_max(size_max(size_max(size_max(0, gemm_f32_scratch_bytes(batch * seq, 48, 16, kBPanel32)), attention_f32_scratch_bytes(8, 8)), gemm_f32_scratch_bytes(batch * seq, 16, 16, kBPanel32)), gemm_f32_scratch_bytes(batch * seq, 64, 16, kBPanel32)), gemm_f32_scratch_bytes(batch * seq, 16, 64, kBPanel32)) + 63) / 64 * 64;
}

const sealift_model_api api = {
  SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_model_api),
  "block", "sealift, g++",
  2, 1, 2, 5, 12, 12, 0, 7,  // inputs, outputs, symbols, sizes, constants, weights, states, kernels
  inputs, outputs, symbols, constants, weights, nullptr, kernels,
  "",
  "",
  19264u, 3, 4, 7u,
  compute_sizes,
  {sealift_baseline::run_block, sealift_avx2::run_block, sealift_avx512::run_block, nullptr},
  nullptr,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : nullptr;
}
