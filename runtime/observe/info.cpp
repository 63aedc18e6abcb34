#include "info.h"

#include <algorithm>
#include <new>

#include "thread_state.h"

namespace sealift::observe {

namespace {

std::atomic<bool> in_use{false};  // whether any info was ever made: most processes make none, and then nobody is asked
std::atomic<sealift_info *(*)(int32_t *)> provider{nullptr};
std::atomic<const sealift_event_source *> carrier{nullptr};

}  // namespace

const std::string *find_label(const sealift_info &info, const char *key) {
  for (const auto &[name, value] : info.labels) {
    if (name == key) return &value;
  }
  return nullptr;
}

sealift_info *current_info() {
  if (!in_use.load(std::memory_order_relaxed)) return nullptr;
  int32_t is_set = 0;
  if (auto *ask = provider.load(std::memory_order_acquire)) {
    sealift_info *info = ask(&is_set);
    if (is_set != 0) return info;
  }
  if (const sealift_event_source *source = carrier.load(std::memory_order_acquire)) {
    sealift_info *info = source->get_info(&is_set);
    if (is_set != 0) return info;
  }
  return sealift_info_retain(thread_state().info);
}

void carry_info_by(const sealift_event_source *source) { carrier.store(source, std::memory_order_release); }

}  // namespace sealift::observe

using namespace sealift::observe;

sealift_info *sealift_info_create(const sealift_info *parent, int32_t count, const sealift_label *labels) {
  try {
    auto *info = new sealift_info;
    try {
      if (parent != nullptr) info->labels = parent->labels;
      for (int32_t i = 0; i < count; ++i) {
        auto at = std::lower_bound(info->labels.begin(), info->labels.end(), labels[i].key, [](const auto &pair, const char *key) { return pair.first < key; });
        if (at != info->labels.end() && at->first == labels[i].key) {
          at->second = labels[i].value;
        } else {
          info->labels.emplace(at, labels[i].key, labels[i].value);
        }
      }
    } catch (...) {
      delete info;
      throw;
    }
    in_use.store(true, std::memory_order_relaxed);
    return info;
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

sealift_info *sealift_info_retain(const sealift_info *info) {
  auto *held = const_cast<sealift_info *>(info);
  if (held != nullptr) held->references.fetch_add(1, std::memory_order_relaxed);
  return held;
}

void sealift_info_release(const sealift_info *info) {
  auto *held = const_cast<sealift_info *>(info);
  if (held != nullptr && held->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
}

int32_t sealift_info_count(const sealift_info *info) { return info == nullptr ? 0 : static_cast<int32_t>(info->labels.size()); }

sealift_label sealift_info_label(const sealift_info *info, int32_t index) {
  if (index < 0 || index >= sealift_info_count(info)) return {nullptr, nullptr};
  const auto &[key, value] = info->labels[static_cast<size_t>(index)];
  return {key.c_str(), value.c_str()};
}

sealift_info *sealift_info_current(void) { return current_info(); }

sealift_info *sealift_info_exchange(const sealift_info *info) {
  ThreadState &state = thread_state();
  sealift_info *before = state.info;
  state.info = state.is_gone ? nullptr : sealift_info_retain(info);
  if (state.info != nullptr) watch_thread_end();
  if (const sealift_event_source *source = carrier.load(std::memory_order_acquire)) source->set_info(info);
  return before;
}

void sealift_set_info_provider(sealift_info *(*get)(int32_t *is_set)) { provider.store(get, std::memory_order_release); }
