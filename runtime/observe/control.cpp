// Starting, stopping and pacing the recorder. With a budget, a duty cycle or bursts, one thread sleeps until the next window begins or ends.
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "bursts.h"
#include "fork.h"
#include "recorder.h"
#include "schedule.h"
#include "series.h"
#include "sources.h"
#include "status.h"
#include "table.h"
#include "thread_state.h"
#include "trace.h"

#include "glibc_baseline.h"

namespace sealift::observe {

uint64_t system_random() {
  uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) == sizeof value) return value;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_nsec) ^ static_cast<uint64_t>(now.tv_sec) << 30 ^ static_cast<uint64_t>(getpid()) << 44;
}

namespace {

// Two windows and two bursts: an event on its way keeps the weight it was drawn with.
constexpr int WINDOW_SLOT = OBSERVER_SLOTS, BURST_SLOT = OBSERVER_SLOTS + 2, TRACE_SLOT = OBSERVER_SLOTS + 4;
constexpr uint64_t MAX_TRACED_CALLS = 1000000;

// Of a record point of sealift's own, measured by benchmarks/observe_overhead.py on an EPYC: upper values.
constexpr double KERNEL_SAMPLE_NS = 120, KERNEL_PASSED_NS = 1.5;
// Of a source that did not measure itself.
constexpr sealift_source_costs TORCH_COSTS = {250, 10, 150};
// A loop over one operator finds everything in the cache; a program does not. Training a small network with every operator recorded took 15 to 19 %
// longer, 1 to 1.4 us each (docs/observe-overhead.md), twice what the loop says or more; among operators that are not recorded, see rarity().
constexpr double COLD_FACTOR = 2.2;
// What a recorded operator costs over what its hooks take by their own clocks: the rest is PyTorch's, and what the program finds cold afterwards.
// 1.4 us over 0.75 us in the same training.
constexpr double UNSEEN_FACTOR = 1.8;

uint64_t clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

struct Meter {
  uint64_t wall_ns = 0, cpu_ns = 0;
  int tables = 0;
  Work work[MAX_TABLES + 1] = {};
};

// All with the control mutex, but for what is atomic.
struct Control {
  bool running = false, records = false, is_exiting = false, has_thread = false;
  sealift_recorder_options options = {};
  std::string labels;
  uint32_t scopes = 0;
  std::optional<Schedule> schedule;
  sealift_source_costs costs = TORCH_COSTS;
  uint64_t start_unix_ns = 0, start_ns = 0;
  double spent = 0, passed_ns = 0;  // overhead times time, and time
  int window = 0, burst = 0;        // which of the two slots; on when listening
  bool window_on = false, burst_on = false, step_on = false, trace_on = false;
  uint64_t changes = 0;  // of the rates: a period that was drawn before one is over
  double window_probability = 1;
  uint64_t window_begin_ns = 0;
  Meter before;
  Random random;
  pthread_t thread = {};
  uint64_t forks = 0;
  std::atomic<uint32_t> wake{0};  // changes when the thread has to look again
};

Control &control() {
  static auto *one = new Control;  // never destroyed: its thread sleeps in it
  return *one;
}

void end_window(Control &c) {
  if (c.window_on) unlisten(WINDOW_SLOT + c.window);
  c.window_on = false;
}

void start_window(Control &c, double probability, uint64_t weight, int32_t flags) {
  end_window(c);  // a slot that is left for the other while it listens would listen for ever
  c.window ^= 1;
  c.window_probability = probability;
  c.window_on = listen(WINDOW_SLOT + c.window, {probability, weight, c.scopes, c.options.shapes, 0, flags});
  c.window_begin_ns = clock_ns(CLOCK_MONOTONIC);
}

void start_burst(Control &c, uint64_t weight, int32_t flags) {
  next_burst();
  c.burst ^= 1;
  c.burst_on = listen(BURST_SLOT + c.burst, {1.0, weight, c.scopes, c.options.shapes, 0, flags});
}

void end_burst(Control &c) {
  if (c.burst_on) unlisten(BURST_SLOT + c.burst);
  c.burst_on = false;
}

double cost_ns(const Control &c, const Work &work, Cost &cost) {
  const double p = c.window_probability;
  const auto torch = static_cast<double>(work.torch_samples), kernels = static_cast<double>(work.kernel_samples), nodes = static_cast<double>(work.nodes);
  cost.samples += std::max(torch * c.costs.sample_ns * rarity(p), static_cast<double>(work.spent_ns) * UNSEEN_FACTOR) + kernels * KERNEL_SAMPLE_NS * rarity(p);
  cost.fixed += torch / p * c.costs.passed_ns + kernels / p * KERNEL_PASSED_NS + nodes / p * c.costs.node_ns;
  cost.bursts += static_cast<double>(work.burst_samples) * c.costs.sample_ns;
  cost.traced += static_cast<double>(work.traced) * c.costs.sample_ns;
  return cost.total();
}

// What recording cost since the meter was set, as a share of running time: of the processor time that the process took, or of a thread's wall
// time, whichever is worse. (Threads that spin make the first look small, threads that sleep the second.)
Cost cost_since(const Control &c, const Meter &before, const Meter &now) {
  const double wall = std::max(1.0, static_cast<double>(now.wall_ns - before.wall_ns)), cpu = std::max(1e5, static_cast<double>(now.cpu_ns - before.cpu_ns));
  Cost all = {}, worst = {};
  for (int i = 0; i < now.tables; ++i) {
    const Work &is = now.work[i], &was = before.work[i];
    Cost one = {};
    cost_ns(c, {is.torch_samples - was.torch_samples, is.kernel_samples - was.kernel_samples, is.burst_samples - was.burst_samples, is.nodes - was.nodes, is.traced - was.traced, is.spent_ns - was.spent_ns}, one);
    all.samples += one.samples;
    all.fixed += one.fixed;
    all.bursts += one.bursts;
    all.traced += one.traced;
    if (one.total() > worst.total()) worst = one;
  }
  const bool by_cpu = all.total() / cpu > worst.total() / wall;
  const Cost &chosen = by_cpu ? all : worst;
  const double time = by_cpu ? cpu : wall;
  return {chosen.samples / time, chosen.fixed / time, chosen.bursts / time, chosen.traced / time};
}

Meter read_meter() {
  Meter now;
  now.wall_ns = clock_ns(CLOCK_MONOTONIC);
  now.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  now.tables = num_tables();
  for (int i = 0; i < now.tables; ++i) now.work[i] = work_of_table(i);
  return now;
}

// Ends a stretch of one set of rates: what it cost counts from here on.
Cost measure(Control &c) {
  const Meter now = read_meter();
  const Cost cost = cost_since(c, c.before, now);
  const auto wall_ns = static_cast<double>(now.wall_ns - c.before.wall_ns);
  c.spent += cost.total() * wall_ns;
  c.passed_ns += wall_ns;
  c.before = now;
  return cost;
}

// Of all the time since the start. Whoever asks takes nothing from what adapt() is to see.
double overhead(const Control &c) {
  double spent = c.spent, passed_ns = c.passed_ns;
  if (c.running) {
    const Meter now = read_meter();
    const auto wall_ns = static_cast<double>(now.wall_ns - c.before.wall_ns);
    spent += cost_since(c, c.before, now).total() * wall_ns;
    passed_ns += wall_ns;
  }
  return passed_ns > 0 ? spent / passed_ns : 0;
}

void reset_meter(Control &c) {
  c.before = Meter{};
  c.before.wall_ns = clock_ns(CLOCK_MONOTONIC);
  c.before.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  c.spent = c.passed_ns = 0;
}

void follow_schedule(Control &c) {
  const Schedule &schedule = *c.schedule;
  if (!c.records || c.options.every != SEALIFT_EVERY_OPERATOR) return;
  end_window(c);  // also where windows begin instead of one that lasts
  if (!schedule.has_windows()) start_window(c, schedule.probability(), schedule.weight(), SEALIFT_SAMPLE_COUNT);
}

// Sleeps until then. False: the recorder stopped, or its rates changed.
bool sleep_until(Control &c, uint64_t deadline_ns, std::unique_lock<std::mutex> &lock) {
  const uint64_t changes = c.changes;
  for (;;) {
    if (!c.running || c.is_exiting || c.changes != changes) return false;
    const uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now >= deadline_ns) return true;
    const uint32_t seen = c.wake.load(std::memory_order_relaxed);
    lock.unlock();
    const uint64_t left = deadline_ns - now;
    const timespec timeout{static_cast<time_t>(left / 1000000000u), static_cast<long>(left % 1000000000u)};
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&c.wake), FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
    lock.lock();
  }
}

