// sealift's own kernels as a source of events: the record points of runtime/src/record.h.
#include <new>
#include <vector>

#include "context_handle.h"
#include "info.h"
#include "recorder.h"
#include "series.h"
#include "sources.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

// Who listens at a slot, and how. Whoever began to hear a kernel hears its end, too, after the slot has changed hands: an ear is used again only
// when nobody is inside its callback any more. Waiting for that instead would hold up fork() in a callback for ever.
struct Ear {
  sealift_callback callback = 0;
  int slot = 0;
  sealift_listen how = {};
  int64_t thread = 0;
  uint64_t recording = 0;  // a run that began before the recorder was stopped is none of the next recording's
};
// With the control mutex.
Ear *ears[SEALIFT_OBSERVE_SLOTS] = {};
std::vector<Ear *> &left_ears() {
  static auto *one = new std::vector<Ear *>;  // never destroyed: kernels run until the very end of a process
  return *one;
}

Ear *free_ear() {
  std::vector<Ear *> &left = left_ears();
  for (Ear *&ear : left) {
    if (runtime::is_called(ear->callback)) continue;
    Ear *found = ear;
    ear = left.back();
    left.pop_back();
    return found;
  }
  return new (std::nothrow) Ear;
}

sealift_observed observed(const sealift_record &record, const Ear &ear) {
  sealift_observed event = {};
  event.struct_bytes = sizeof event;
  event.source = SEALIFT_SOURCE_KERNEL;
  event.scope = SEALIFT_SCOPE_KERNEL;
  event.name = record.kernel->name;
  event.overload = "";
  event.model_name = record.model_name;
  event.ops = record.kernel->ops;
  event.origin = record.kernel->origin;
  event.kernel_id = record.kernel->id;
  event.num_inputs = -1;
  event.sequence = -1;
  event.start_ns = record.start_ns;
  event.dur_ns = record.dur_ns;
  event.weight = ear.how.weight;
  return event;
}

bool is_heard(const Ear &ear) {
  ThreadState &state = thread_state();
  return state.shared.disabled == 0 && (ear.how.this_thread_only == 0 || ear.thread == thread_number(state));
}

void *enter_kernel(void *user, const sealift_record *record) {
  const Ear &ear = *static_cast<Ear *>(user);
  if (!is_heard(ear)) return nullptr;
  sealift_observed event = observed(*record, ear);
  event.thread_id = static_cast<uint64_t>(thread_number(thread_state()));
  return enter_observer(ear.slot, event);
}

void exit_kernel(void *user, void *token, const sealift_record *record) {
  if (token == nullptr) return;
  sealift_observed event = observed(*record, *static_cast<Ear *>(user));
  event.thread_id = static_cast<uint64_t>(thread_number(thread_state()));
  exit_observer(token, event);
}

uint64_t key_of(const sealift_record &record) {
  std::atomic<uint64_t> &known = static_cast<const sealift_context *>(record.context)->model->kernel_keys[static_cast<size_t>(record.kernel->id)];
  uint64_t key = known.load(std::memory_order_relaxed);
  if (__builtin_expect(key == 0, 0)) {
    key = kernel_key(*record.kernel);
    known.store(key, std::memory_order_relaxed);
  }
  return key;
}

void end_sampled_kernel(void *user, void *, const sealift_record *record) {
  const Ear &ear = *static_cast<Ear *>(user);
  if (!is_heard(ear) || ear.recording != recording_number()) return;
  sealift_info *info = current_info();
  // Kernels do not nest: all of their time is their own.
  record_kernel({record->kernel->name, nullptr, nullptr, SEALIFT_SOURCE_KERNEL, SEALIFT_SCOPE_KERNEL, record->start_ns, record->dur_ns, ear.how.weight,
                 info, record->dur_ns, ear.how.sample_flags, 0, 0},
                key_of(*record), *record->kernel);
  sealift_info_release(info);
}

}  // namespace

bool listen_to_kernels(int slot, const sealift_listen &how) {
  Ear *ear = free_ear();
  if (ear == nullptr) return false;
  ear->slot = slot;
  ear->how = how;
  ear->thread = thread_number(thread_state());
  ear->recording = recording_number();
  const bool records = how.sample_flags != 0;
  ear->callback = runtime::add_callback(records ? nullptr : enter_kernel, records ? end_sampled_kernel : exit_kernel, ear, how.probability);
  if (ear->callback == 0) {
    left_ears().push_back(ear);
    return false;
  }
  ears[slot] = ear;
  return true;
}

void unlisten_to_kernels(int slot) {
  Ear *ear = ears[slot];
  if (ear == nullptr) return;
  ears[slot] = nullptr;
  runtime::remove_callback(ear->callback, false);
  left_ears().push_back(ear);
}

}  // namespace sealift::observe
