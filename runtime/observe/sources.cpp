#include "sources.h"

#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "info.h"

namespace sealift::observe {

namespace {

const sealift_event_source *source = nullptr;
bool listens[SEALIFT_OBSERVE_SLOTS] = {};
sealift_listen how_of[SEALIFT_OBSERVE_SLOTS] = {};

uint64_t changed_ns = 0;  // when the source was last told to listen or not to

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

constexpr uint32_t KERNEL_BIT = 1u << SEALIFT_SCOPE_KERNEL;

}  // namespace

std::mutex &control_mutex() {
  static auto *one = new std::mutex;
  return *one;
}

bool listen(int slot, const sealift_listen &how) {
  if ((how.scopes & KERNEL_BIT) != 0 && !listen_to_kernels(slot, how)) return false;
  if ((how.scopes & ~KERNEL_BIT) != 0 && source != nullptr) {
    changed_ns = now_ns();
    if (source->listen(slot, &how) == 0) {
      unlisten_to_kernels(slot);
      return false;
    }
  }
  listens[slot] = true;
  how_of[slot] = how;
  return true;
}

void unlisten(int slot) {
  if (!listens[slot]) return;
  listens[slot] = false;
  unlisten_to_kernels(slot);
  if (source != nullptr && (how_of[slot].scopes & ~KERNEL_BIT) != 0) {
    changed_ns = now_ns();
    source->unlisten(slot);
  }
}

bool attach_source(const sealift_event_source &attached) {
  if (source != nullptr || attached.version != SEALIFT_OBSERVE_VERSION) return false;
  source = &attached;
  carry_info_by(source);
  for (int slot = 0; slot < SEALIFT_OBSERVE_SLOTS; ++slot) {
    // An observer of one thread alone began before the source was there, and only that thread could register it.
    if (listens[slot] && (how_of[slot].scopes & ~KERNEL_BIT) != 0 && how_of[slot].this_thread_only == 0) source->listen(slot, &how_of[slot]);
  }
  return true;
}

const sealift_event_source *attached_source() { return source; }

void let_sources_settle() {
  constexpr uint64_t SETTLED_NS = 2000000;
  const uint64_t passed_ns = now_ns() - changed_ns;
  if (source == nullptr) return;
  if (passed_ns < SETTLED_NS) usleep(static_cast<useconds_t>((SETTLED_NS - passed_ns) / 1000 + 1));
  if (source->struct_bytes > offsetof(sealift_event_source, settle) && source->settle != nullptr) source->settle();
}

}  // namespace sealift::observe
