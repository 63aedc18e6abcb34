// f32 convolution over images that lie channels last (NHWC), with a fused epilogue: the interface that generated code includes.
//
//   out[n, h, w, c] = post_activation(activation(conv(x, w)[n, h, w, c] + bias[c]) + residual[n, h, w, c]), then the generated epilogue
//
// Positions outside x count as zero and are skipped, not multiplied. A 1-d convolution has height 1, a 2-d one depth 1. A 3-d convolution is a 2-d one for
// every slice of its kernel that meets x, summed in out. Results are bitwise the same for any number of
// workers: the order in which an element's products are added depends on the shapes, the strides of x, the element's position and the ISA only.
#ifndef SEALIFT_KERNELS_CONV_CONV_H
#define SEALIFT_KERNELS_CONV_CONV_H

#include <stdint.h>

#include "../gemm/gemm.h"
#include "../simd/isa.h"

namespace SEALIFT_NS {

enum ConvLayout : int32_t {
  // Group by group, ceil((out_c / groups) / 32) panels of [kernel_d * kernel_h * kernel_w * in_c / groups][32], rows in the order (kd, kh, kw, input
  // channel), columns past out_c / groups zero. With a 1x1 kernel and one group it is the GEMM's kBPanel32.
  kConvPanel32 = 0,
  kConvDepthwise = 1 // [kernel_h * kernel_w][out_c]; in_c == groups, and output channel c reads input channel c / (out_c / groups); depths are 1
};

// Strides are in elements, in the order n, h, w, c. The fast paths want a c stride of 1 everywhere; any other is read and written correctly.
// out must not overlap x, w, bias or residual: partial sums live in it between blocks of input channels. But a 1x1 convolution's residual may be out
// itself, as gemm.h says, where no position lies outside x.
struct ConvF32 {
  const float *x = nullptr;
  int64_t x_strides[4] = {0, 0, 0, 1};
  const float *w = nullptr;
  int32_t w_layout = kConvPanel32;
  int32_t activation = kActivationNone;
  int32_t post_activation = kActivationNone; // after the residual
  const float *bias = nullptr;               // [out_c], not padded; may be null
  const float *residual = nullptr;           // may be null
  int64_t residual_strides[4] = {0, 0, 0, 1};
  float *out = nullptr;
  int64_t out_strides[4] = {0, 0, 0, 1};
  int64_t batch = 1, in_h = 1, in_w = 1, in_c = 0, out_h = 1, out_w = 1, out_c = 0;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1; // pad: top and left
  int64_t groups = 1;
  int64_t in_d = 1, out_d = 1, kernel_d = 1, stride_d = 1, pad_d = 0, dilation_d = 1;
  int64_t x_stride_d = 0, out_stride_d = 0, residual_stride_d = 0; // between slices of an image
  GemmEpilogue epilogue = nullptr; // rows are output positions, ((n * out_d + d) * out_h + h) * out_w + w; ldc is the w stride; needs an out c stride of 1
  void *epilogue_ctx = nullptr;
};

// The gradient of a convolution by its input, as torch's ConvTranspose: position (h, w) of x adds to (h * stride - pad + kh * dilation, ...) of out.
// w is kConvPanel32: the constant is [in_c, out_c / groups, kh, kw], its group g holding input channels [g * in_c / groups, ...).
struct ConvTransposeF32 : ConvF32 {};

// ---- scratch: a worker's copy of some rows of x, in the order the kernels want, with the zeros around them --------------------------------------------

constexpr int64_t kConvBandBytes = 96 << 10;
constexpr int64_t kConvFewChannels = 16;     // a tap of fewer is too short a product to be worth a call at the border
constexpr int64_t kConvWindowFloats = 2048;  // of a copy of a single tile's inputs
constexpr int64_t kConvWindowPositions = 14; // the most a tile has on any ISA

struct ConvBand {
  int64_t out_rows, rows, columns; // a band serves out_rows rows of out; it holds rows x columns x in_c elements
};

static inline bool conv_f32_has_short_taps(const ConvF32 &c, bool transposed) {
  return !transposed && c.w_layout != kConvDepthwise && c.groups == 1 && c.in_c < kConvFewChannels && c.kernel_w * c.kernel_h != 1;
}

// Short taps over pixels that follow each other: only tiles at the border are copied.
static inline bool conv_f32_copies_windows(const ConvF32 &c, bool transposed) {
  if (!conv_f32_has_short_taps(c, transposed)) return false;
  if ((c.in_c > 1 && c.x_strides[3] != 1) || c.x_strides[2] != c.in_c) return false;
  const int64_t columns = (kConvWindowPositions - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w + 1;
  return ((c.kernel_h - 1) * c.dilation_h + 1) * columns * c.in_c <= kConvWindowFloats;
}

static inline bool conv_f32_copies_bands(const ConvF32 &c, bool transposed) {
  if (c.w_layout == kConvDepthwise) return false;
  if (c.in_c > 1 && c.x_strides[3] != 1) return true;
  if (!conv_f32_has_short_taps(c, transposed) || conv_f32_copies_windows(c, transposed)) return false;
  const int64_t bottom = (c.out_h - 1) * c.stride_h + (c.kernel_h - 1) * c.dilation_h - c.pad_h, right = (c.out_w - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w - c.pad_w;
  return c.pad_h > 0 || c.pad_w > 0 || bottom >= c.in_h || right >= c.in_w || c.x_strides[2] != c.in_c;
}

static inline ConvBand conv_f32_band(const ConvF32 &c, bool transposed) {
  ConvBand b;
  const int64_t reach = (c.kernel_h - 1) * c.dilation_h;
  b.columns = transposed ? c.in_w : (c.out_w - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w + 1;
  const int64_t row_bytes = b.columns * c.in_c * 4, fit = row_bytes > 0 ? kConvBandBytes / row_bytes : 1;
  b.out_rows = transposed ? (fit - 1) * c.stride_h - reach : (fit - 1 - reach) / c.stride_h + 1;
  if (b.out_rows < 1) b.out_rows = 1;
  if (b.out_rows > c.out_h) b.out_rows = c.out_h;
  b.rows = transposed ? (b.out_rows - 1 + reach) / c.stride_h + 1 : (b.out_rows - 1) * c.stride_h + reach + 1;
  if (transposed && b.rows > c.in_h) b.rows = c.in_h;
  return b;
}

// Bytes of scratch a worker needs, the same for every ISA: only sizes and x's strides are read.
static inline int64_t conv_f32_scratch_bytes(const ConvF32 &c) {
  if (conv_f32_copies_bands(c, false)) {
    const ConvBand b = conv_f32_band(c, false);
    return b.rows * b.columns * c.in_c * 4 + 64;
  }
  if (c.w_layout == kConvDepthwise || c.kernel_h * c.kernel_w != 1) return 0;
  return gemm_f32_scratch_bytes(c.batch * c.in_d * c.in_h * c.in_w, c.out_c, c.in_c, kBPanel32);
}
static inline int64_t conv_transpose_f32_scratch_bytes(const ConvTransposeF32 &c) {
  if (!conv_f32_copies_bands(c, true)) return 0;
  const ConvBand b = conv_f32_band(c, true);
  return b.rows * b.columns * c.in_c * 4 + 64;
}

// All of it: on the caller's thread where a fork would cost more than it saves, else through frame->host->parallel_for.
void conv_f32(sealift_frame *frame, const ConvF32 &conv);
void conv_transpose_f32(sealift_frame *frame, const ConvTransposeF32 &conv);
void conv_depthwise_f32(sealift_frame *frame, const ConvF32 &conv); // where conv_f32 goes with kConvDepthwise

} // namespace SEALIFT_NS
#endif
