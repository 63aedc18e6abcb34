// The recorder's parts on a virtual clock, without Python and without torch.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "../../runtime/observe/random.h"
#include "../../runtime/observe/recorder.h"
#include "../../runtime/observe/schedule.h"
#include "../../runtime/observe/table.h"
#include "sealift_observe.h"

using namespace sealift::observe;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool SANITIZED = true;  // slow, and with memory of its own that grows
#else
constexpr bool SANITIZED = false;
#endif

long resident_kib() {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != nullptr && fscanf(file, "%ld %ld", &pages, &resident) == 2);
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct Totals {
  uint64_t count = 0, samples = 0, total_ns = 0, in_buckets = 0, overflow = 0;
  size_t text_bytes = 0;
  int series = 0;
};

Totals totals() {
  Totals all;
  sealift_recorder_visit(
      [](void *user, const sealift_series *series) {
        Totals &sum = *static_cast<Totals *>(user);
        ++sum.series;
        sum.count += series->count;
        sum.samples += series->samples;
        sum.total_ns += series->total_ns;
        sum.in_buckets += series->zero_count;
        if (strcmp(series->name, "(overflow)") == 0) sum.overflow += series->samples;
        // As JSON: about 200 bytes of names and numbers, 14 for each bucket that holds something.
        sum.text_bytes += 200 + strlen(series->name) + strlen(series->shapes) + strlen(series->model_id);
        for (int i = 0; i < SEALIFT_HISTOGRAM_BUCKETS; ++i) {
          sum.in_buckets += series->buckets[i];
          if (series->buckets[i] != 0) sum.text_bytes += 14;
        }
      },
      &all);
  return all;
}

void test_buckets() {
  // Against the definition: (2^(i/8), 2^((i+1)/8)], in long doubles, at every bound's neighbours.
  for (int i = 0; i < SEALIFT_HISTOGRAM_BUCKETS - 1; ++i) {
    const auto bound = static_cast<uint64_t>(floorl(powl(2, (i + 1) / 8.0L)));
    for (uint64_t ns = bound > 2 ? bound - 1 : 2; ns <= bound + 1; ++ns) {
      int expected = static_cast<int>(ceill(8 * log2l(static_cast<long double>(ns)) - 1e-12L)) - 1;
      if (expected >= SEALIFT_HISTOGRAM_BUCKETS) expected = SEALIFT_HISTOGRAM_BUCKETS - 1;
      CHECK(bucket_of(ns) == expected);
    }
  }
  CHECK(bucket_of(1) == 0 && bucket_of(2) == 7 && bucket_of(UINT64_MAX) == SEALIFT_HISTOGRAM_BUCKETS - 1);
}

// 24 hours at the default settings of a busy process: 100 samples a second (of 10,000 operators) of 120 operators under 8 models.
void test_a_day() {
  CHECK(open_recorder(2048, ""));
  std::vector<sealift_info *> models;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "ranker:" + std::to_string(i);
    const sealift_label labels[] = {{"model_id", name.c_str()}, {"request", "r"}};
    models.push_back(sealift_info_create(nullptr, 2, labels));
  }
  Random random;
  char name[64];
  long after_an_hour = 0;
  uint64_t events = 0, weighted = 0;
  for (int hour = 0; hour < (SANITIZED ? 1 : 24); ++hour) {
    for (int i = 0; i < 100 * 3600; ++i) {
      const int which = static_cast<int>(random.next() % 120);
      snprintf(name, sizeof name, "aten::operator_%d", which);
      // Each operator about its own time, within a factor of three mostly, and now and then ten times that.
      const double spread = random.uniform() + random.uniform() + random.uniform() - 1.5;
      const uint64_t dur_ns = static_cast<uint64_t>(500 * (which + 1) * exp(spread) * (random.next() % 1000 == 0 ? 10 : 1)), weight = 100;
      record({name, nullptr, nullptr, SEALIFT_SOURCE_TORCH, SEALIFT_SCOPE_FUNCTION, 0, dur_ns, weight, models[random.next() % 8], UINT64_MAX, SEALIFT_SAMPLE_COUNT, 0, 0});
      ++events;
      weighted += weight;
    }
    if (hour == 0) after_an_hour = resident_kib();
  }
  const Totals day = totals();
  CHECK(day.samples == events && day.count == weighted && day.in_buckets == weighted && day.overflow == 0);
  CHECK(day.series == 120 * 8);
  CHECK(day.text_bytes < 1000000);
  CHECK(SANITIZED || resident_kib() - after_an_hour < 512);
  printf("a day: %d series, snapshot %.0f kB, memory +%ld KiB after the first hour\n", day.series, static_cast<double>(day.text_bytes) / 1000,
         resident_kib() - after_an_hour);
  for (sealift_info *model : models) sealift_info_release(model);
  close_recorder();
}

