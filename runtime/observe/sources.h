// Where events come from: sealift's own kernels always, and one attached source (PyTorch). Whoever listens, listens to both.
#pragma once

#include <mutex>

#include "sealift_observe.h"

namespace sealift::observe {

inline constexpr int OBSERVER_SLOTS = 16;

// Held while anything is registered or removed anywhere, and across fork(): so no lock of a source is held when the process forks.
std::mutex &control_mutex();

// All with the control mutex held.
bool listen(int slot, const sealift_listen &how);
void unlisten(int slot);
bool attach_source(const sealift_event_source &source);  // it is told who listens already
const sealift_event_source *attached_source();
// Until threads have seen the last change: PyTorch takes a lock of its own at a thread's first operator after each, and a child that is forked
// meanwhile would inherit it locked. At most 2 ms; a thread that runs its first operator just then can still be caught, as with any profiler.
void let_sources_settle();

// kernels.cpp: sealift's own kernels as a source.
bool listen_to_kernels(int slot, const sealift_listen &how);
void unlisten_to_kernels(int slot);

// observers.cpp: what sources call.
void *enter_observer(int slot, sealift_observed &event);
void exit_observer(void *token, sealift_observed &event);
void observers_after_fork();

}  // namespace sealift::observe
