// The f32 convolutions against their definition: kernels, strides, paddings, dilations, groups, layouts, activations, NaN and infinity, worker counts.
#include "../conv/conv.h"
#include "../conv/conv_naive.h"
#include <initializer_list>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

enum Order { kChannelsLast, kChannelsFirst, kPadded }; // how a tensor lies; kPadded: channels last with gaps

struct Case {
  int64_t batch = 1, in_h = 1, in_w = 1, in_c = 1, out_c = 1, kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  bool transposed = false, depthwise = false;
  int64_t more_h = 0, more_w = 0; // added to out: padding at the bottom and right only, or a transposed convolution's output padding
  int64_t in_d = 1, kernel_d = 1, stride_d = 1, pad_d = 0, dilation_d = 1, more_d = 0;
  Order x_order = kChannelsLast, out_order = kChannelsLast, residual_order = kChannelsLast;
  int32_t activation = 0, post_activation = 0;
  bool bias = false, residual = false, epilogue = false, hostile = false;
};

struct Sizes {
  int64_t d, h, w;
};

int64_t out_along(const Case &t, int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t more) {
  const int64_t reach = dilation * (kernel - 1);
  int64_t size = t.transposed ? (in - 1) * stride - 2 * pad + reach + 1 : in + 2 * pad < reach + 1 ? 0 : (in + 2 * pad - reach - 1) / stride + 1;
  size += more;
  return size < 0 ? 0 : size;
}

Sizes out_size(const Case &t) {
  return {out_along(t, t.in_d, t.kernel_d, t.stride_d, t.pad_d, t.dilation_d, t.more_d), out_along(t, t.in_h, t.kernel_h, t.stride_h, t.pad_h, t.dilation_h, t.more_h),
          out_along(t, t.in_w, t.kernel_w, t.stride_w, t.pad_w, t.dilation_w, t.more_w)};
}

// Fills the strides and returns how many elements lie between the first and the end.
int64_t lay_out(Order order, int64_t n, int64_t d, int64_t h, int64_t w, int64_t c, int64_t *strides, int64_t *stride_d) {
  if (order == kChannelsFirst) {
    strides[3] = d * h * w, strides[2] = 1, strides[1] = w, *stride_d = h * w, strides[0] = c * d * h * w;
  } else {
    const int64_t gap = order == kPadded ? 3 : 0;
    strides[3] = 1, strides[2] = c + gap, strides[1] = w * strides[2] + 2 * gap, *stride_d = h * strides[1] + gap, strides[0] = d * *stride_d + gap;
  }
  return n * strides[0];
}

int64_t g_epilogue_elements; // single-threaded uses only

void count_and_negate(void *ctx, float *c, int64_t ldc, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if (ctx) g_epilogue_elements += (m1 - m0) * (n1 - n0);
  for (int64_t i = m0; i < m1; i++)
    for (int64_t j = n0; j < n1; j++) c[(i - m0) * ldc + (j - n0)] = -c[(i - m0) * ldc + (j - n0)];
}

// A host that runs the shares of many workers one after the other.
struct SerialHost {
  sealift_frame frame;
  sealift_host host;
  Guarded<char> scratch;
  SerialHost(int32_t workers, int64_t scratch_bytes) : scratch((scratch_bytes + 63) / 64 * 64 * workers) {
    memset(&frame, 0, sizeof frame);
    memset(&host, 0, sizeof host);
    host.parallel_for = parallel_for;
    frame.host = &host;
    frame.num_workers = workers;
    frame.scratch = scratch.data;
    frame.scratch_stride_bytes = (scratch_bytes + 63) / 64 * 64;
  }
  static void parallel_for(sealift_frame *frame, int64_t count, int64_t, sealift_task_fn fn, void *arg) {
    for (int64_t w = frame->num_workers; w-- > 0;)
      if (count * w / frame->num_workers < count * (w + 1) / frame->num_workers)
        fn(arg, count * w / frame->num_workers, count * (w + 1) / frame->num_workers, static_cast<int32_t>(w));
  }
};

void run(sealift_frame *frame, const ConvTransposeF32 &c, bool transposed) {
  if (transposed) conv_transpose_f32(frame, c);
  else conv_f32(frame, c);
}