// More names than there is room for, for long: bounded, and counted.
void test_ever_new_names() {
  CHECK(open_recorder(256, ""));
  char name[64], shapes[64];
  for (int i = 0; i < 200000; ++i) {
    snprintf(name, sizeof name, "op_%d", i % 1000);
    snprintf(shapes, sizeof shapes, "[%d]", i);
    record({name, nullptr, shapes, SEALIFT_SOURCE_TORCH, 0, 0, 10, 1, nullptr, UINT64_MAX, SEALIFT_SAMPLE_COUNT, 0, 0});
  }
  const Totals all = totals();
  CHECK(all.series == 256 && all.samples == 200000 && all.overflow == 200000 - 255);
  close_recorder();
}

// More threads than tables, coming and going, and a reader beside them: nothing is lost, and tables are used again.
void test_threads() {
  CHECK(open_recorder(64, ""));
  constexpr int ROUNDS = 3, THREADS = 300, EVENTS = 2000;
  for (int round = 0; round < ROUNDS; ++round) {
    std::vector<std::thread> threads;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, THREADS);
    for (int t = 0; t < THREADS; ++t) {
      threads.emplace_back([t, &barrier] {
        char name[32];
        snprintf(name, sizeof name, "op_%d", t % 40);
        for (int i = 0; i < EVENTS; ++i) {
          record({name, nullptr, nullptr, SEALIFT_SOURCE_TORCH, 0, 0, 100, 3, nullptr, UINT64_MAX, SEALIFT_SAMPLE_COUNT, 0, 0});
          if (i == 0) pthread_barrier_wait(&barrier);  // all have their tables at the same time
        }
      });
    }
    for (int i = 0; i < 20; ++i) CHECK(totals().count <= 3ull * THREADS * EVENTS * (round + 1));
    for (std::thread &thread : threads) thread.join();
    pthread_barrier_destroy(&barrier);
  }
  const Totals all = totals();
  CHECK(all.samples == 1ull * ROUNDS * THREADS * EVENTS && all.count == 3 * all.samples && all.in_buckets == all.count);
  CHECK(num_tables() == MAX_TABLES + 1);
  close_recorder();
}

[[maybe_unused]] void test_fork_storm() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.duty_cycle = 0.5;
  CHECK(sealift_recorder_start(&options, nullptr, 0) == SEALIFT_OK);
  bool stop = false;
  std::thread busy([&] {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) record({"op", nullptr, nullptr, SEALIFT_SOURCE_TORCH, 0, 0, 100, 1, nullptr, UINT64_MAX, SEALIFT_SAMPLE_COUNT, 0, 0});
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (totals().samples != 0) _exit(2);
      record({"op", nullptr, nullptr, SEALIFT_SOURCE_TORCH, 0, 0, 100, 1, nullptr, UINT64_MAX, SEALIFT_SAMPLE_COUNT, 0, 0});
      if (totals().samples != 1) _exit(3);
      sealift_recorder_state state = {};
      sealift_recorder_get_state(&state);
      if (state.fork_count != 1 || state.running != 1) _exit(4);
      sealift_recorder_stop();
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  busy.join();
  CHECK(totals().samples > 0);
  sealift_recorder_stop();
}

void test_windows_cover_each_moment_alike() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.budget = 0;
  Schedule schedule(options);
  Random random;
  int inside[20] = {}, bursts = 0;
  constexpr int PERIODS = 200000;
  for (int i = 0; i < PERIODS; ++i) {
    const Period period = schedule.draw(random);
    for (int m = 0; m < 20; ++m) {
      const double at = (m + 0.5) / 20 * PERIOD_NS;
      for (const Span &span : period.window) inside[m] += at >= span.begin && at < span.end;
    }
    bursts += period.burst.end > period.burst.begin;
  }
  for (const int hits : inside) CHECK(fabs(hits - PERIODS * 0.0625) < 5 * sqrt(PERIODS * 0.0625));  // the ends of a period, too
  CHECK(fabs(bursts * BURST_NS / (PERIODS * PERIOD_NS) - 0.005) < 0.0005);
}

