#include "series.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "info.h"

namespace sealift::observe {

namespace {

constexpr uint32_t NO_ROOM = UINT32_MAX;

// Open addressing over the hashes of keys. Two keys with the same 64 bits would share a series: with 2,048 of them, once in 10^13 processes.
struct Entry {
  std::atomic<uint64_t> hash{0};  // 0: free
  uint32_t series = 0;
};

struct Registry {
  std::mutex mutex;  // for adding
  std::unique_ptr<Entry[]> entries;
  size_t mask = 0;
  std::vector<Series> series;  // reserved: references stay
  std::atomic<uint32_t> count{0};
  uint32_t capacity = 0;
  std::unique_ptr<char[]> text;
  size_t text_used = 0;
  std::vector<std::string> label_keys;
  uint32_t generation = 0;
  std::vector<LabelSet> label_sets;  // reserved; [0] is the empty one
  std::vector<std::vector<sealift_label>> label_lists;
  std::unordered_map<std::string, uint32_t> label_set_ids;
};

Registry &registry() {
  static auto *one = new Registry;  // never destroyed: operators run until the very end of a process
  return *one;
}

uint64_t hash_bytes(const char *text, uint64_t seed) {
  uint64_t hash = seed;
  size_t length = strlen(text);
  for (; length >= 8; text += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, text, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  uint64_t rest = length;
  for (size_t i = 0; i < length; ++i) rest = rest << 8 | static_cast<unsigned char>(text[i]);
  hash = (hash ^ rest) * 0xd1342543de82ef95;
  return hash ^ hash >> 29;
}

// "aten.mm, aten.gelu @ model.py:12 encoder.layer.0"
std::string origin_of(const sealift_kernel_info &kernel) { return std::string(kernel.ops) + " @ " + kernel.origin; }

// One text must not take the room of all others: a long one is cut, between two characters of UTF-8. Two that differ stay apart.
std::string shortened(const char *text) {
  char number[24];
  snprintf(number, sizeof number, "... %016llx", static_cast<unsigned long long>(hash_bytes(text, 0)));
  size_t kept = MAX_TEXT_BYTES - 1 - strlen(number);
  while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xc0) == 0x80) --kept;
  return std::string(text, kept) + number;
}

std::string kept_label(const std::string &value) { return value.size() < MAX_TEXT_BYTES ? value : shortened(value.c_str()); }

const char *keep_text(Registry &all, const char *text) {
  if (text == nullptr || text[0] == '\0') return "";
  const size_t bytes = strlen(text) + 1;
  if (bytes > MAX_TEXT_BYTES) return keep_text(all, shortened(text).c_str());
  if (TEXT_BYTES - all.text_used < bytes) return nullptr;
  char *kept = all.text.get() + all.text_used;
  memcpy(kept, text, bytes);
  all.text_used += bytes;
  return kept;
}

uint32_t add_label_set(Registry &all, const sealift_info &info) {
  const std::string *found = find_label(info, "model_id");
  const std::string model = found != nullptr ? kept_label(*found) : std::string();
  std::vector<std::pair<const std::string *, std::string>> chosen;
  std::string key = model;
  for (const std::string &name : all.label_keys) {
    const std::string *value = find_label(info, name.c_str());
    if (value == nullptr) continue;
    chosen.emplace_back(&name, kept_label(*value));
    key.append(1, '\0').append(name).append(1, '\0').append(chosen.back().second);
  }
  if (key.empty()) return 0;
  const auto known = all.label_set_ids.find(key);
  if (known != all.label_set_ids.end()) return known->second;
  if (all.label_sets.size() >= MAX_LABEL_SETS) return NO_ROOM;
  LabelSet set{keep_text(all, model.c_str()), static_cast<int32_t>(chosen.size()), nullptr};
  std::vector<sealift_label> labels;
  for (const auto &[name, value] : chosen) {
    labels.push_back({keep_text(all, name->c_str()), keep_text(all, value.c_str())});
    if (labels.back().key == nullptr || labels.back().value == nullptr) return NO_ROOM;
  }
  if (set.model_id == nullptr) return NO_ROOM;
  all.label_lists.push_back(std::move(labels));
  set.labels = all.label_lists.back().data();
  const auto id = static_cast<uint32_t>(all.label_sets.size());
  all.label_sets.push_back(set);
  all.label_set_ids.emplace(std::move(key), id);
  return id;
}

uint32_t label_set_of(Registry &all, const sealift_info &info) {
  auto &cached = const_cast<sealift_info &>(info).label_set;
  const uint64_t value = cached.load(std::memory_order_acquire);
  if (value >> 32 == all.generation) return static_cast<uint32_t>(value);
  const std::lock_guard<std::mutex> lock(all.mutex);
  uint32_t id = NO_ROOM;
  try {
    id = add_label_set(all, info);
  } catch (const std::bad_alloc &) {
  }
  cached.store(static_cast<uint64_t>(all.generation) << 32 | id, std::memory_order_release);
  return id;
}

__attribute__((noinline)) uint32_t add_series(Registry &all, const sealift_sample &sample, const sealift_kernel_info *kernel, uint64_t hash, uint32_t label_set) {
  const std::lock_guard<std::mutex> lock(all.mutex);
  size_t at = hash & all.mask;
  for (uint64_t found; (found = all.entries[at].hash.load(std::memory_order_relaxed)) != 0; at = (at + 1) & all.mask) {
    if (found == hash) return all.entries[at].series;
  }
  const uint32_t id = all.count.load(std::memory_order_relaxed);
  if (id >= all.capacity) return OVERFLOW_SERIES;
  Series made{nullptr, nullptr, nullptr, sample.source, sample.scope, &all.label_sets[label_set]};
  try {
    made.name = keep_text(all, sample.name);
    made.origin = keep_text(all, kernel != nullptr ? origin_of(*kernel).c_str() : sample.origin);
    made.shapes = keep_text(all, sample.shapes);
  } catch (const std::bad_alloc &) {
  }
  if (made.name == nullptr || made.origin == nullptr || made.shapes == nullptr) return OVERFLOW_SERIES;
  all.series.push_back(made);
  all.entries[at].series = id;
  all.count.store(id + 1, std::memory_order_release);
  all.entries[at].hash.store(hash, std::memory_order_release);
  return id;
}

}  // namespace

