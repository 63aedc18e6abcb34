/* Nanoseconds of one sealift_run_into: bench_run <package of MODEL_LINEAR> [threads]. The least of nine rounds. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sealift.h"

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
  char err[512] = "";
  sealift_open_options options;
  sealift_open_options_init(&options);
  options.num_threads = argc > 2 ? atoi(argv[2]) : 1;
  sealift_model *model = NULL;
  sealift_context *context = NULL;
  if (argc < 2 || sealift_open(argv[1], &options, &model, err, sizeof err) != SEALIFT_OK ||
      sealift_context_create(model, &context, err, sizeof err) != SEALIFT_OK) {
    fprintf(stderr, "%s\n", err);
    return 1;
  }
  enum { ROUNDS = 9,
         RUNS = 200000,
         BATCH = 1 };
  static float x_data[BATCH * 4], y_data[BATCH * 3];
  int64_t x_shape[] = {BATCH, 4}, y_shape[] = {BATCH, 3}, x_strides[] = {4, 1}, y_strides[] = {3, 1};
  const DLTensor x = {x_data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, x_shape, x_strides, 0},
                 y = {y_data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, y_shape, y_strides, 0};
  double best = 1e30;
  for (int round = 0; round < ROUNDS; ++round) {
    const double start = now_ns();
    for (int i = 0; i < RUNS; ++i) {
      if (sealift_run_into(context, 1, &x, 1, &y, err, sizeof err) != SEALIFT_OK) return 1;
    }
    const double each = (now_ns() - start) / RUNS;
    best = each < best ? each : best;
  }
  printf("%.1f ns\n", best);
  sealift_context_destroy(context);
  sealift_close(model);
  return 0;
}
