// PyTorch's process-wide hooks as an event source of sealift's runtime.
//
// Built with -DNDEBUG always: without it the headers give RecordFunction a member that the library's does not have.
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/Logging.h>
#include <pthread.h>
#include <time.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "debug_info.h"
#include "hook_account.h"
#include "sealift_torch_bridge.h"
#include "values.h"

#ifndef NDEBUG
#error "build the bridge with -DNDEBUG, as PyTorch itself is"
#endif

namespace sealift::bridge {

namespace {

constexpr int NUM_SLOTS = SEALIFT_OBSERVE_SLOTS;
constexpr int CALIBRATION = NUM_SLOTS;  // a slot of its own, for measuring what a hook costs
constexpr size_t SHAPES_BYTES = 256;
constexpr double RECORD_NS = 40;
constexpr int MAX_DEPTH = 256;  // of nested operators whose self time is computed

const sealift_observe_host *host = nullptr;

struct Slot {
  std::atomic<bool> is_on{false};
  std::atomic<uint32_t> generation{0};  // changes when it is switched off: what began before is not whole
  sealift_listen how = {};
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
};
Slot slots[NUM_SLOTS + 1];
std::atomic<uint64_t> registrations{1};  // each makes every thread draw anew
// Set by measure().
struct KnownCosts {
  std::atomic<double> own_ns{HookCosts().own_ns}, once_ns{HookCosts().once_ns}, each_ns{HookCosts().each_ns};
  HookCosts now() const { return {own_ns.load(std::memory_order_relaxed), once_ns.load(std::memory_order_relaxed), each_ns.load(std::memory_order_relaxed)}; }
};
KnownCosts hook_costs;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t cpu_ns() {  // of this thread: what others do on the machine does not count
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// ---- a thread --------------------------------------------------------------------------------------------------------------

struct Context;

struct Frame {
  uint64_t id, inner_ns;
};

// A callback of this thread alone. Only the thread itself can take it from PyTorch again: where another removed it, its next event does.
struct Local {
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  uint32_t generation = 0;  // of its slot
};

struct Thread {
  sealift_observe_thread *state = nullptr;
  bool is_seeded = false;
  uint64_t seeded_at = 0;       // value of `registrations`
  uint32_t unseeded_draws = 0;  // slots whose next event was drawn before the seed
  int depth = 0;
  uint64_t last_id = 0;
  Frame frames[MAX_DEPTH];
  uint64_t untold_ns = 0;  // what recording cost here since its last sample
  HookAccount account;
  bool is_calibrating = false;  // no other slot sees this thread
  Local local[NUM_SLOTS];
};
thread_local Thread thread;

// Memory of contexts that ended, for the next ones.
struct Pool {
  void *first = nullptr;
  bool is_gone = false;
  ~Pool();
};
thread_local Pool pool;

struct Context final : at::ObserverContext {
  uint64_t start_ns = 0;
  HookAccount::Mark before;  // of its thread's account
  sealift_info *info = nullptr;
  sealift_listen how = {};
  void *token = nullptr;
  uint64_t frame_id = 0;
  int depth = 0;
  uint32_t generation = 0;
  bool has_shapes = false, has_frame = false;
  const Thread *owner = nullptr;  // where it began
  char shapes[SHAPES_BYTES];

  ~Context() override { host->release_info(info); }
  // NOLINTBEGIN(misc-new-delete-overloads): the base's virtual destructor leads here
  static void *operator new(size_t size) {
    void *memory = pool.first;
    if (memory == nullptr) return ::operator new(size);
    memcpy(&pool.first, memory, sizeof(void *));
    return memory;
  }
  static void operator delete(void *memory) {
    if (pool.is_gone) {
      ::operator delete(memory);
      return;
    }
    memcpy(memory, &pool.first, sizeof(void *));
    pool.first = memory;
  }
  // NOLINTEND(misc-new-delete-overloads)
};

Pool::~Pool() {
  is_gone = true;
  while (first != nullptr) {
    void *memory = first;
    memcpy(&first, memory, sizeof(void *));
    ::operator delete(memory);
  }
}

bool is_disabled(Thread &self) {
  if (__builtin_expect(self.state == nullptr, 0)) self.state = host->thread();
  return self.state->disabled != 0;
}

// PyTorch seeds every thread's generator alike, so that all threads of all processes would record the same places. At its first event a thread
// gets a seed of its own; that event, and the next of each slot, were drawn before.
bool was_drawn_alike(Thread &self, int slot) {
  if (__builtin_expect(!self.is_seeded, 0)) {
    at::set_record_function_seed_for_testing(std::random_device{}());
    self.is_seeded = true;
    self.seeded_at = registrations.load(std::memory_order_relaxed);
    self.unseeded_draws = 0;
    for (int i = 0; i < NUM_SLOTS; ++i) {
      if (slots[i].is_on.load(std::memory_order_relaxed)) self.unseeded_draws |= 1u << i;
    }
    return true;
  }
  if (__builtin_expect(self.unseeded_draws == 0, 1)) return false;
  if (self.seeded_at != registrations.load(std::memory_order_relaxed)) self.unseeded_draws = 0;
  const bool is_one = (self.unseeded_draws >> slot & 1) != 0;
  self.unseeded_draws &= ~(1u << slot);
  return is_one;
}

void seed_this_thread() {
  at::set_record_function_seed_for_testing(std::random_device{}());
  thread.is_seeded = true;
  thread.unseeded_draws = 0;
}

// The child's thread draws what the parent's would have drawn, and so would every child: its generator needs another seed, and what was drawn
// already is passed over.
void after_fork_in_child() {
  thread.is_seeded = false;
  thread.depth = 0;
}

// Operators that only compute shapes while a model is traced or compiled: a mode of fake tensors is on, or its own calls of meta kernels.
bool is_fake() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  if (Modes::any_modes_set() && (Modes::get_mode(c10::impl::TorchDispatchModeKey::FAKE).has_value() || Modes::get_mode(c10::impl::TorchDispatchModeKey::PROXY).has_value())) return true;
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Meta);
}

bool has_meta_input(const at::RecordFunction &function) {
  for (const c10::IValue &input : function.inputs()) {
    if (input.isTensor() && input.toTensor().defined() && input.toTensor().is_meta()) return true;
  }
  return false;
}

uint64_t note_hook(Thread &self, const at::RecordFunction &function, bool is_end, bool is_recorders, uint64_t entered_ns, uint64_t left_ns) {
  return self.account.note(&function, is_end, left_ns - entered_ns, is_recorders, hook_costs.now());
}

// Of the operator's time, what hooks took inside it; 0 where it ends on another thread.
uint64_t observed_inside_ns(const Context &context, const Thread &self, uint64_t dur_ns) {
  return context.owner == &self ? self.account.since(context.before, dur_ns) : 0;
}

// ---- the recorder's events -------------------------------------------------------------------------------------------------

std::unique_ptr<at::ObserverContext> begin_sample(const at::RecordFunction &function, const Slot &slot, Thread &self) {
  const uint64_t entered_ns = now_ns();
  std::unique_ptr<Context> context(new Context);
  context->how = slot.how;
  context->info = host->current_info();
  if (slot.how.needs_inputs != 0) {
    write_shapes(function.inputs(), context->shapes, SHAPES_BYTES);
    context->has_shapes = true;
  }
  if ((slot.how.sample_flags & SEALIFT_SAMPLE_SELF) != 0) {
    context->generation = slot.generation.load(std::memory_order_relaxed);
    if (self.depth == MAX_DEPTH) self.depth = 0;
    context->frame_id = ++self.last_id;
    context->has_frame = true;
    self.frames[self.depth] = {context->frame_id, 0};
    context->depth = ++self.depth;
  }
  context->owner = &self;
  context->start_ns = now_ns();
  self.untold_ns += note_hook(self, function, false, true, entered_ns, context->start_ns);
  context->before = self.account.mark();
  return context;
}

// The operator's time less that of the operators inside it, which all were recorded if the burst lasted as long as it.
uint64_t end_frame(const Context &context, const Slot &slot, Thread &self, uint64_t dur_ns) {
  if (!context.has_frame || context.owner != &self || self.depth < context.depth || self.frames[context.depth - 1].id != context.frame_id) return UINT64_MAX;
  const uint64_t inner_ns = self.frames[context.depth - 1].inner_ns;
  self.depth = context.depth - 1;
  if (self.depth > 0) self.frames[self.depth - 1].inner_ns += dur_ns;
  if (slot.generation.load(std::memory_order_relaxed) != context.generation) return UINT64_MAX;
  return inner_ns < dur_ns ? dur_ns - inner_ns : 0;
}

void end_sample(const at::RecordFunction &function, const Context &context, const Slot &slot) {
  const uint64_t end_ns = now_ns(), dur_ns = end_ns - context.start_ns;
  Thread &self = thread;
  const uint64_t inner_ns = observed_inside_ns(context, self, dur_ns);
  uint64_t self_ns = UINT64_MAX;
  if ((context.how.sample_flags & SEALIFT_SAMPLE_SELF) != 0) self_ns = end_frame(context, slot, self, dur_ns - inner_ns);
  const sealift_sample sample{function.name(), nullptr, context.has_shapes ? context.shapes : nullptr, SEALIFT_SOURCE_TORCH, static_cast<int32_t>(function.scope()),
                              context.start_ns, dur_ns, context.how.weight, context.info, self_ns, context.how.sample_flags, inner_ns, self.untold_ns};
  self.untold_ns = 0;
  host->record(&sample);
  self.untold_ns += note_hook(self, function, true, true, end_ns, now_ns());
}

// ---- the observers' events -------------------------------------------------------------------------------------------------

sealift_observed observed(const at::RecordFunction &function, uint64_t weight) {
  sealift_observed event = {};
  event.struct_bytes = sizeof event;
  event.source = SEALIFT_SOURCE_TORCH;
  event.scope = static_cast<int32_t>(function.scope());
  event.name = function.name();
  event.overload = function.overload_name() != nullptr ? function.overload_name() : "";
  event.model_name = event.ops = event.origin = "";
  event.kernel_id = -1;
  event.num_inputs = -1;
  event.sequence = function.seqNr();
  event.thread_id = function.threadId();
  event.forward_thread_id = function.forwardThreadId();
  event.weight = weight;
  return event;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction &function, int number, const Slot &slot, Thread &self) {
  const uint64_t entered_ns = now_ns();
  sealift_observed event = observed(function, slot.how.weight);
  std::unique_ptr<Values> values;
  if (slot.how.needs_inputs != 0) {
    values = std::make_unique<Values>(function.inputs());
    event.inputs = values->data();
    event.num_inputs = values->count();
  }
  event.start_ns = now_ns();
  void *token = host->enter(number, &event);
  if (token == nullptr) {
    note_hook(self, function, false, false, entered_ns, now_ns());
    return nullptr;
  }
  std::unique_ptr<Context> context(new Context);
  context->how = slot.how;
  context->token = token;
  context->owner = &self;
  context->start_ns = now_ns();
  note_hook(self, function, false, false, entered_ns, context->start_ns);
  context->before = self.account.mark();
  return context;
}

void leave(const at::RecordFunction &function, Context &context) {
  const uint64_t end_ns = now_ns();
  sealift_observed event = observed(function, context.how.weight);
  event.start_ns = context.start_ns;
  Thread &self = thread;
  event.dur_ns = end_ns - context.start_ns;
  event.dur_ns -= observed_inside_ns(context, self, event.dur_ns);
  host->exit(context.token, &event);
  note_hook(self, function, true, false, end_ns, now_ns());
}

// ---- the callbacks that PyTorch is given: plain functions, so one pair for each slot ---------------------------------------

template <int SLOT>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction &function) {
  Slot &slot = slots[SLOT];
  Thread &self = thread;
  if (is_disabled(self) || (SLOT != CALIBRATION && self.is_calibrating) || is_fake() || (slot.how.needs_inputs != 0 && has_meta_input(function))) return nullptr;
  if (slot.how.probability < 1 && was_drawn_alike(self, SLOT)) {
    if (slot.how.sample_flags != 0) host->drop(1);
    return nullptr;
  }
  return slot.how.sample_flags != 0 || SLOT == CALIBRATION ? begin_sample(function, slot, self) : enter(function, SLOT, slot, self);
}