void test_weights_are_exact() {
  for (const double p : {1.0, 0.5, 0.3, 0.1, 0.01, 0.0007}) {
    for (const double duty : {1.0, 0.3, 0.1, 0.001}) {
      sealift_recorder_options options;
      sealift_recorder_options_init(&options);
      options.sampling_probability = p;
      options.duty_cycle = duty;
      options.budget = 0;
      const Schedule schedule(options);
      CHECK(fabs(schedule.probability() * schedule.duty_cycle() * static_cast<double>(schedule.weight()) - 1) < 1e-12);
      CHECK(schedule.probability() <= 1 + 1e-12 && schedule.duty_cycle() <= 1);
      CHECK(fabs(schedule.probability() * schedule.duty_cycle() / (p * duty) - 1) < 0.5);
    }
  }
}

// Rates that change in the middle of periods, at moments that know nothing of the windows: what is recorded, times its weight, stays the truth.
void test_changed_rates_are_unbiased() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.budget = 0;
  Schedule schedule(options);
  Random random;
  double estimate = 0, moments = 0, variance = 0;
  for (int i = 0; i < 200000; ++i) {
    options.sampling_probability = 0.05 + 0.95 * random.uniform();
    options.duty_cycle = 0.05 + 0.95 * random.uniform();
    options.host_probability = i % 2 == 0 ? 1 : 0.3 + 0.7 * random.uniform();
    schedule.change(options);
    CHECK(schedule.probability() <= 1 + 1e-12 && schedule.duty_cycle() <= 1);
    const bool is_chosen = random.uniform() < options.host_probability;
    const Period period = schedule.draw(random);
    const double cut = random.uniform() * PERIOD_NS;  // the next change
    for (int m = 0; m < 10; ++m) {
      const double at = (m + 0.5) / 10 * PERIOD_NS;
      if (at > cut) break;
      ++moments;
      bool inside = false;
      for (const Span &span : period.window) inside = inside || (at >= span.begin && at < span.end);
      if (schedule.duty_cycle() >= 1) inside = true;
      const auto weight = static_cast<double>(schedule.weight());
      if (is_chosen && inside) estimate += weight * schedule.probability();
      variance += 10 * weight;  // ten moments of a window come together
    }
  }
  CHECK(fabs(estimate - moments) < 5 * sqrt(variance));
}

// Bursts cost what all operators would, times their share: they are held to theirs from the first full period on.
void test_bursts_are_held_to_their_part_of_the_budget() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  Schedule schedule(options);
  Random random;
  double spent = 0, passed = 0;
  for (int i = 0; i < 20000; ++i) {
    const Period period = schedule.draw(random);
    const double seconds = schedule.period_ns() * 1e-9, rate = 400000, ns = 1000;
    const double burst = (period.burst.end - period.burst.begin) / schedule.period_ns();
    const Cost cost{rate * ns * 1e-9 * schedule.probability() * rarity(schedule.probability()) * schedule.duty_cycle(), 0, rate * ns * 1e-9 * burst};
    spent += cost.total() * seconds;
    passed += seconds;
    schedule.adapt(cost);
  }
  CHECK(spent / passed < options.budget);
}

// A program that costs so and so much at each setting: the budget is kept within a few periods, and given back when the load falls.
void test_budget() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  Schedule schedule(options);
  const auto cost = [&](double rate, double nodes) {  // operators and nodes per second
    const double seen = rate * schedule.duty_cycle();
    return Cost{seen * schedule.probability() * rarity(schedule.probability()) * 250e-9, seen * 10e-9 + nodes * schedule.duty_cycle() * 200e-9, rate * schedule.burst_duty_cycle() * 250e-9};
  };
  CHECK(schedule.period_ns() == FIRST_PERIOD_NS);
  for (int i = 0; i < 30; ++i) schedule.adapt(cost(300000, 100000));
  CHECK(schedule.period_ns() == PERIOD_NS);
  CHECK(cost(300000, 100000).total() <= options.budget);
  CHECK(cost(300000, 100000).total() > options.budget / 4);
  for (int i = 0; i < 30; ++i) schedule.adapt(cost(1000, 0));
  CHECK(fabs(schedule.probability() - options.sampling_probability) < 0.02 && fabs(schedule.duty_cycle() - options.duty_cycle) < 0.02);
}