void run_case(const Case &t, Random &random) {
  ConvTransposeF32 c;
  const Sizes sizes = out_size(t);
  c.batch = t.batch, c.in_h = t.in_h, c.in_w = t.in_w, c.in_c = t.in_c, c.out_h = sizes.h, c.out_w = sizes.w, c.out_c = t.out_c;
  c.in_d = t.in_d, c.out_d = sizes.d, c.kernel_d = t.kernel_d, c.stride_d = t.stride_d, c.pad_d = t.pad_d, c.dilation_d = t.dilation_d;
  c.kernel_h = t.kernel_h, c.kernel_w = t.kernel_w, c.stride_h = t.stride_h, c.stride_w = t.stride_w, c.pad_h = t.pad_h, c.pad_w = t.pad_w;
  c.dilation_h = t.dilation_h, c.dilation_w = t.dilation_w, c.groups = t.groups;
  c.w_layout = t.depthwise ? kConvDepthwise : kConvPanel32;
  c.activation = t.activation, c.post_activation = t.post_activation;
  const int64_t each_in = t.in_c / t.groups, each_out = t.out_c / t.groups, taps = t.kernel_d * t.kernel_h * t.kernel_w;
  const int64_t w_size = t.depthwise ? taps * t.out_c : t.groups * ((each_out + 31) / 32) * 32 * taps * each_in;
  Guarded<float> x(lay_out(t.x_order, t.batch, t.in_d, t.in_h, t.in_w, t.in_c, c.x_strides, &c.x_stride_d)), w(w_size), bias(t.out_c);
  Guarded<float> residual(lay_out(t.residual_order, t.batch, c.out_d, c.out_h, c.out_w, t.out_c, c.residual_strides, &c.residual_stride_d));
  Guarded<float> out(lay_out(t.out_order, t.batch, c.out_d, c.out_h, c.out_w, t.out_c, c.out_strides, &c.out_stride_d)), first(out.size());
  random.fill(x, 1.0f), random.fill(w, 1.0f), random.fill(bias, 1.0f), random.fill(residual, 1.0f);
  if (!t.depthwise)
    for (int64_t i = 0; i < w.size(); i++)
      if (i / (32 * taps * each_in) % ((each_out + 31) / 32) * 32 + i % 32 >= each_out) w[i] = 0.0f;
  if (t.hostile) {
    const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f};
    for (int i = 0; i < 6; i++) {
      if (x.size()) x[random.below(x.size())] = values[i % 5];
      if (residual.size()) residual[random.below(residual.size())] = values[i % 5];
      if (bias.size()) bias[random.below(bias.size())] = values[(i + 1) % 5];
    }
  }
  c.x = x.data, c.w = w.data, c.out = out.data;
  c.bias = t.bias ? bias.data : nullptr;
  c.residual = t.residual ? residual.data : nullptr;
  c.epilogue = t.epilogue ? count_and_negate : nullptr;
  c.epilogue_ctx = &g_epilogue_elements;

  char name[400];
  snprintf(name, sizeof name, "%s%s n=%ld in=%ldx%ldx%ld out=%ldx%ldx%ld k=%ldx%ld s=%ldx%ld p=%ldx%ld d=%ldx%ld g=%ld orders=%d%d%d act=%d post=%d bias=%d res=%d epi=%d hostile=%d depth=%ld k=%ld s=%ld p=%ld d=%ld",
           t.transposed ? "conv_transpose" : "conv", t.depthwise ? " depthwise" : "", (long)t.batch, (long)t.in_h, (long)t.in_w, (long)t.in_c, (long)c.out_h, (long)c.out_w,
           (long)t.out_c, (long)t.kernel_h, (long)t.kernel_w, (long)t.stride_h, (long)t.stride_w, (long)t.pad_h, (long)t.pad_w, (long)t.dilation_h, (long)t.dilation_w,
           (long)t.groups, t.x_order, t.out_order, t.residual_order, t.activation, t.post_activation, t.bias, t.residual, t.epilogue, t.hostile, (long)t.in_d, (long)t.kernel_d,
           (long)t.stride_d, (long)t.pad_d, (long)t.dilation_d);

  // The residual lies in out.
  const bool is_product = t.kernel_d * t.kernel_h * t.kernel_w == 1 && t.pad_d == 0 && t.pad_h == 0 && t.pad_w == 0 && t.more_d == 0 && t.more_h == 0 && t.more_w == 0 && t.groups == 1 && !t.depthwise && !t.transposed;
  const bool in_place = t.residual && is_product && t.in_c <= kGemmInPlaceDepth && t.activation == kActivationNone && t.post_activation <= kActivationRelu &&
                        t.residual_order == t.out_order && random.below(2) == 0;
  if (in_place) c.residual = out.data;
  const int64_t scratch_bytes = t.transposed ? conv_transpose_f32_scratch_bytes(c) : conv_f32_scratch_bytes(c);
  for (int32_t workers : {1, 2, 3, 4}) {
    for (int64_t i = 0; i < out.size(); i++) out[i] = 777.0f;
    for (int64_t n = 0; in_place && n < t.batch; n++)
      for (int64_t line = 0; line < c.out_d * c.out_h; line++)
        for (int64_t ow = 0; ow < c.out_w; ow++)
          for (int64_t oc = 0; oc < t.out_c; oc++) {
            const int64_t at = n * c.out_strides[0] + line / c.out_h * c.out_stride_d + line % c.out_h * c.out_strides[1] + ow * c.out_strides[2] + oc * c.out_strides[3];
            out[at] = residual[at];
          }
    SerialHost host(workers, scratch_bytes);
    g_epilogue_elements = 0;
    run(&host.frame, c, t.transposed);
    if (t.epilogue) expect_true(g_epilogue_elements == t.batch * c.out_d * c.out_h * c.out_w * t.out_c, name);
    if (workers == 1) memcpy(first.data, out.data, static_cast<size_t>(out.size()) * sizeof(float));
    else expect_true(memcmp(first.data, out.data, static_cast<size_t>(out.size()) * sizeof(float)) == 0, name);
  }
  c.residual = t.residual ? residual.data : nullptr; // as the definition has it
  int64_t gaps = out.size();
  for (int64_t i = 0; i < out.size(); i++) gaps -= first[i] != 777.0f;
  expect_true(gaps == out.size() - t.batch * c.out_d * c.out_h * c.out_w * t.out_c, name);
  for (int64_t n = 0; n < t.batch; n++)
    for (int64_t line = 0; line < c.out_d * c.out_h; line++)
      for (int64_t ow = 0; ow < c.out_w; ow++)
        for (int64_t oc = 0; oc < t.out_c; oc++) {
          const int64_t d = line / c.out_h, h = line % c.out_h;
          double magnitude;
          double want = naive::conv_element(c, t.transposed, n, d, h, ow, oc, &magnitude);
          if (t.epilogue) want = -want;
          if (t.hostile && fabs(want) > 1e37) continue; // a finite sum may overflow on the way in float
          const double got = out[n * c.out_strides[0] + d * c.out_stride_d + h * c.out_strides[1] + ow * c.out_strides[2] + oc * c.out_strides[3]];
          const double terms = static_cast<double>(taps * each_in) + 8;
          expect_close(got, want, terms * 6e-8 * (magnitude + 1e-30) + 4e-7 * fabs(want), name, h * c.out_w + ow, oc);
        }
}

