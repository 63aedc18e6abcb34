#include "constant_map.h"

#include <string.h>

#include <new>

namespace sealift::runtime {

bool ConstantMap::insert(const char *name, TensorHandle handle) {
  constexpr size_t HASH_SEED = 0xc70f6907;  // std::hash<std::string>'s
  if (shim_.operator_new == nullptr || shim_.hash_bytes == nullptr) return false;
  const size_t length = strlen(name);
  Node *node = new (shim_.operator_new(sizeof(Node))) Node{};
  node->key.data = node->key.local;
  if (length > sizeof node->key.local - 1) {
    node->key.data = static_cast<char *>(shim_.operator_new(length + 1));
    node->key.capacity = length;
  }
  memcpy(node->key.data, name, length + 1);
  node->key.size = length;
  node->value = handle;
  node->hash = shim_.hash_bytes(name, length, HASH_SEED);
  // The table is not grown here: more elements than buckets is slower, never wrong, and the owner's next insertion grows it.
  NodeBase *&bucket = map_->buckets[node->hash % map_->bucket_count];
  if (bucket != nullptr) {
    node->next = bucket->next;
    bucket->next = node;
  } else {
    node->next = map_->before_begin.next;
    map_->before_begin.next = node;
    if (node->next != nullptr) map_->buckets[static_cast<Node *>(node->next)->hash % map_->bucket_count] = node;
    bucket = &map_->before_begin;
  }
  ++map_->size;
  return true;
}

}  // namespace sealift::runtime