// What a period took, and its windows of that.
struct Lasted {
  uint64_t ns = 0, on_ns = 0;
};

bool run_period(Control &c, std::unique_lock<std::mutex> &lock, Lasted &lasted) {
  Schedule &schedule = *c.schedule;
  const Period period = c.records ? schedule.draw(c.random) : Period{};
  struct Moment {
    double at;
    int what;  // 0 window begins, 1 window ends, 2 burst begins, 3 burst ends
  };
  Moment moments[6];
  int count = 0;
  auto add = [&](double at, int what) {  // in the order of time; of two at once the first added is first
    int place = count++;
    for (; place > 0 && moments[place - 1].at > at; --place) moments[place] = moments[place - 1];
    moments[place] = {at, what};
  };
  for (const Span &span : period.window) {
    if (span.end > span.begin) add(span.begin, 0), add(span.end, 1);
  }
  if (period.burst.end > period.burst.begin) add(period.burst.begin, 2), add(period.burst.end, 3);
  const uint64_t begin = clock_ns(CLOCK_MONOTONIC);
  const bool bursts_count = c.options.every == SEALIFT_EVERY_BURST;
  for (int i = 0; i < count; ++i) {
    if (!sleep_until(c, begin + static_cast<uint64_t>(moments[i].at), lock)) return false;
    switch (moments[i].what) {
      case 0: start_window(c, schedule.probability(), schedule.weight(), SEALIFT_SAMPLE_COUNT); break;
      case 1:
        lasted.on_ns += c.window_on ? clock_ns(CLOCK_MONOTONIC) - c.window_begin_ns : 0;
        end_window(c);
        break;
      case 2: start_burst(c, bursts_count ? schedule.burst_weight() : 1, bursts_count ? SEALIFT_SAMPLE_COUNT | SEALIFT_SAMPLE_SELF : SEALIFT_SAMPLE_SELF); break;
      default: end_burst(c);
    }
  }
  if (!sleep_until(c, begin + static_cast<uint64_t>(schedule.period_ns()), lock)) return false;
  lasted.ns = clock_ns(CLOCK_MONOTONIC) - begin;
  return true;
}

