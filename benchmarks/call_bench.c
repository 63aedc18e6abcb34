/* What a C program pays: `first` answers once, to be timed from outside; `loop` prints the nanoseconds of a call, the least of several rounds.
 *
 *   cc -O2 call_bench.c -I include -L lib -lsealift -o call_bench
 *   call_bench first|loop MODEL.pt2 THREADS ROWS COLUMNS OUTPUT_COLUMNS */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sealift.h"

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

#define CHECK(call)                \
  do {                             \
    if ((call) != SEALIFT_OK) {    \
      fprintf(stderr, "%s\n", err); \
      return 1;                    \
    }                              \
  } while (0)

int main(int argc, char **argv) {
  char err[1024] = "";
  if (argc != 7) return 2;
  const int64_t rows = atoll(argv[4]), columns = atoll(argv[5]), out_columns = atoll(argv[6]);
  sealift_open_options options;
  sealift_open_options_init(&options);
  options.num_threads = atoi(argv[3]);
  sealift_model *model;
  sealift_context *context;
  CHECK(sealift_open(argv[2], &options, &model, err, sizeof err));
  CHECK(sealift_context_create(model, &context, err, sizeof err));
  float *x = calloc((size_t)(rows * columns), sizeof *x), *y = calloc((size_t)(rows * out_columns), sizeof *y);
  int64_t in_shape[2] = {rows, columns}, out_shape[2] = {rows, out_columns};
  DLTensor input = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, in_shape, NULL, 0}, output = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
  CHECK(sealift_run_into(context, 1, &input, 1, &output, err, sizeof err));
  if (strcmp(argv[1], "first") == 0) {
    printf("%.7f\n", (double)y[0]);
    return 0;
  }
  double best = 1e18;
  for (int round = 0; round < 20; round++) {
    const int calls = 20000;
    const double start = now_ns();
    for (int i = 0; i < calls; i++) CHECK(sealift_run_into(context, 1, &input, 1, &output, err, sizeof err));
    const double took = (now_ns() - start) / calls;
    if (took < best) best = took;
  }
  printf("%.1f\n", best);
  sealift_context_destroy(context);
  sealift_close(model);
  free(x);
  free(y);
  return 0;
}
