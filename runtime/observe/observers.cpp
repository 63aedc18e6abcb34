// The observers that a user adds.
#include <math.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "fork.h"
#include "info.h"
#include "random.h"
#include "sources.h"
#include "status.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

struct Observer {
  std::atomic<int64_t> references{1};
  sealift_observer what;
  uint64_t id;
  int64_t thread;
};

struct Slot {
  std::atomic<Observer *> observer{nullptr};
  std::atomic<int64_t> entering{0};  // threads between the look at `observer` and its reference
};
Slot slots[OBSERVER_SLOTS];
uint64_t last_id = 0;  // with the control mutex

// One event that an observer has begun to see.
struct Token {
  Observer *observer;
  void *entered;
  sealift_info *info;
  uint64_t weight;
};

// 1 / probability, rounded up or down at random where it is no whole number, so that weights add up to the number of events on average.
uint64_t draw_weight(double probability) {
  thread_local Random random;
  const double weight = 1 / probability, whole = floor(weight);
  return static_cast<uint64_t>(whole) + (weight > whole && random.uniform() < weight - whole ? 1 : 0);
}

void release(Observer *observer) {
  if (observer->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (observer->what.release != nullptr) observer->what.release(observer->what.user);
  delete observer;
}

Observer *acquire(Slot &slot) {
  slot.entering.fetch_add(1, std::memory_order_seq_cst);
  Observer *observer = slot.observer.load(std::memory_order_seq_cst);
  if (observer != nullptr) observer->references.fetch_add(1, std::memory_order_relaxed);
  slot.entering.fetch_sub(1, std::memory_order_release);
  return observer;
}

}  // namespace

void *enter_observer(int slot, sealift_observed &event) {
  Observer *observer = acquire(slots[slot]);
  if (observer == nullptr) return nullptr;
  ThreadState &state = thread_state();
  if (observer->what.this_thread_only != 0 && observer->thread != thread_number(state)) {
    release(observer);
    return nullptr;
  }
  auto *token = new (std::nothrow) Token{observer, nullptr, current_info(), 1};
  if (token == nullptr) {
    release(observer);
    return nullptr;
  }
  event.info = token->info;
  event.weight = token->weight = draw_weight(observer->what.sampling_probability);
  const Quiet quiet(state);
  if (observer->what.on_enter != nullptr) token->entered = observer->what.on_enter(observer->what.user, &event);
  return token;
}

void exit_observer(void *made, sealift_observed &event) {
  const std::unique_ptr<Token> token(static_cast<Token *>(made));
  event.info = token->info;
  event.weight = token->weight;
  {
    const Quiet quiet(thread_state());
    if (token->observer->what.on_exit != nullptr) token->observer->what.on_exit(token->observer->what.user, token->entered, &event);
  }
  sealift_info_release(token->info);
  release(token->observer);
}

void observers_after_fork() {
  for (Slot &slot : slots) slot.entering.store(0, std::memory_order_relaxed);
}

}  // namespace sealift::observe

using namespace sealift::observe;

sealift_status sealift_observer_add(const sealift_observer *observer, uint64_t *id, char *err, size_t err_len) {
  const sealift::runtime::ErrorText error{err, err_len};
  if (observer == nullptr || id == nullptr || observer->struct_bytes < sizeof(sealift_observer))
    return fail(error, SEALIFT_ERROR_ARGUMENT, "observer or id is NULL, or struct_bytes is not sizeof(sealift_observer); help: set it");
  if (!(observer->sampling_probability > 0 && observer->sampling_probability <= 1))
    return fail(error, SEALIFT_ERROR_ARGUMENT, "sampling probability %g; help: above 0, at most 1", observer->sampling_probability);
  if (inside_callback()) return fail(error, SEALIFT_ERROR_BUSY, "no observer can be added inside a callback; help: add it outside");
  handle_fork();
  auto *made = new (std::nothrow) Observer;
  if (made == nullptr) return fail(error, SEALIFT_ERROR_MEMORY, "out of memory");
  made->what = *observer;
  made->thread = thread_number(thread_state());
  const std::lock_guard<std::mutex> lock(control_mutex());
  for (int i = 0; i < OBSERVER_SLOTS; ++i) {
    if (slots[i].observer.load(std::memory_order_relaxed) != nullptr) continue;
    const double weight = 1 / observer->sampling_probability;
    sealift_listen how = {};
    how.probability = observer->sampling_probability;
    how.weight = static_cast<uint64_t>(weight + 0.5);
    how.scopes = observer->scopes != 0 ? observer->scopes : 1u << SEALIFT_SCOPE_FUNCTION | 1u << SEALIFT_SCOPE_KERNEL;
    how.needs_inputs = observer->needs_inputs;
    how.this_thread_only = observer->this_thread_only;
    made->id = ++last_id;
    slots[i].observer.store(made, std::memory_order_seq_cst);
    if (listen(i, how)) {
      *id = made->id;
      return SEALIFT_OK;
    }
    slots[i].observer.store(nullptr, std::memory_order_seq_cst);
    break;
  }
  delete made;
  return fail(error, SEALIFT_ERROR_MEMORY, "all %d places for observers are taken; help: remove one", OBSERVER_SLOTS);
}

sealift_status sealift_observer_remove(uint64_t id) {
  if (inside_callback()) return SEALIFT_ERROR_BUSY;
  Observer *found = nullptr;
  {
    const std::lock_guard<std::mutex> lock(control_mutex());
    for (int i = 0; i < OBSERVER_SLOTS && found == nullptr; ++i) {
      Slot &slot = slots[i];
      Observer *observer = slot.observer.load(std::memory_order_relaxed);
      if (observer == nullptr || observer->id != id) continue;
      found = observer;
      slot.observer.store(nullptr, std::memory_order_seq_cst);
      unlisten(i);
      while (slot.entering.load(std::memory_order_seq_cst) != 0) usleep(10);
    }
  }
  if (found == nullptr) return SEALIFT_ERROR_ARGUMENT;
  release(found);
  return SEALIFT_OK;
}

const char *sealift_scope_name(sealift_scope scope) {
  static const char *const names[SEALIFT_SCOPE_COUNT] = {"function", "backward_function", "torchscript_function", "kernel_function_dtype", "custom_class", "build_feature",
                                                         "lite_interpreter", "user_scope", "static_runtime_op", "static_runtime_model", "kernel"};
  return static_cast<unsigned>(scope) < SEALIFT_SCOPE_COUNT ? names[scope] : "";
}
