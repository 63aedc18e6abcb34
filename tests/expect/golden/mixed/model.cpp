// mixed: what the library says about itself.
#include "sealift_model.h"
#include "kernels/loops/loops.h"

namespace sealift_baseline {
int32_t run_mixed(sealift_frame *frame);
}
namespace sealift_avx2 {
int32_t run_mixed(sealift_frame *frame);
}
namespace sealift_avx512 {
int32_t run_mixed(sealift_frame *frame);
}

namespace {

using namespace SEALIFT_NS;

const sealift_size_slot input0_shape[] = {0, 1};
const char *const input0_text[] = {"n", "3"};
const sealift_size_slot input1_shape[] = {0};
const char *const input1_text[] = {"n"};
const sealift_size_slot output0_shape[] = {0, 2};
const char *const output0_text[] = {"n", "9"};
const sealift_size_slot output1_shape[] = {2};
const char *const output1_text[] = {"9"};
const sealift_size_slot output2_shape[] = {0};
const char *const output2_text[] = {"n"};
const sealift_size_slot output3_shape[] = {3, 0};
const char *const output3_text[] = {"6", "n"};
const int32_t output3_order[] = {1, 0};
const int64_t constant0_shape[] = {9, 6};
const sealift_tensor_spec inputs[] = {
  {"x", 1, 2, input0_shape, input0_text, nullptr, 0, -1},
  {"ids", 3, 1, input1_shape, input1_text, nullptr, 0, -1},
};
const sealift_tensor_spec outputs[] = {
  {"softmax", 1, 2, output0_shape, output0_text, nullptr, 0, -1},
  {"count", 3, 1, output1_shape, output1_text, nullptr, 0, -1},
  {"best", 2, 1, output2_shape, output2_text, nullptr, 0, -1},
  {"doubled", 5, 2, output3_shape, output3_text, output3_order, 0, -1},
};
const sealift_symbol_spec symbols[] = {
  {"n", 0, INT64_C(64), 0, 0},
};
const sealift_constant_spec constants[] = {
  {"table_weight", "table.weight", 0, 2, constant0_shape, 0},
};
const sealift_weight_spec weights[] = {
  {0, 0, 0, 216, 0},
};
const sealift_kernel_spec kernels[] = {
  {0, "k0_embedding", "aten.embedding.default", "model.py:30 table"},
  {1, "k1_cat_to_amax_sub_and_more", "aten.cat.default, aten.to.dtype, aten.amax.default, aten.sub.Tensor, aten.exp.default, aten.sum.dim_IntList, aten.div.Tensor", "model.py:31; model.py:32"},
  {2, "k2_gt_sum", "aten.gt.Scalar, aten.sum.dim_IntList", "model.py:33"},
  {3, "k3_argmax", "aten.argmax.default", "model.py:34"},
  {4, "k4_to_add", "aten.to.dtype, aten.add.Tensor", "model.py:34"},
  {5, "k5_to_mul", "aten.to.dtype, aten.t.default, aten.mul.Tensor", "model.py:35"},
};

void compute_sizes(int64_t *sizes) {
  const int64_t n = sizes[0];
  (void)n;
  sizes[1] = 3;
  sizes[2] = 9;
  sizes[3] = 6;
  sizes[4] = n * 64 + ((n * 24 + 63) / 64) * 64 + ((n * 8 + 63) / 64) * 128;
  sizes[5] = (128 + 63) / 64 * 64;
}

const sealift_model_api api = {
  SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_model_api),
  "mixed", "sealift, g++",
  2, 4, 1, 6, 1, 1, 0, 6,  // inputs, outputs, symbols, sizes, constants, weights, states, kernels
  inputs, outputs, symbols, constants, weights, nullptr, kernels,
  "",
  "",
  216u, 4, 5, 7u,
  compute_sizes,
  {sealift_baseline::run_mixed, sealift_avx2::run_mixed, sealift_avx512::run_mixed, nullptr},
  nullptr,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : nullptr;
}