void *thread_main(void *) {
  prctl(PR_SET_NAME, "sealift-observe", 0, 0, 0);
  Control &c = control();
  std::unique_lock<std::mutex> lock(control_mutex());
  while (c.running && !c.is_exiting) {
    Lasted lasted;
    if (!run_period(c, lock, lasted)) continue;
    const Cost cost = measure(c);
    if (!c.records) continue;  // others stand for this time, and it says nothing of what recording would cost
    const auto ns = static_cast<double>(lasted.ns), on_ns = static_cast<double>(lasted.on_ns);
    c.schedule->lasted(ns, on_ns, std::min(cost.samples * ns, on_ns / 2));
    if (c.schedule->adapt(cost)) follow_schedule(c);
  }
  return nullptr;
}

bool start_thread(Control &c) {
  if (!runtime::can_make_threads()) return false;
  uint64_t all = ~uint64_t{0}, before = 0;  // signals belong to the application's own threads
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  c.has_thread = pthread_create(&c.thread, nullptr, thread_main, nullptr) == 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  return c.has_thread;
}

void end_trace(Control &c) {
  if (c.trace_on) unlisten(TRACE_SLOT);
  c.trace_on = false;
  close_trace();
}

void wake_thread(Control &c) {
  c.wake.fetch_add(1, std::memory_order_relaxed);
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&c.wake), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// The process ends: sources may be gone any moment, so nothing is registered or removed any more.
void stop_at_exit() {
  Control &c = control();
  if (!runtime::can_make_threads()) return;
  for (int i = 0; i < 100; ++i) {
    if (control_mutex().try_lock()) {
      c.is_exiting = true;
      end_window(c);
      end_burst(c);
      end_trace(c);
      close_recorder();
      control_mutex().unlock();
      wake_thread(c);
      return;
    }
    usleep(1000);
  }
  c.is_exiting = true;
}

