// std::unordered_map<std::string, at::Tensor *>, which PyTorch's loader passes for the constants, without libstdc++.
#pragma once

#include "torch_shim.h"

namespace sealift::runtime {

struct ConstantEntry {  // AOTInductorConstantMapEntry
  const char *name;
  TensorHandle handle;
};

class ConstantMap {
 public:
  ConstantMap(void *map, const TorchShim &shim) : map_(static_cast<Table *>(map)), shim_(shim) {}

  size_t size() const { return map_->size; }
  // Calls visit(name, handle) for each element. The names are NUL-terminated.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const NodeBase *node = map_->before_begin.next; node != nullptr; node = node->next) {
      const Node &element = *static_cast<const Node *>(node);
      visit(element.key.data, element.value);
    }
  }
  // Adds an element; the name is not in the map yet. False without memory or libstdc++.
  bool insert(const char *name, TensorHandle handle);

 private:
  // libstdc++'s layout, part of its ABI (libstdc++.so.6, cxx11 strings): bits/hashtable.h, bits/basic_string.h.
  struct NodeBase {
    NodeBase *next;
  };
  struct String {
    char *data;
    size_t size;
    union {
      char local[16];
      size_t capacity;
    };
  };
  struct Node : NodeBase {
    String key;
    TensorHandle value;
    size_t hash;
  };
  struct Table {
    NodeBase **buckets;  // of each bucket, the node before its first one
    size_t bucket_count;
    NodeBase before_begin;
    size_t size;
    float max_load_factor;
    size_t next_resize;
    NodeBase *single_bucket;
  };
  static_assert(sizeof(String) == 32 && sizeof(Node) == 56 && sizeof(Table) == 56, "libstdc++'s sizes");

  Table *map_;
  const TorchShim &shim_;
};

}  // namespace sealift::runtime