template <int SLOT>
void on_end(const at::RecordFunction &function, at::ObserverContext *made) {
  auto *context = static_cast<Context *>(made);
  if (context == nullptr) {
    thread.account.forget_moment();
    return;
  }
  if (context->token == nullptr) {
    end_sample(function, *context, slots[SLOT]);
  } else {
    leave(function, *context);
  }
}

void remove_local(Local &local) {
  if (local.handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(local.handle);
  local.handle = at::INVALID_CALLBACK_HANDLE;
}

template <int SLOT>
std::unique_ptr<at::ObserverContext> on_start_here(const at::RecordFunction &function) {
  Local &local = thread.local[SLOT];
  if (__builtin_expect(local.generation != slots[SLOT].generation.load(std::memory_order_acquire), 0)) {
    remove_local(local);  // PyTorch goes through a copy of its list
    return nullptr;
  }
  return on_start<SLOT>(function);
}

using Start = at::RecordFunctionCallback::StartCallback;
using End = at::RecordFunctionCallback::EndCallback;

struct Pair {
  Start start, start_here;
  End end;
};

template <int... SLOTS>
constexpr Pair callbacks_of(int slot, std::integer_sequence<int, SLOTS...>) {
  constexpr Pair all[] = {{on_start<SLOTS>, on_start_here<SLOTS>, on_end<SLOTS>}...};
  return all[slot];
}

at::RecordFunctionCallback callback_of(int slot, const sealift_listen &how) {
  Pair pair = slot == CALIBRATION ? Pair{on_start<CALIBRATION>, nullptr, on_end<CALIBRATION>} : callbacks_of(slot, std::make_integer_sequence<int, NUM_SLOTS>());
  at::RecordFunctionCallback callback(how.this_thread_only != 0 ? pair.start_here : pair.start, pair.end);
  callback.needsInputs(how.needs_inputs != 0).samplingProb(how.probability);
  std::unordered_set<at::RecordScope, std::hash<at::RecordScope>> scopes;
  for (int scope = 0; scope < static_cast<int>(at::RecordScope::NUM_SCOPES); ++scope) {
    if ((how.scopes >> scope & 1) != 0) scopes.insert(static_cast<at::RecordScope>(scope));
  }
  callback.scopes(scopes);
  return callback;
}

// ---- the event source ------------------------------------------------------------------------------------------------------

int32_t listen(int32_t number, const sealift_listen *how) {
  Slot &slot = slots[number];
  slot.how = *how;
  registrations.fetch_add(1, std::memory_order_relaxed);
  seed_this_thread();
  slot.is_on.store(true, std::memory_order_release);
  const at::RecordFunctionCallback callback = callback_of(number, *how);
  if (how->this_thread_only != 0) {
    Local &local = thread.local[number];
    remove_local(local);
    local.generation = slot.generation.load(std::memory_order_relaxed);
    slot.handle = local.handle = at::addThreadLocalCallback(callback);
  } else {
    slot.handle = at::addGlobalCallback(callback);
  }
  return 1;
}

void unlisten(int32_t number) {
  Slot &slot = slots[number];
  if (slot.handle == at::INVALID_CALLBACK_HANDLE) return;
  slot.is_on.store(false, std::memory_order_relaxed);
  slot.generation.fetch_add(1, std::memory_order_release);
  if (slot.how.this_thread_only == 0) {
    at::removeCallback(slot.handle);
  } else if (thread.local[number].handle == slot.handle) {
    remove_local(thread.local[number]);
  }
  slot.handle = at::INVALID_CALLBACK_HANDLE;
}

struct PerCall {
  double all_ns = 1e9, hooks_ns = 1e9, rest_ns = 1e9;  // what a call takes; of that, our hooks; and what is left
};

// The least of some rounds: others use the machine, too.
template <class Body>
PerCall per_call(int calls, Body body) {
  PerCall least;
  for (int round = 0; round < 5; ++round) {
    const uint64_t begin = now_ns(), hooks_begin = thread.account.own_ns();
    for (int i = 0; i < calls; ++i) body();
    const double all = static_cast<double>(now_ns() - begin) / calls, hooks = static_cast<double>(thread.account.own_ns() - hooks_begin) / calls;
    least = {std::min(least.all_ns, all), std::min(least.hooks_ns, hooks), std::min(least.rest_ns, all - hooks)};
  }
  return least;
}

// On a thread of its own with a callback of its own, in a scope that hardly anybody watches; observers of ours see nothing of it.
void measure(double, sealift_source_costs *out) {
  static sealift_source_costs known = {};  // the runtime asks one at a time
  if (known.sample_ns > 0) {
    *out = known;
    return;
  }
  std::thread([out] {
    Slot &slot = slots[CALIBRATION];
    thread.is_calibrating = true;
    const auto pass = [] {
      at::RecordFunction function(at::RecordScope::BUILD_FEATURE);
      if (function.isActive()) function.before("sealift::measure");
    };
    const at::ThreadLocalState plain;
    const auto guard = [](const at::ThreadLocalState &state) {
      return [&state] { const at::ThreadLocalStateGuard one(state); };
    };
    const double pass_before = per_call(2000, pass).all_ns, node_before = per_call(200, guard(plain)).all_ns;
    slot.how = {};
    slot.how.probability = 1e-9;
    slot.how.scopes = 1u << SEALIFT_SCOPE_BUILD_FEATURE;
    at::CallbackHandle handle = at::addThreadLocalCallback(callback_of(CALIBRATION, slot.how));
    const at::ThreadLocalState watched;
    const double passed = per_call(2000, pass).all_ns, node = per_call(200, guard(watched)).all_ns;
    at::removeCallback(handle);
    slot.how.probability = 1;
    handle = at::addThreadLocalCallback(callback_of(CALIBRATION, slot.how));
    const PerCall one = per_call(2000, pass);
    const at::CallbackHandle second = at::addThreadLocalCallback(callback_of(CALIBRATION, slot.how));
    const PerCall two = per_call(2000, pass);
    at::removeCallback(second);
    at::removeCallback(handle);
    const double rest = std::clamp(one.rest_ns - pass_before, 0.0, 300.0), each = std::clamp(two.rest_ns - one.rest_ns, 0.0, rest);
    // These hooks record nothing: what a sample adds to the tables is about as much again as one reading of the clock.
    hook_costs.own_ns.store(std::max(one.hooks_ns, 20.0) + RECORD_NS, std::memory_order_relaxed);
    hook_costs.once_ns.store(rest - each, std::memory_order_relaxed);
    hook_costs.each_ns.store(each, std::memory_order_relaxed);
    out->passed_ns = std::max(0.5, passed - pass_before);
    out->node_ns = std::max(0.0, node - node_before);
    out->sample_ns = std::max(20.0, one.all_ns - pass_before) + RECORD_NS;
  }).join();
  known = *out;
}

// A thread's first operator after a change copies PyTorch's list of callbacks under a lock that a forked child would find locked for ever. To ask for the
// list waits for whoever was interrupted in the middle of that.
void settle() { at::hasGlobalCallbacks(); }

const sealift_event_source SOURCE = {SEALIFT_OBSERVE_VERSION, sizeof(sealift_event_source), "torch " TORCH_VERSION, listen, unlisten, get_info, set_info, measure, settle};

// ---- model files -----------------------------------------------------------------------------------------------------------

void put_json(std::string &out, const std::string &text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

void note_archive(const std::string &key, const std::map<std::string, std::string> &metadata) {
  std::string json = "{\"event\": ";
  put_json(json, key);
  for (const auto &[name, value] : metadata) {
    json += ", ";
    put_json(json, name);
    json += ": ";
    put_json(json, value);
  }
  host->note_model_file((json + "}").c_str());
}

}  // namespace

}  // namespace sealift::bridge

using namespace sealift::bridge;

int sealift_torch_bridge_install(const sealift_observe_host *runtime) {
  if (runtime == nullptr || runtime->version != SEALIFT_OBSERVE_VERSION || runtime->struct_bytes < sizeof(sealift_observe_host)) return 0;
  if (host != nullptr) return 1;
  host = runtime;
  use_info_functions(runtime);
  c10::SetAPIUsageLogger([](const std::string &key) { host->log_api_usage(key.c_str()); });
  c10::SetAPIUsageMetadataLogger(note_archive);
  seed_this_thread();
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (host->attach(&SOURCE) != 0) return 1;
  host = nullptr;
  return 0;
}

const char *sealift_torch_bridge_torch_version(void) { return TORCH_VERSION; }

double sealift_torch_bridge_time_adds(int64_t calls) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor a = at::ones({1});
  at::Tensor out = at::ones({1});
  const uint64_t begin = cpu_ns();
  for (int64_t i = 0; i < calls; ++i) at::add_out(out, a, a);
  return static_cast<double>(cpu_ns() - begin) / static_cast<double>(calls);
}
