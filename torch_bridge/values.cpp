#include "values.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdio>

namespace sealift::bridge {

namespace {

constexpr size_t MAX_ITEMS = 1000;  // of a list

bool has_plain_sizes(const at::Tensor &tensor) {
  return !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.unsafeGetTensorImpl()->is_nested();
}

class Writer {
 public:
  Writer(char *text, size_t size) : at_(text), end_(text + size - 1) { *at_ = '\0'; }
  void put(const char *part) {
    for (; *part != '\0' && at_ < end_; ++part) *at_++ = *part;
    *at_ = '\0';
  }
  void put(int64_t number) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", static_cast<long long>(number));
    put(digits);
  }

 private:
  char *at_, *end_;
};

void write_shape(const at::Tensor &tensor, Writer &out) {
  if (!tensor.defined() || !has_plain_sizes(tensor)) {
    out.put("-");
    return;
  }
  out.put("[");
  const char *comma = "";
  for (const int64_t size : tensor.sizes()) {
    out.put(comma);
    out.put(size);
    comma = ", ";
  }
  out.put("]");
}

}  // namespace

const char *Values::keep(std::string text) {
  texts_.push_back(std::move(text));
  return texts_.back().c_str();
}

sealift_value Values::tensor(const at::Tensor &tensor) {
  sealift_value out = {};
  if (!tensor.defined()) return out;
  out.kind = SEALIFT_VALUE_TENSOR;
  std::string dtype = c10::toString(tensor.scalar_type());
  switch (tensor.scalar_type()) {  // as Python names them, where C++ says something else
    case at::kFloat: dtype = "float32"; break;
    case at::kDouble: dtype = "float64"; break;
    case at::kHalf: dtype = "float16"; break;
    case at::kByte: dtype = "uint8"; break;
    case at::kChar: dtype = "int8"; break;
    case at::kShort: dtype = "int16"; break;
    case at::kInt: dtype = "int32"; break;
    case at::kLong: dtype = "int64"; break;
    case at::kComplexFloat: dtype = "complex64"; break;
    case at::kComplexDouble: dtype = "complex128"; break;
    default: std::transform(dtype.begin(), dtype.end(), dtype.begin(), [](unsigned char c) { return static_cast<char>(tolower(c)); });
  }
  out.text = keep(std::move(dtype));
  out.device = keep(tensor.device().str());
  if (!has_plain_sizes(tensor)) {
    out.kind = SEALIFT_VALUE_OTHER;
    out.text = keep(tensor.unsafeGetTensorImpl()->is_nested() ? "NestedTensor" : "Tensor with symbolic sizes");
    return out;
  }
  sizes_.push_back(tensor.sizes().vec());
  out.count = static_cast<int32_t>(sizes_.back().size());
  out.shape = sizes_.back().data();
  if (tensor.layout() == at::kStrided) {
    sizes_.push_back(tensor.strides().vec());
    out.strides = sizes_.back().data();
  }
  return out;
}

sealift_value Values::value(const c10::IValue &input) {
  sealift_value out = {};
  if (input.isNone()) return out;
  if (input.isTensor()) return tensor(input.toTensor());
  if (input.isBool()) {
    out.kind = SEALIFT_VALUE_BOOL;
    out.integer = input.toBool() ? 1 : 0;
  } else if (input.isInt()) {
    out.kind = SEALIFT_VALUE_INT;
    out.integer = input.toInt();
  } else if (input.isDouble()) {
    out.kind = SEALIFT_VALUE_FLOAT;
    out.number = input.toDouble();
  } else if (input.isString()) {
    out.kind = SEALIFT_VALUE_STRING;
    out.text = keep(input.toStringRef());
  } else if (input.isDevice()) {
    out.kind = SEALIFT_VALUE_STRING;
    out.text = keep(input.toDevice().str());
  } else if (input.isList() || input.isTuple()) {
    std::vector<c10::IValue> items = input.isTuple() ? input.toTupleRef().elements().vec() : input.toListRef().vec();
    if (items.size() > MAX_ITEMS) items.resize(MAX_ITEMS);
    lists_.emplace_back();
    std::vector<sealift_value> &list = lists_.back();
    fill(c10::ArrayRef<const c10::IValue>(items.data(), items.size()), list);
    out.kind = SEALIFT_VALUE_LIST;
    out.count = static_cast<int32_t>(list.size());
    out.items = list.data();
  } else {
    out.kind = SEALIFT_VALUE_OTHER;
    out.text = keep(input.tagKind());
  }
  return out;
}

void Values::fill(c10::ArrayRef<const c10::IValue> inputs, std::vector<sealift_value> &out) {
  out.reserve(inputs.size());
  for (const c10::IValue &input : inputs) out.push_back(value(input));
}

void write_shapes(c10::ArrayRef<const c10::IValue> inputs, char *text, size_t size) {
  Writer out(text, size);
  const char *comma = "";
  for (const c10::IValue &input : inputs) {
    out.put(comma);
    comma = ", ";
    if (input.isTensor()) {
      write_shape(input.toTensor(), out);
    } else if (input.isTensorList()) {
      const char *inner = "(";
      for (const auto &item : input.toListRef()) {
        out.put(inner);
        write_shape(item.toTensor(), out);
        inner = ", ";
      }
      out.put(input.toListRef().empty() ? "()" : ")");
    } else {
      out.put("-");
    }
  }
}

}  // namespace sealift::bridge