sealift_status check(const sealift_recorder_options &o, runtime::ErrorText err) {
  const auto is_share = [](double value) { return value > 0 && value <= 1; };
  if (o.struct_bytes < sizeof(sealift_recorder_options)) return fail(err, SEALIFT_ERROR_ARGUMENT, "struct_bytes is not sizeof(sealift_recorder_options); help: use sealift_recorder_options_init");
  if (!is_share(o.sampling_probability)) return fail(err, SEALIFT_ERROR_ARGUMENT, "sampling probability %g; help: above 0, at most 1", o.sampling_probability);
  if (!is_share(o.duty_cycle)) return fail(err, SEALIFT_ERROR_ARGUMENT, "duty cycle %g; help: above 0, at most 1", o.duty_cycle);
  if (!is_share(o.host_probability)) return fail(err, SEALIFT_ERROR_ARGUMENT, "host probability %g; help: above 0, at most 1", o.host_probability);
  if (!(o.budget >= 0 && o.budget < 1)) return fail(err, SEALIFT_ERROR_ARGUMENT, "budget %g; help: a share of running time, 0.003, or 0 for no limit", o.budget);
  if (!(o.burst_duty_cycle >= 0 && o.burst_duty_cycle <= 1)) return fail(err, SEALIFT_ERROR_ARGUMENT, "burst duty cycle %g; help: from 0 to 1", o.burst_duty_cycle);
  if (o.every < SEALIFT_EVERY_OPERATOR || o.every > SEALIFT_EVERY_STEP) return fail(err, SEALIFT_ERROR_ARGUMENT, "every is %d; help: a sealift_every", static_cast<int>(o.every));
  if (o.max_series < 0 || o.max_series > MAX_SERIES_LIMIT) return fail(err, SEALIFT_ERROR_ARGUMENT, "max_series is %d; help: at most %d, 0 for 2048", static_cast<int>(o.max_series), MAX_SERIES_LIMIT);
  return SEALIFT_OK;
}

}  // namespace

void control_after_fork() {
  Control &c = control();
  c.random = Random();
  ++c.forks;
  c.has_thread = false;
  c.start_unix_ns = clock_ns(CLOCK_REALTIME);
  reset_meter(c);
  end_trace(c);
  if (!c.running || c.is_exiting) return;
  const bool is_paced = c.records && c.schedule->needs_clock();
  if (is_paced) {
    if (c.schedule->has_windows()) end_window(c);
    end_burst(c);
    start_thread(c);
  }
}

// ---- what sources cost -----------------------------------------------------------------------------------------------------

void measure_source() {
  Control &c = control();
  const sealift_event_source *source = attached_source();
  if (source == nullptr || source->measure == nullptr) return;
  sealift_source_costs costs = TORCH_COSTS;
  source->measure(c.options.sampling_probability, &costs);
  c.costs = {costs.sample_ns * COLD_FACTOR, costs.passed_ns * COLD_FACTOR, costs.node_ns * COLD_FACTOR};
}

}  // namespace sealift::observe

using namespace sealift::observe;

void sealift_recorder_options_init(sealift_recorder_options *options) {
  *options = {sizeof(sealift_recorder_options), 1, 0.0625, 0.003, 0.005, 1, 0, 0, nullptr, 0, SEALIFT_EVERY_OPERATOR};
}