uint64_t text_key(const char *name, const char *origin, const char *shapes) {
  uint64_t hash = hash_bytes(name, 0);
  if (origin != nullptr) hash = hash_bytes(origin, hash + 1);
  if (shapes != nullptr) hash = hash_bytes(shapes, hash + 2);
  return hash | 1;
}

uint64_t kernel_key(const sealift_kernel_info &kernel) { return hash_bytes(kernel.origin, hash_bytes(kernel.ops, hash_bytes(kernel.name, 3))) | 1; }

uint32_t series_of(const sealift_sample &sample, uint64_t key, const sealift_kernel_info *kernel) {
  Registry &all = registry();
  uint32_t label_set = 0;
  if (sample.info != nullptr && (label_set = label_set_of(all, *sample.info)) == NO_ROOM) return OVERFLOW_SERIES;
  uint64_t hash = (key ^ (static_cast<uint64_t>(label_set) << 16 | static_cast<uint64_t>(sample.source) << 8 | static_cast<uint64_t>(sample.scope))) * 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 32) | 1;
  for (size_t at = hash & all.mask;; at = (at + 1) & all.mask) {
    const uint64_t found = all.entries[at].hash.load(std::memory_order_acquire);
    if (found == hash) return all.entries[at].series;
    if (found == 0) return add_series(all, sample, kernel, hash, label_set);
  }
}

uint32_t num_series() { return registry().count.load(std::memory_order_acquire); }

const Series &series_at(uint32_t index) { return registry().series[index]; }

bool clear_series(int max_series, const char *labels) {
  Registry &all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    size_t size = 64;
    while (size < static_cast<size_t>(max_series) * 2) size *= 2;
    all.entries = std::make_unique<Entry[]>(size);
    all.mask = size - 1;
    all.capacity = static_cast<uint32_t>(max_series);
    all.series = {};
    all.series.reserve(all.capacity);
    if (all.text == nullptr) all.text = std::make_unique<char[]>(TEXT_BYTES);
    all.text_used = 0;
    all.label_sets.clear();
    all.label_sets.reserve(MAX_LABEL_SETS);
    all.label_sets.push_back({"", 0, nullptr});
    all.label_lists.clear();
    all.label_lists.reserve(MAX_LABEL_SETS);
    all.label_set_ids.clear();
    all.label_keys.clear();
    for (const char *key = labels; key != nullptr && *key != '\0';) {
      const char *comma = strchr(key, ',');
      std::string name(key, comma != nullptr ? static_cast<size_t>(comma - key) : strlen(key));
      if (!name.empty() && name != "model_id") all.label_keys.push_back(std::move(name));
      key = comma != nullptr ? comma + 1 : nullptr;
    }
    std::sort(all.label_keys.begin(), all.label_keys.end());
    ++all.generation;
    all.series.push_back({"(overflow)", "", "", SEALIFT_SOURCE_TORCH, SEALIFT_SCOPE_FUNCTION, &all.label_sets[0]});
    all.count.store(1, std::memory_order_release);
    return true;
  } catch (const std::bad_alloc &) {
    return false;
  }
}

void lock_series() { registry().mutex.lock(); }

void unlock_series() { registry().mutex.unlock(); }

void series_after_fork() { new (&registry().mutex) std::mutex; }

}  // namespace sealift::observe
