// sealift's own kernels as a source of events: the record points of runtime/src/record.h.
#include "context_handle.h"
#include "info.h"
#include "recorder.h"
#include "sources.h"
#include "thread_state.h"

namespace sealift::observe {

namespace {

struct Ear {
  sealift_callback callback = 0;
  int slot = 0;
  sealift_listen how = {};
  int64_t thread = 0;
};
Ear ears[SEALIFT_OBSERVE_SLOTS];

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

// "aten.mm, aten.gelu @ model.py:12 encoder.layer.0", cut where it is long: kernels of a model differ in their names already.
void write_origin(const sealift_kernel_info &kernel, char *text, size_t size) {
  size_t used = 0;
  for (const char *part : {kernel.ops, " @ ", kernel.origin}) {
    for (; *part != '\0' && used + 1 < size; ++part) text[used++] = *part;
  }
  text[used] = '\0';
}

void record_kernel(void *user, void *, const sealift_record *record) {
  const Ear &ear = *static_cast<Ear *>(user);
  if (!is_heard(ear)) return;
  char origin[512];
  write_origin(*record->kernel, origin, sizeof origin);
  sealift_info *info = current_info();
  // Kernels do not nest: all of their time is their own.
  observe::record({record->kernel->name, origin, nullptr, SEALIFT_SOURCE_KERNEL, SEALIFT_SCOPE_KERNEL, record->start_ns, record->dur_ns, ear.how.weight,
                   info, record->dur_ns, ear.how.sample_flags});
  sealift_info_release(info);
}

}  // namespace

bool listen_to_kernels(int slot, const sealift_listen &how) {
  Ear &ear = ears[slot];
  ear.slot = slot;
  ear.how = how;
  ear.thread = thread_number(thread_state());
  const bool records = how.sample_flags != 0;
  ear.callback = runtime::add_callback(records ? nullptr : enter_kernel, records ? record_kernel : exit_kernel, &ear, how.probability);
  return ear.callback != 0;
}

void unlisten_to_kernels(int slot) {
  if (ears[slot].callback != 0) runtime::remove_callback(ears[slot].callback);
  ears[slot].callback = 0;
}

}  // namespace sealift::observe