// Threads wake late, by more than a window is long: totals stay unbiased. 500 recorders of 600 periods.
void test_late_windows_are_made_up_for() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.budget = 0;
  options.duty_cycle = LEAST_DUTY_CYCLE;  // windows of a millisecond
  options.sampling_probability = 1;
  double sum = 0, squares = 0;
  constexpr int RUNS = 500, PERIODS = 600;
  for (int run = 0; run < RUNS; ++run) {
    Random random;
    Schedule schedule(options);
    double estimate = 0, calls = 0;
    for (int i = 0; i < PERIODS; ++i) {
      const Period period = schedule.draw(random);
      double on = 0, now = 0;
      for (const Span &span : {period.window[1], period.window[0]}) {  // in the order of time
        if (span.end <= span.begin) continue;
        const double begin = std::max(now, span.begin + 3e6 * random.uniform()), end = std::max(begin, span.end + 3e6 * random.uniform());
        on += end - begin;
        now = end;
      }
      const double length = std::max(now, schedule.period_ns() + 3e6 * random.uniform());
      estimate += on * static_cast<double>(schedule.weight()) * schedule.probability();
      calls += length;
      schedule.lasted(length, on);
    }
    const double error = estimate / calls - 1;
    sum += error;
    squares += error * error;
  }
  const double mean = sum / RUNS, deviation = sqrt(squares / RUNS - mean * mean);
  CHECK(fabs(mean) < 5 * deviation / sqrt(RUNS) + 0.02);  // what one late window stands for too much, a few periods of 600, is not made up for at the end
  CHECK(deviation < 0.1);
}

// A program that recording slows down does less inside windows than in the same time outside: windows are the longer for it. 200 recorders of 400
// periods; without the correction totals would be a third too low.
void test_what_recording_takes_is_made_up_for() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.budget = 0;
  constexpr double SLOWED = 1.5;  // a second's work takes so long where all is recorded
  constexpr int RUNS = 200, PERIODS = 400;
  double sum = 0;
  for (int run = 0; run < RUNS; ++run) {
    Random random;
    Schedule schedule(options);
    double estimate = 0, done = 0;
    for (int i = 0; i < PERIODS; ++i) {
      const Period period = schedule.draw(random);
      double on = 0;
      for (const Span &span : period.window) on += span.end - span.begin;
      const double recording = on - on / SLOWED;
      estimate += on / SLOWED * static_cast<double>(schedule.weight());
      done += schedule.period_ns() - recording;
      schedule.lasted(schedule.period_ns(), on, recording);
    }
    sum += estimate / done - 1;
  }
  CHECK(fabs(sum / RUNS) < 0.01);
}

// However much is owed, a window that goes on at the period's beginning ends before it begins there: two that touch would be switched in any order.
void test_no_two_windows_of_a_period_touch() {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.budget = 0;
  options.duty_cycle = 0.3;
  Random random;
  int wrapped = 0;
  for (int run = 0; run < 2000; ++run) {
    Schedule schedule(options);
    for (int i = 0; i < 10; ++i) {
      const Period period = schedule.draw(random);
      const Span &first = period.window[0], &rest = period.window[1];
      CHECK(first.begin >= 0 && first.end <= schedule.period_ns() && first.begin < first.end);
      if (rest.end <= rest.begin) continue;
      ++wrapped;
      CHECK(rest.begin <= 0 && rest.end < first.begin && first.end >= schedule.period_ns());
      schedule.lasted(schedule.period_ns(), schedule.period_ns() * options.duty_cycle * random.uniform());  // late windows: more and more is owed
    }
    schedule.lasted(schedule.period_ns() * 100, 0);
    const Period all = schedule.draw(random);
    CHECK(all.window[0].begin <= 0 && all.window[0].end >= schedule.period_ns() && all.window[1].end <= all.window[1].begin);
  }
  CHECK(wrapped > 1000);
}

}  // namespace

int main() {
  test_buckets();
  test_weights_are_exact();
  test_windows_cover_each_moment_alike();
  test_budget();
  test_late_windows_are_made_up_for();
  test_what_recording_takes_is_made_up_for();
  test_no_two_windows_of_a_period_touch();
  test_changed_rates_are_unbiased();
  test_bursts_are_held_to_their_part_of_the_budget();
  test_a_day();
  test_ever_new_names();
  // Not under the sanitizers: gcc 12's knows no threads that a forked child starts (thread), or leaves its own allocator locked there (address).
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  test_fork_storm();
#endif
  test_threads();
  puts("fine");
  return 0;
}
