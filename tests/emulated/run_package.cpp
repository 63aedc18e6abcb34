// Runs a package on the cases of a file and compares: what models.py has the guest do. The best instruction set must be the one named.
//
//   run_package MODEL.pt2 CASES ISA
//
// CASES, little-endian: int64 cases; each: int64 inputs, the tensors, int64 outputs, for each the tensor in float64 and the float64 error allowed.
// A tensor: int64 DLPack code, int64 bits, int64 rank, the shape, the bytes.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sealift.hpp>

namespace {

struct Reader {
  std::vector<char> bytes;
  std::size_t at = 0;

  explicit Reader(const char *path) {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }
};

struct Array {
  DLDataType dtype;
  std::vector<std::int64_t> shape;
  std::vector<char> data;

  explicit Array(Reader &from) {
    dtype.code = static_cast<std::uint8_t>(from.next<std::int64_t>());
    dtype.bits = static_cast<std::uint8_t>(from.next<std::int64_t>());
    dtype.lanes = 1;
    shape.resize(static_cast<std::size_t>(from.next<std::int64_t>()));
    std::int64_t count = 1;
    for (std::int64_t &size : shape) count *= size = from.next<std::int64_t>();
    data.resize(static_cast<std::size_t>(count * dtype.bits / 8));
    std::memcpy(data.data(), from.bytes.data() + from.at, data.size());
    from.at += data.size();
  }
};

double element(const char *data, DLDataType dtype, std::int64_t i) {
  const char *at = data + i * dtype.bits / 8;
  const auto as = [&](auto zero) {
    std::memcpy(&zero, at, sizeof zero);
    return static_cast<double>(zero);
  };
  if (dtype.code == kDLFloat && dtype.bits == 32) return as(0.0f);
  if (dtype.code == kDLFloat && dtype.bits == 64) return as(0.0);
  if (dtype.code == kDLInt && dtype.bits == 64) return as(std::int64_t{0});
  if (dtype.code == kDLInt && dtype.bits == 32) return as(std::int32_t{0});
  if (dtype.code == kDLBool) return as(std::uint8_t{0});
  if (dtype.code == kDLBfloat) {
    std::uint16_t half;
    std::memcpy(&half, at, 2);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  std::printf("FAIL an output has dtype %d of %d bits\n", dtype.code, dtype.bits);
  return NAN;
}

std::vector<char> packed(const sealift::Tensor &t) { // row-major, whatever its strides
  const std::size_t bytes = t.dtype().bits / 8;
  std::vector<char> result(static_cast<std::size_t>(t.size()) * bytes);
  for (std::int64_t i = 0; i < t.size(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int d = static_cast<int>(t.shape().size()) - 1; d >= 0; --d) {
      offset += rest % t.shape()[static_cast<std::size_t>(d)] * t.strides()[static_cast<std::size_t>(d)];
      rest /= t.shape()[static_cast<std::size_t>(d)];
    }
    std::memcpy(result.data() + static_cast<std::size_t>(i) * bytes, static_cast<const char *>(t.data()) + static_cast<std::size_t>(offset) * bytes, bytes);
  }
  return result;
}

int run(const char *package, const char *cases, const char *isa) {
  sealift::OpenOptions alone, several;
  alone.num_threads = 1, several.num_threads = 3;
  const sealift::Model model(package, alone), threaded(package, several);
  if (model.isa() != isa) {
    std::printf("FAIL the runtime chose %s, not %s\n", std::string(model.isa()).c_str(), isa);
    return 1;
  }
  Reader from(cases);
  int failures = 0;
  const std::int64_t count = from.next<std::int64_t>();
  for (std::int64_t c = 0; c < count; ++c) {
    std::vector<Array> inputs;
    for (std::int64_t left = from.next<std::int64_t>(); left > 0; --left) inputs.emplace_back(from);
    std::vector<sealift::TensorView> views;
    for (Array &input : inputs) views.emplace_back(input.data.data(), input.dtype, input.shape);
    const std::vector<sealift::Tensor> got = sealift::Context(model).run(views), more = sealift::Context(threaded).run(views);
    const std::int64_t outputs = from.next<std::int64_t>();
    for (std::int64_t o = 0; o < outputs; ++o) {
      const Array want(from);
      const double allowed = from.next<double>();
      const sealift::Tensor &tensor = got[static_cast<std::size_t>(o)];
      const std::vector<char> values = packed(tensor);
      if (values != packed(more[static_cast<std::size_t>(o)])) std::printf("FAIL case %ld output %ld: three threads, other bits\n", (long)c, (long)o), ++failures;
      if (tensor.size() * 8 != static_cast<std::int64_t>(want.data.size())) {
        std::printf("FAIL case %ld output %ld: %ld elements\n", (long)c, (long)o, (long)tensor.size()), ++failures;
        continue;
      }
      double worst = 0;
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const double value = element(values.data(), tensor.dtype(), i), wanted = element(want.data.data(), want.dtype, i);
        if (value == wanted || (std::isnan(value) && std::isnan(wanted))) continue;
        const double error = std::fabs(value - wanted);
        if (!(error <= worst)) worst = error;
        if (!(error <= allowed) && ++wrong <= 3) std::printf("FAIL case %ld output %ld element %ld: %.9g, not %.9g\n", (long)c, (long)o, (long)i, value, wanted);
      }
      failures += wrong != 0;
      std::printf("case %ld output %ld: %ld elements, largest error %.3g of %.3g\n", (long)c, (long)o, (long)tensor.size(), worst, allowed);
    }
  }
  std::printf("%s on %s: %ld cases, %d failures\n", package, isa, (long)count, failures);
  return failures != 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  try {
    return run(argv[1], argv[2], argv[3]);
  } catch (const sealift::Error &error) {
    std::printf("FAIL %s\n", error.what());
    return 1;
  }
}