void random_cases(int count, bool transposed, bool depthwise, Random &random, bool deep = false) {
  const int64_t channels[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40, 48, 64, 70};
  const int64_t kernels[] = {1, 1, 2, 3, 3, 3, 4, 5, 7};
  for (int i = 0; i < count; i++) {
    Case t;
    t.transposed = transposed, t.depthwise = depthwise;
    t.batch = 1 + random.below(3) / 2 * (1 + random.below(2));
    t.in_h = random.below(5) == 0 ? 1 : 1 + random.below(12), t.in_w = 1 + random.below(random.below(3) == 0 ? 40 : 12);
    t.kernel_h = t.in_h == 1 && random.below(2) ? 1 : kernels[random.below(9)];
    t.kernel_w = random.below(3) ? t.kernel_h : kernels[random.below(9)];
    t.stride_h = 1 + random.below(3) * random.below(2), t.stride_w = random.below(3) ? t.stride_h : 1 + random.below(3);
    t.dilation_h = random.below(3) ? 1 : 1 + random.below(3), t.dilation_w = random.below(3) ? t.dilation_h : 1 + random.below(3);
    t.pad_h = random.below(t.kernel_h * t.dilation_h), t.pad_w = random.below(2) ? t.dilation_w * (t.kernel_w - 1) / 2 : random.below(t.kernel_w * t.dilation_w);
    if (random.below(4) == 0) t.more_h = random.below(transposed ? t.stride_h : 3), t.more_w = random.below(transposed ? t.stride_w : 3);
    if (deep) {
      t.in_h = 1 + random.below(7), t.in_w = 1 + random.below(9), t.in_d = 1 + random.below(6), t.kernel_d = 1 + random.below(4);
      t.stride_d = 1 + random.below(3) / 2, t.dilation_d = 1 + random.below(3) / 2, t.pad_d = random.below(t.kernel_d * t.dilation_d);
      if (random.below(4) == 0) t.more_d = random.below(transposed ? t.stride_d : 3);
      if (random.below(5) == 0) { // a product of matrices, if slices follow each other
        t.kernel_d = t.kernel_h = t.kernel_w = t.stride_d = t.stride_h = t.stride_w = 1;
        t.pad_d = t.pad_h = t.pad_w = t.more_d = t.more_h = t.more_w = 0;
      }
    }
    if (depthwise) {
      t.in_c = t.groups = channels[random.below(18)];
      t.out_c = t.in_c * (random.below(4) ? 1 : 1 + random.below(3));
    } else {
      t.groups = random.below(3) ? 1 : 1 + random.below(4);
      t.in_c = t.groups * channels[random.below(t.groups > 1 ? 12 : 18)];
      t.out_c = t.groups * channels[random.below(t.groups > 1 ? 15 : 18)];
    }
    t.x_order = static_cast<Order>(random.below(2) ? 0 : random.below(3));
    t.residual_order = static_cast<Order>(random.below(2) ? 0 : random.below(3));
    t.out_order = static_cast<Order>(random.below(2) ? 0 : random.below(3));
    t.activation = random.below(2) ? static_cast<int32_t>(random.below(kActivations)) : 0;
    t.post_activation = random.below(4) ? 0 : static_cast<int32_t>(random.below(kActivations));
    t.bias = random.below(3) != 0, t.residual = random.below(3) == 0, t.hostile = random.below(6) == 0;
    t.epilogue = t.out_order != kChannelsFirst && random.below(4) == 0;
    run_case(t, random);
  }
}

