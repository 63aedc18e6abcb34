// Which APIs this process has used, and which model files it wrote and read.
#include <string.h>
#include <time.h>

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fork.h"
#include "sealift_observe.h"

namespace {

constexpr size_t MAX_KEYS = 4096, MAX_MODEL_FILES = 1024;

uint64_t unix_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

struct Usage {
  std::mutex mutex;
  std::unordered_map<std::string, uint64_t> first_ns;
  std::vector<const std::string *> order;  // as they came; the map's keys stay where they are
  void (*handler)(void *, const char *, uint64_t) = nullptr;
  void *user = nullptr;
  std::deque<std::pair<std::string, uint64_t>> files;
};

Usage &usage() {
  static auto *one = new Usage;
  return *one;
}

}  // namespace

namespace sealift::observe {
void lock_api_usage() { usage().mutex.lock(); }
void unlock_api_usage() { usage().mutex.unlock(); }
}  // namespace sealift::observe

int32_t sealift_log_api_usage_once(const char *key) {
  if (key == nullptr || key[0] == '\0') return 0;
  try {
    Usage &all = usage();
    const uint64_t now = unix_ns();
    void (*handler)(void *, const char *, uint64_t);
    void *user;
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      if (all.first_ns.size() >= MAX_KEYS) return 0;
      const auto [at, is_new] = all.first_ns.emplace(key, now);
      if (!is_new) return 0;
      all.order.push_back(&at->first);
      handler = all.handler;
      user = all.user;
    }
    if (handler != nullptr) handler(user, key, now);
    return 1;
  } catch (const std::bad_alloc &) {
    return 0;
  }
}

void sealift_api_usage_visit(void (*visit)(void *user, const char *key, uint64_t first_unix_ns), void *user) {
  Usage &all = usage();
  std::vector<std::pair<std::string, uint64_t>> known;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (const std::string *key : all.order) known.emplace_back(*key, all.first_ns.at(*key));
  }
  for (const auto &[key, when] : known) visit(user, key.c_str(), when);
}

void sealift_set_api_usage_handler(void (*handler)(void *user, const char *key, uint64_t first_unix_ns), void *user) {
  Usage &all = usage();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.handler = handler;
    all.user = user;
  }
  if (handler != nullptr) sealift_api_usage_visit(handler, user);
}

void sealift_note_model_file(const char *json) {
  if (json == nullptr) return;
  try {
    Usage &all = usage();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.files.size() >= MAX_MODEL_FILES) all.files.pop_front();
    all.files.emplace_back(json, unix_ns());
  } catch (const std::bad_alloc &) {
  }
}

void sealift_take_model_files(void (*visit)(void *user, const char *json, uint64_t unix_ns), void *user) {
  std::deque<std::pair<std::string, uint64_t>> files;
  {
    Usage &all = usage();
    const std::lock_guard<std::mutex> lock(all.mutex);
    files.swap(all.files);
  }
  for (const auto &[json, when] : files) visit(user, json.c_str(), when);
}
