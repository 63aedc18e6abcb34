// The convolution kernels behind a C interface, for conv_table.py; with -DBENCH_ONEDNN the same interface over oneDNN's primitive.
#include <stdint.h>
#include <time.h>

namespace {

struct Shape { // as conv_table.py's ctypes structure
  int64_t in_c, in_h, in_w, out_c, out_h, out_w, kernel, stride, pad, groups;
};

// One thread: its CPU time, so that other load on the machine does not count. Several: the wall clock.
double now(int32_t threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

} // namespace

#ifdef BENCH_ONEDNN
#include <dnnl.hpp>

#include <unordered_map>

namespace {
struct Bench {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::convolution_forward conv;
  dnnl::memory weights;
  std::unordered_map<int, dnnl::memory> args;
  int32_t threads;
};
} // namespace

extern "C" {

// x [h, w, c], w [out_c, in_c / groups, k, k], out [h, w, c]; relu fused.
void *bench_new(const Shape *s, int32_t threads, const float *x, const float *w, const float *bias, float *out) {
  using namespace dnnl;
  auto *b = new Bench;
  b->threads = threads;
  const auto f32 = memory::data_type::f32;
  using tag = memory::format_tag;
  const memory::dims src{1, s->in_c, s->in_h, s->in_w}, dst{1, s->out_c, s->out_h, s->out_w};
  const memory::dims wd = s->groups == 1 ? memory::dims{s->out_c, s->in_c, s->kernel, s->kernel} : memory::dims{s->groups, s->out_c / s->groups, s->in_c / s->groups, s->kernel, s->kernel};
  const memory::desc src_md(src, f32, tag::nhwc), dst_md(dst, f32, tag::nhwc), w_md(wd, f32, tag::any), bias_md({s->out_c}, f32, tag::x);
  const memory::desc w_plain(wd, f32, s->groups == 1 ? tag::oihw : tag::goihw);
  post_ops ops;
  ops.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
  primitive_attr attr;
  attr.set_post_ops(ops);
  const memory::dims after{(s->out_h - 1) * s->stride + s->kernel - s->in_h - s->pad, (s->out_w - 1) * s->stride + s->kernel - s->in_w - s->pad};
  const convolution_forward::primitive_desc pd(b->engine, prop_kind::forward_inference, algorithm::convolution_direct, src_md, w_md, bias_md, dst_md, {s->stride, s->stride},
                                               {s->pad, s->pad}, after, attr);
  memory plain(w_plain, b->engine, const_cast<float *>(w));
  b->weights = memory(pd.weights_desc(), b->engine);
  reorder(plain, b->weights).execute(b->stream, plain, b->weights);
  b->conv = convolution_forward(pd);
  b->args = {{DNNL_ARG_SRC, memory(pd.src_desc(), b->engine, const_cast<float *>(x))}, {DNNL_ARG_WEIGHTS, b->weights},
             {DNNL_ARG_BIAS, memory(bias_md, b->engine, const_cast<float *>(bias))}, {DNNL_ARG_DST, memory(pd.dst_desc(), b->engine, out)}};
  b->stream.wait();
  return b;
}

double bench_run(void *bench, int32_t repeats) {
  auto *b = static_cast<Bench *>(bench);
  const double t0 = now(b->threads);
  for (int32_t r = 0; r < repeats; r++) b->conv.execute(b->stream, b->args);
  b->stream.wait();
  return now(b->threads) - t0;
}

void bench_free(void *bench) { delete static_cast<Bench *>(bench); }

} // extern "C"

#else
#include "../kernels/conv/conv.h"
#include "../kernels/tests/test_host.h"

using namespace SEALIFT_NS;

namespace {
struct Bench {
  TestHost host;
  ConvF32 conv;
  float *packed;
};

float *pack(const Shape &s, bool depthwise, const float *w) {
  const int64_t taps = s.kernel * s.kernel, in = s.in_c / s.groups, each = s.out_c / s.groups, panels = (each + 31) / 32;
  float *to = static_cast<float *>(aligned_alloc(64, static_cast<size_t>((depthwise ? (taps * s.out_c + 15) / 16 * 16 : s.groups * panels * taps * in * 32) * 4)));
  if (depthwise) {
    for (int64_t t = 0; t < taps; t++)
      for (int64_t c = 0; c < s.out_c; c++) to[t * s.out_c + c] = w[c * taps + t];
    return to;
  }
  float *at = to;
  for (int64_t g = 0; g < s.groups; g++)
    for (int64_t p = 0; p < panels; p++)
      for (int64_t t = 0; t < taps; t++)
        for (int64_t i = 0; i < in; i++)
          for (int64_t j = p * 32; j < p * 32 + 32; j++) *at++ = j < each ? w[((g * each + j) * in + i) * taps + t] : 0.0f;
  return to;
}
} // namespace

extern "C" {

void *bench_new(const Shape *s, int32_t threads, const float *x, const float *w, const float *bias, float *out) {
  ConvF32 c;
  c.in_c = s->in_c, c.in_h = s->in_h, c.in_w = s->in_w, c.out_c = s->out_c, c.out_h = s->out_h, c.out_w = s->out_w;
  c.kernel_h = c.kernel_w = s->kernel, c.stride_h = c.stride_w = s->stride, c.pad_h = c.pad_w = s->pad, c.groups = s->groups;
  c.x_strides[2] = s->in_c, c.x_strides[1] = s->in_w * s->in_c, c.x_strides[0] = s->in_h * c.x_strides[1];
  c.out_strides[2] = s->out_c, c.out_strides[1] = s->out_w * s->out_c, c.out_strides[0] = s->out_h * c.out_strides[1];
  const bool depthwise = s->groups > 1 && s->groups == s->in_c;
  c.w_layout = depthwise ? kConvDepthwise : kConvPanel32;
  c.activation = kActivationRelu;
  float *packed = pack(*s, depthwise, w);
  c.x = x, c.w = packed, c.bias = bias, c.out = out;
  return new Bench{{threads, conv_f32_scratch_bytes(c)}, c, packed};
}

double bench_run(void *bench, int32_t repeats) {
  auto *b = static_cast<Bench *>(bench);
  const int32_t threads = b->host.frame.num_workers;
  const double t0 = now(threads);
  for (int32_t r = 0; r < repeats; r++) conv_f32(&b->host.frame, b->conv);
  return now(threads) - t0;
}

void bench_free(void *bench) {
  auto *b = static_cast<Bench *>(bench);
  free(b->packed);
  delete b;
}

} // extern "C"
#endif
