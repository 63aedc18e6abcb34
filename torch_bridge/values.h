// An operator's inputs, as the observers' values and as text.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "sealift_observe.h"

namespace sealift::bridge {

// Owns what its values point to. Tensors' sizes are borrowed from the tensors.
class Values {
 public:
  explicit Values(c10::ArrayRef<const c10::IValue> inputs) { fill(inputs, values_); }
  const sealift_value *data() const { return values_.data(); }
  int32_t count() const { return static_cast<int32_t>(values_.size()); }

 private:
  void fill(c10::ArrayRef<const c10::IValue> inputs, std::vector<sealift_value> &out);
  sealift_value value(const c10::IValue &input);
  sealift_value tensor(const at::Tensor &tensor);
  const char *keep(std::string text);

  std::vector<sealift_value> values_;
  std::deque<std::vector<sealift_value>> lists_;
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> sizes_;
};

// "[8, 384], [384], []": a shape for each tensor, "-" for what is none, of a list of tensors all of them in parentheses. Cut where `size` ends.
void write_shapes(c10::ArrayRef<const c10::IValue> inputs, char *text, size_t size);

}  // namespace sealift::bridge