Case square(int64_t in_c, int64_t size, int64_t out_c, int64_t kernel, int64_t stride) {
  Case t;
  t.in_h = t.in_w = size, t.in_c = in_c, t.out_c = out_c, t.kernel_h = t.kernel_w = kernel, t.stride_h = t.stride_w = stride;
  t.pad_h = t.pad_w = kernel / 2;
  t.bias = true, t.activation = kActivationRelu;
  return t;
}

void run_threads(const Case &t) {
  Random random(7);
  ConvTransposeF32 c;
  const Sizes sizes = out_size(t);
  c.batch = t.batch, c.in_h = t.in_h, c.in_w = t.in_w, c.in_c = t.in_c, c.out_h = sizes.h, c.out_w = sizes.w, c.out_c = t.out_c;
  c.in_d = t.in_d, c.out_d = sizes.d, c.kernel_d = t.kernel_d, c.stride_d = t.stride_d, c.pad_d = t.pad_d, c.dilation_d = t.dilation_d;
  c.kernel_h = t.kernel_h, c.kernel_w = t.kernel_w, c.stride_h = t.stride_h, c.stride_w = t.stride_w, c.pad_h = t.pad_h, c.pad_w = t.pad_w;
  c.groups = t.groups, c.w_layout = t.depthwise ? kConvDepthwise : kConvPanel32, c.activation = kActivationRelu;
  Guarded<float> x(lay_out(kChannelsLast, c.batch, c.in_d, c.in_h, c.in_w, c.in_c, c.x_strides, &c.x_stride_d)), w((c.out_c + 31) / 32 * 32 * c.kernel_d * c.kernel_h * c.kernel_w * c.in_c);
  const int64_t size = lay_out(kChannelsLast, c.batch, c.out_d, c.out_h, c.out_w, c.out_c, c.out_strides, &c.out_stride_d);
  Guarded<float> one(size), more(size);
  random.fill(x, 1.0f), random.fill(w, 1.0f);
  c.x = x.data, c.w = w.data;
  for (int32_t workers : {1, 2, 4}) {
    TestHost host(workers, t.transposed ? conv_transpose_f32_scratch_bytes(c) : conv_f32_scratch_bytes(c));
    c.out = workers == 1 ? one.data : more.data;
    for (int round = 0; round < 10; round++) run(&host.frame, c, t.transposed);
    if (workers > 1) expect_true(memcmp(one.data, more.data, static_cast<size_t>(size) * sizeof(float)) == 0, "threads: bitwise equal");
  }
}

} // namespace