sealift_status sealift_recorder_start(const sealift_recorder_options *options, char *err, size_t err_len) {
  const sealift::runtime::ErrorText error{err, err_len};
  sealift_recorder_options chosen;
  sealift_recorder_options_init(&chosen);
  if (options != nullptr) chosen = *options;
  const sealift_status status = check(chosen, error);
  if (status != SEALIFT_OK) return status;
  if (inside_callback()) return fail(error, SEALIFT_ERROR_BUSY, "the recorder cannot be started inside a callback; help: start it outside");
  handle_fork();
  const std::lock_guard<std::mutex> lock(control_mutex());
  Control &c = control();
  if (c.running) return fail(error, SEALIFT_ERROR_BUSY, "the recorder is running; help: stop it first, or take a snapshot of what runs");
  if (trace_is_kept()) return fail(error, SEALIFT_ERROR_BUSY, "a trace's calls are not freed; help: sealift_recorder_trace_free");
  static bool handles_exit = false;
  if (!handles_exit) handles_exit = atexit(stop_at_exit) == 0;
  c.labels = chosen.labels != nullptr ? chosen.labels : "";
  c.options = chosen;
  c.options.labels = c.labels.c_str();
  c.scopes = chosen.scopes != 0 ? chosen.scopes : 1u << SEALIFT_SCOPE_FUNCTION | 1u << SEALIFT_SCOPE_KERNEL;
  measure_source();
  if (!open_recorder(chosen.max_series != 0 ? chosen.max_series : 2048, c.labels.c_str())) return fail(error, SEALIFT_ERROR_MEMORY, "no memory for the recorder");
  c.schedule.emplace(chosen);
  c.running = true;
  c.start_unix_ns = clock_ns(CLOCK_REALTIME);
  c.start_ns = clock_ns(CLOCK_MONOTONIC);
  c.window_probability = c.schedule->probability();
  reset_meter(c);
  c.records = c.random.uniform() < chosen.host_probability;
  if (!c.records) return SEALIFT_OK;
  follow_schedule(c);
  if (c.options.every == SEALIFT_EVERY_OPERATOR && !c.schedule->has_windows() && !c.window_on) {
    c.running = false;
    close_recorder();
    return fail(error, SEALIFT_ERROR_MEMORY, "all places for callbacks are taken; help: remove one");
  }
  if (c.schedule->needs_clock() && c.options.every != SEALIFT_EVERY_STEP && !start_thread(c)) {
    c.running = false;
    end_window(c);
    close_recorder();
    return fail(error, SEALIFT_ERROR_MEMORY, "no thread can be started to pace the recorder; help: duty_cycle=1, budget=0 and no bursts need none");
  }
  return SEALIFT_OK;
}

void sealift_recorder_rates_init(sealift_recorder_rates *rates) { *rates = {sizeof(sealift_recorder_rates), -1, -1, -1, -1, -1, -1}; }

sealift_status sealift_recorder_adjust(const sealift_recorder_rates *rates, char *err, size_t err_len) {
  const sealift::runtime::ErrorText error{err, err_len};
  if (rates == nullptr || rates->struct_bytes < sizeof(sealift_recorder_rates))
    return fail(error, SEALIFT_ERROR_ARGUMENT, "rates is NULL, or struct_bytes is not sizeof(sealift_recorder_rates); help: use sealift_recorder_rates_init");
  if (inside_callback()) return fail(error, SEALIFT_ERROR_BUSY, "the recorder cannot be adjusted inside a callback; help: do it outside");
  Control &c = control();
  const std::lock_guard<std::mutex> lock(control_mutex());
  if (!c.running) return fail(error, SEALIFT_ERROR_ARGUMENT, "the recorder does not run; help: sealift_recorder_start");
  sealift_recorder_options wanted = c.options;
  const auto take = [](double &value, double given) { value = given < 0 ? value : given; };
  take(wanted.sampling_probability, rates->sampling_probability);
  take(wanted.duty_cycle, rates->duty_cycle);
  take(wanted.budget, rates->budget);
  take(wanted.burst_duty_cycle, rates->burst_duty_cycle);
  take(wanted.host_probability, rates->host_probability);
  const sealift_status status = check(wanted, error);
  if (status != SEALIFT_OK) return status;
  measure(c);
  // What was drawn with the old rates ends here, and keeps its weights.
  end_window(c);
  if (!c.step_on) end_burst(c);
  c.options = wanted;
  if (rates->records >= 0) c.records = rates->records != 0;
  c.schedule->change(c.options);
  ++c.changes;
  follow_schedule(c);
  if (!c.has_thread && c.records && c.schedule->needs_clock() && c.options.every != SEALIFT_EVERY_STEP && !start_thread(c))
    return fail(error, SEALIFT_ERROR_MEMORY, "no thread can be started to pace the recorder; help: duty_cycle=1, budget=0 and no bursts need none");
  wake_thread(c);
  return SEALIFT_OK;
}

