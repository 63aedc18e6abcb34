#include "record.h"

#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "context_handle.h"

namespace sealift::runtime {

namespace {

// A slot is free when `id` is 0. A run that is about to call first counts itself in `inside` and then looks at the id again, so a remover
// that has cleared the id only waits for `inside` to become 0.
struct Slot {
  std::atomic<uint64_t> id{0};
  std::atomic<int64_t> inside{0};
  uint64_t last_id = 0;  // whose the slot is or was
  sealift_on_begin on_begin = nullptr;
  sealift_on_end on_end = nullptr;
  void *user = nullptr;
  double probability = 0;
  bool is_own = false;
};

Slot slots[MAX_CALLBACKS];
std::atomic<uint64_t> version{1};
uint64_t last_id = 0, forks = 0;  // with the mutex
std::mutex registry_mutex;
bool handles_fork = false;
thread_local int32_t inside_here[MAX_CALLBACKS] = {};  // this thread's part of each slot's `inside`

void enter(int32_t slot) {
  slots[slot].inside.fetch_add(1, std::memory_order_seq_cst);
  ++inside_here[slot];
}

void leave(int32_t slot) {
  --inside_here[slot];
  slots[slot].inside.fetch_sub(1, std::memory_order_release);
}

void after_fork_in_child() {
  // The runs of other threads stayed with the parent; this thread's goes on, if a callback called fork(). The streams of random numbers must
  // part: a new version makes them new.
  for (int32_t i = 0; i < MAX_CALLBACKS; ++i) slots[i].inside.store(inside_here[i], std::memory_order_relaxed);
  ++forks;
  version.fetch_add(1, std::memory_order_relaxed);
  registry_mutex.unlock();
}

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
uint64_t mix(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t callbacks_version() { return version.load(std::memory_order_acquire); }

double RecordStream::random() { return static_cast<double>((mix(seed_) >> 11) + 1) * 0x1p-53; }

int64_t RecordStream::draw_distance(const Listener &listener) {
  if (listener.probability >= 1) return 1;
  if (__builtin_expect(logs_left_ == 0, 0)) draw_logs();
  const double distance = 1 + floor(logs_[--logs_left_] * listener.per_log);
  return distance < 0x1p62 ? static_cast<int64_t>(distance) : int64_t{1} << 62;
}

__attribute__((noinline)) void RecordStream::draw_logs() {
  // log(u) as log1p(u - 1): glibc gave log a new symbol version in 2.29.
  for (double &one : logs_) one = log1p(random() - 1);
  logs_left_ = static_cast<int32_t>(sizeof logs_ / sizeof logs_[0]);
}

void RecordStream::arm(sealift_frame &frame) {
  armed_ = INT64_MAX;
  for (int32_t i = 0; i < count_; ++i) {
    if (listeners_[i].left < armed_) armed_ = listeners_[i].left;
  }
  frame.countdown = armed_;
}

__attribute__((noinline, cold)) void RecordStream::refresh(sealift_frame &frame) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  version_ = version.load(std::memory_order_relaxed);
  static uint64_t streams = 0;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  seed_ ^= static_cast<uint64_t>(now.tv_nsec) ^ (static_cast<uint64_t>(now.tv_sec) << 30) ^ (static_cast<uint64_t>(getpid()) << 40) ^
           (++streams * 0xd1342543de82ef95);
  mix(seed_);
  logs_left_ = 0;
  const int64_t passed = armed_ - frame.countdown;
  Listener before[MAX_CALLBACKS];
  const int32_t count_before = forks_ == forks ? count_ : 0;  // a child draws anew: its siblings have the same distances
  for (int32_t i = 0; i < count_before; ++i) before[i] = listeners_[i];
  forks_ = forks;
  count_ = own_ = 0;
  for (int32_t i = 0; i < MAX_CALLBACKS; ++i) {
    const uint64_t id = slots[i].id.load(std::memory_order_relaxed);
    if (id == 0) continue;
    Listener &listener = listeners_[count_++];
    listener = Listener{id, 0, slots[i].probability, 1 / log1p(-slots[i].probability), nullptr, 0, i, false, slots[i].is_own, false};
    own_ += slots[i].is_own ? 1 : 0;
    bool is_known = false;
    for (int32_t j = 0; j < count_before; ++j) {
      if (before[j].id != id) continue;
      listener.left = before[j].left - passed;
      is_known = true;
    }
    if (!is_known) listener.left = draw_distance(listener);
  }
  arm(frame);
}

__attribute__((noinline)) void RecordStream::hold() {
  if (is_holding_) let_go();
  is_holding_ = true;
  for (int32_t i = 0; i < count_; ++i) {
    Listener &listener = listeners_[i];
    if (!listener.is_own) continue;
    enter(listener.slot);
    listener.is_held = slots[listener.slot].id.load(std::memory_order_seq_cst) == listener.id;
    if (!listener.is_held) leave(listener.slot);  // removed since the look at the version
  }
}

__attribute__((noinline)) void RecordStream::let_go() {
  is_holding_ = false;
  for (int32_t i = 0; i < count_; ++i) {
    if (listeners_[i].is_held) leave(listeners_[i].slot);
    listeners_[i].is_held = false;
  }
}

uint64_t RecordStream::begin(sealift_context &context, sealift_frame &frame, int32_t kernel) {
  const int64_t passed = armed_;
  bool any = false;
  sealift_record record{context.model->name.c_str(), &context.model->kernels[static_cast<size_t>(kernel)], 0, 0, 0, &context};
  for (int32_t i = 0; i < count_; ++i) {
    Listener &listener = listeners_[i];
    if ((listener.left -= passed) > 0) continue;
    listener.left = draw_distance(listener);
    if (listener.is_own) {
      if (!listener.is_held) continue;
    } else {
      enter(listener.slot);
      if (slots[listener.slot].id.load(std::memory_order_seq_cst) != listener.id) {
        leave(listener.slot);
        continue;
      }
    }
    any = true;
    listener.fired = true;
    // Rounded at random, so that the weights add up to the number of kernels on average.
    const double weight = 1 / listener.probability, whole = floor(weight);
    listener.weight = static_cast<uint64_t>(whole) + (weight > whole && random() <= weight - whole ? 1 : 0);
  }
  arm(frame);
  if (!any) return 0;
  // The clock is read after the bookkeeping and again after the callbacks: their time is not the kernel's.
  record.start_ns = now_ns();
  bool called = false;
  for (int32_t i = 0; i < count_; ++i) {
    Listener &listener = listeners_[i];
    if (!listener.fired) continue;
    listener.begun = nullptr;
    record.weight = listener.weight;
    const Slot &slot = slots[listener.slot];
    if (slot.on_begin == nullptr) continue;
    listener.begun = slot.on_begin(slot.user, &record);
    called = true;
  }
  start_ns_ = called ? now_ns() : record.start_ns;
  return 1;
}

void RecordStream::end(sealift_context &context, int32_t kernel) {
  sealift_record record{context.model->name.c_str(), &context.model->kernels[static_cast<size_t>(kernel)], start_ns_, now_ns() - start_ns_, 0, &context};
  for (int32_t i = 0; i < count_; ++i) {
    Listener &listener = listeners_[i];
    if (!listener.fired) continue;
    listener.fired = false;
    record.weight = listener.weight;
    const Slot &slot = slots[listener.slot];
    if (slot.on_end != nullptr) slot.on_end(slot.user, listener.begun, &record);
    if (!listener.is_own) leave(listener.slot);
  }
}

sealift_callback add_callback(sealift_on_begin on_begin, sealift_on_end on_end, void *user, double probability, bool is_own) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  if (!handles_fork) {
    pthread_atfork([] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); }, after_fork_in_child);
    handles_fork = true;
  }
  int32_t of_user = 0;
  for (const Slot &slot : slots) of_user += slot.id.load(std::memory_order_relaxed) != 0 && !slot.is_own ? 1 : 0;
  if (!is_own && of_user >= MAX_USER_CALLBACKS) return 0;
  for (Slot &slot : slots) {
    if (slot.id.load(std::memory_order_relaxed) != 0 || slot.inside.load(std::memory_order_acquire) != 0) continue;
    slot.on_begin = on_begin;
    slot.on_end = on_end;
    slot.user = user;
    slot.probability = probability;
    slot.is_own = is_own;
    slot.last_id = ++last_id;
    slot.id.store(last_id, std::memory_order_seq_cst);
    version.fetch_add(1, std::memory_order_release);
    return last_id;
  }
  return 0;
}

bool is_called(sealift_callback callback) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  for (const Slot &slot : slots) {
    if (slot.last_id == callback) return slot.id.load(std::memory_order_seq_cst) == callback || slot.inside.load(std::memory_order_seq_cst) != 0;
  }
  return false;
}

bool remove_callback(sealift_callback callback, bool waits) {
  Slot *found = nullptr;
  {
    const std::lock_guard<std::mutex> lock(registry_mutex);
    for (Slot &slot : slots) {
      if (callback != 0 && slot.id.load(std::memory_order_relaxed) == callback) found = &slot;
    }
    if (found == nullptr) return false;
    found->id.store(0, std::memory_order_seq_cst);
    version.fetch_add(1, std::memory_order_release);
  }
  // A callback that removes itself does not wait for itself.
  const int32_t own = inside_here[found - slots];
  while (waits && found->inside.load(std::memory_order_seq_cst) > own) usleep(50);
  return true;
}

}  // namespace sealift::runtime
