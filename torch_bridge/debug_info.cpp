#include "debug_info.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <string_view>

namespace sealift::bridge {

namespace {

const sealift_observe_host *host = nullptr;

inline constexpr std::string_view KIND_NAME = "SEALIFT_DEBUG_INFO";
const c10::DebugInfoKind KIND(&KIND_NAME);

// Shared with the threads that the value was carried to.
class Holder final : public c10::DebugInfoBase {
 public:
  explicit Holder(const sealift_info *info) : info_(host->retain_info(info)) {}
  ~Holder() override { host->release_info(info_); }
  sealift_info *get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return host->retain_info(info_);
  }
  void set(const sealift_info *info) {
    sealift_info *before;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      before = info_;
      info_ = host->retain_info(info);
    }
    host->release_info(before);
  }

 private:
  std::mutex mutex_;
  sealift_info *info_;
};

// The entry that this thread put on PyTorch's stack, what was below it, and the value in it.
struct Mine {
  std::shared_ptr<c10::ThreadLocalDebugInfo> entry, below;
  std::shared_ptr<Holder> holder;
};
thread_local Mine mine;

}  // namespace

void use_info_functions(const sealift_observe_host *runtime) { host = runtime; }

sealift_info *get_info(int32_t *is_set) {
  auto *holder = static_cast<Holder *>(c10::ThreadLocalDebugInfo::get(KIND));
  *is_set = holder != nullptr ? 1 : 0;
  return holder != nullptr ? holder->get() : nullptr;
}

// Blocks of debug info need not nest with those of others on the stack (a profiler that is started inside one and stopped outside; tasks that
// take turns on a thread), so entries are not pushed and popped in pairs: there is at most one of ours, and this puts the right value there.
void set_info(const sealift_info *info) {
  std::shared_ptr<c10::ThreadLocalDebugInfo> top = c10::ThreadLocalDebugInfo::current();
  const bool is_top = mine.entry != nullptr && top == mine.entry;
  if (!is_top && mine.holder != nullptr && c10::ThreadLocalDebugInfo::get(KIND) == mine.holder.get()) {
    // Somebody's entry lies above, which only they may take away: change the value in place.
    mine.holder->set(info);
    return;
  }
  const std::shared_ptr<c10::ThreadLocalDebugInfo> below = is_top ? mine.below : top;
  if (is_top) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(below);
  if (info == nullptr) {
    mine = Mine{};
    return;
  }
  auto holder = std::make_shared<Holder>(info);
  c10::ThreadLocalDebugInfo::_push(KIND, holder);
  mine = Mine{c10::ThreadLocalDebugInfo::current(), below, std::move(holder)};
}

}  // namespace sealift::bridge
