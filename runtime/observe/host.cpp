// The table for event sources.
#include "fork.h"
#include "info.h"
#include "recorder.h"
#include "sources.h"
#include "thread_state.h"

namespace {

using namespace sealift::observe;

int32_t attach(const sealift_event_source *source) {
  handle_fork();
  const std::lock_guard<std::mutex> lock(control_mutex());
  if (!attach_source(*source)) return 0;
  if (recorder_is_open()) measure_source();
  return 1;
}

constexpr sealift_observe_host HOST = {
    SEALIFT_OBSERVE_VERSION,
    sizeof(sealift_observe_host),
    [] { return &thread_state().shared; },
    attach,
    [](int32_t slot, sealift_observed *event) { return enter_observer(slot, *event); },
    [](void *token, sealift_observed *event) { exit_observer(token, *event); },
    [](const sealift_sample *sample) { record(*sample); },
    drop,
    current_info,
    sealift_info_retain,
    sealift_info_release,
    sealift_log_api_usage_once,
    sealift_note_model_file,
};

}  // namespace

const sealift_observe_host *sealift_observe_get_host(uint32_t version) { return version == SEALIFT_OBSERVE_VERSION ? &HOST : nullptr; }
