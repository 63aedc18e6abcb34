// Record points: who listens, and when the next kernel of a context is due for each.
#pragma once

#include <stdint.h>

#include "sealift.h"
#include "sealift_model.h"

struct sealift_context;

namespace sealift::runtime {

inline constexpr int MAX_CALLBACKS = 72, MAX_USER_CALLBACKS = 16;  // observe's are beside the user's, with room for what lingers of them

// Changes when a callback is added or removed, and in a forked child.
uint64_t callbacks_version();

// A context's view: the callbacks it knows and how many kernels are left until each one's next record. The distances are drawn from the
// geometric distribution, so each kernel is recorded independently with the callback's probability, at no cost for those between.
class RecordStream {
 public:
  // At the start of a run: takes over callbacks added and removed since, and sets frame->countdown. Observe's own callbacks hear such a run to
  // its end, also where they are removed meanwhile: else the kernels at the end of a long run would be heard more rarely than the first.
  void begin_run(sealift_frame &frame) {
    if (__builtin_expect(version_ != callbacks_version(), 0)) refresh(frame);
    if (__builtin_expect(own_ != 0, 0)) hold();
  }
  void end_run() {
    if (__builtin_expect(is_holding_, 0)) let_go();
  }

  uint64_t begin(sealift_context &context, sealift_frame &frame, int32_t kernel);
  void end(sealift_context &context, int32_t kernel);

 private:
  struct Listener {
    uint64_t id;
    int64_t left;                 // kernels until its next record
    double probability, per_log;  // 1 / log(1 - probability)
    void *begun;
    uint64_t weight;
    int32_t slot;
    bool fired, is_own, is_held;
  };

  void refresh(sealift_frame &frame);
  void hold();
  void let_go();
  void arm(sealift_frame &frame);
  double random();  // in (0, 1]
  int64_t draw_distance(const Listener &listener);
  void draw_logs();

  uint64_t version_ = 1;  // as at the start of the process: nobody listens
  uint64_t forks_ = 0;
  uint64_t seed_ = 0;
  int64_t armed_ = INT64_MAX;
  uint64_t start_ns_ = 0;
  int32_t count_ = 0, own_ = 0;  // listeners, and those of observe's
  bool is_holding_ = false;
  int32_t logs_left_ = 0;
  double logs_[32];                         // of random numbers, drawn ahead: 32 in a row take a third of the time of 32 singly
  Listener listeners_[MAX_CALLBACKS] = {};  // the first `count_`: a record looks at nobody else
};

}  // namespace sealift::runtime