int main() {
  Random random(1);
  random_cases(1500, false, false, random);
  random_cases(700, true, false, random);
  random_cases(1000, false, true, random);
  random_cases(500, false, false, random, true);
  random_cases(300, true, false, random, true);
  for (int64_t zero = 0; zero < 5; zero++) // nothing of something
    for (int kind = 0; kind < 3; kind++) {
      Case t = square(8, 5, 8, 3, 1);
      t.transposed = kind == 1, t.depthwise = kind == 2;
      if (t.depthwise) t.groups = 8;
      if (zero == 0) t.batch = 0;
      if (zero == 1 && kind != 2) t.in_c = 0;
      if (zero == 2 && kind != 2) t.out_c = 0;
      if (zero == 3) t.in_h = 0, t.more_h = 1;
      if (zero == 4) t.in_w = 0, t.more_w = 1;
      run_case(t, random);
    }
  for (int32_t activation = 0; activation < kActivations; activation++)
    for (int32_t post = 0; post < kActivations; post++)
      for (int kind = 0; kind < 3; kind++) {
        Case t = square(16, 6, 45, 3, 1);
        t.transposed = kind == 1, t.depthwise = kind == 2;
        if (t.depthwise) t.in_c = t.groups = 45;
        t.activation = activation, t.post_activation = post, t.residual = true;
        run_case(t, random);
      }
  // Several blocks of taps and of channels, several bands and panels.
  for (int64_t stride = 1; stride <= 2; stride++) {
    for (bool transposed : {false, true}) {
      for (int64_t in_c : {100, 256, 600}) {
        Case t = square(in_c, 9, 70, 3, stride);
        t.transposed = transposed, t.residual = true, t.epilogue = true;
        run_case(t, random);
        t.x_order = kChannelsFirst, t.out_order = kChannelsFirst, t.epilogue = false, t.activation = kActivationSilu;
        run_case(t, random);
      }
      Case wide = square(24, 60, 33, 5, stride);
      wide.transposed = transposed, wide.x_order = kChannelsFirst;
      run_case(wide, random);
    }
    for (Order order : {kChannelsLast, kChannelsFirst, kPadded}) {
      Case t = square(3, 61, 40, 7, stride);
      t.x_order = order;
      run_case(t, random);
      t.kernel_h = t.kernel_w = 15, t.pad_h = t.pad_w = 7; // more taps than a block holds
      run_case(t, random);
      for (int64_t kernel : {3, 5, 7}) { // tiles of whole panels, with a bias and without
        t = square(3, 23, 64, kernel, stride);
        t.x_order = order, t.batch = 2, t.bias = kernel != 5, t.residual = kernel == 3;
        run_case(t, random);
        t.dilation_h = t.dilation_w = 2, t.more_w = 1;
        run_case(t, random);
      }
    }
    for (int64_t in_c : {16, 24, 25, 32}) // few channels, which have their own tiles; panels of which the last is half
      for (int64_t out_c : {48, 144, 152, 160, 240}) {
        Case t = square(in_c, 17, out_c, 1, stride);
        t.bias = out_c != 160, t.residual = out_c == 144, t.batch = 2;
        run_case(t, random);
        t.x_order = t.out_order = t.residual_order = kPadded;
        run_case(t, random);
      }
    Case t = square(130, 30, 130, 3, stride);
    t.depthwise = true, t.groups = 130, t.residual = true;
    run_case(t, random);
    t = square(4, 50, 4, 15, stride);
    run_case(t, random);
    t = square(1, 1, 64, 1, stride); // 1-d
    t.in_w = 3000, t.in_c = 20, t.kernel_w = 9, t.pad_w = 4;
    run_case(t, random);
    t = square(48, 16, 32, 16, 16); // patches
    t.in_h = 48, t.in_w = 64, t.pad_h = t.pad_w = 0;
    run_case(t, random);
  }
  run_threads(square(64, 28, 64, 3, 1));
  run_threads(square(256, 7, 256, 3, 1));
  run_threads(square(3, 64, 32, 7, 2));
  run_threads(square(128, 28, 64, 1, 1));
  Case t = square(96, 28, 96, 3, 1);
  t.groups = 96, t.depthwise = true;
  run_threads(t);
  t = square(64, 20, 64, 4, 2);
  t.transposed = true;
  run_threads(t);
  t = square(32, 12, 40, 3, 1);
  t.in_d = 9, t.kernel_d = 3, t.pad_d = 1;
  run_threads(t);
  return finish_tests("conv");
}