sealift_status sealift_recorder_trace_begin(uint64_t max_calls, char *err, size_t err_len) {
  const sealift::runtime::ErrorText error{err, err_len};
  if (inside_callback()) return fail(error, SEALIFT_ERROR_BUSY, "a trace cannot be begun inside a callback; help: do it outside");
  Control &c = control();
  const std::lock_guard<std::mutex> lock(control_mutex());
  if (!c.running) return fail(error, SEALIFT_ERROR_ARGUMENT, "the recorder does not run; help: sealift_recorder_start");
  if (trace_is_kept()) return fail(error, SEALIFT_ERROR_BUSY, "a trace is under way, or its calls are not freed; help: wait for it");
  if (!open_trace(max_calls != 0 ? max_calls : MAX_TRACED_CALLS)) return fail(error, SEALIFT_ERROR_MEMORY, "no memory for %llu calls; help: fewer", static_cast<unsigned long long>(max_calls));
  c.trace_on = listen(TRACE_SLOT, {1.0, 1, c.scopes, c.options.shapes, 0, SEALIFT_SAMPLE_TRACE});
  if (c.trace_on) return SEALIFT_OK;
  close_trace();
  sealift_recorder_trace_free();
  return fail(error, SEALIFT_ERROR_MEMORY, "all places for callbacks are taken; help: remove one");
}

uint64_t sealift_recorder_trace_end(uint64_t *lost) {
  {
    const std::lock_guard<std::mutex> lock(control_mutex());
    end_trace(control());
  }
  wait_for_records();
  return traced_calls(lost);
}

void sealift_recorder_stop(void) {
  Control &c = control();
  pthread_t thread;
  bool joins;
  {
    const std::lock_guard<std::mutex> lock(control_mutex());
    if (!c.running || inside_callback()) return;
    measure(c);
    c.running = false;
    end_window(c);
    end_burst(c);
    end_trace(c);
    c.step_on = false;
    close_recorder();
    joins = c.has_thread;
    c.has_thread = false;
    thread = c.thread;
  }
  wake_thread(c);
  if (joins) pthread_join(thread, nullptr);
}

void sealift_recorder_step(void) {
  if (!recorder_is_open() || inside_callback()) return;
  const std::lock_guard<std::mutex> lock(control_mutex());
  Control &c = control();
  if (!c.running || !c.records || c.options.every != SEALIFT_EVERY_STEP) return;
  if (c.step_on) end_burst(c);
  c.step_on = c.random.uniform() < c.schedule->probability();
  if (c.step_on) start_burst(c, c.schedule->weight(), SEALIFT_SAMPLE_COUNT | SEALIFT_SAMPLE_SELF);
}

void sealift_recorder_get_state(sealift_recorder_state *state) {
  const std::lock_guard<std::mutex> lock(control_mutex());
  Control &c = control();
  uint64_t samples = 0;
  for (int i = 0; i < num_tables(); ++i) {
    const Work work = work_of_table(i);
    samples += work.torch_samples + work.kernel_samples + work.burst_samples + work.traced;
  }
  const bool known = c.schedule.has_value();
  *state = {sizeof(sealift_recorder_state), c.running ? 1 : 0, c.start_unix_ns, known ? c.schedule->probability() : 1, known ? c.schedule->duty_cycle() : 1, overhead(c), samples, overflowed_samples(), dropped_samples(), c.forks, static_cast<int32_t>(num_series()), num_tables(), {sizeof(sealift_recorder_rates), c.options.sampling_probability, c.options.duty_cycle, c.options.budget, c.options.burst_duty_cycle, c.options.host_probability, c.records ? 1 : 0}, known ? c.schedule->burst_duty_cycle() : 0};
}
