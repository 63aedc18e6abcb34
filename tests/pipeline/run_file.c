/* run_file PACKAGE INPUTS OUTPUTS: runs a package's model once on one thread and prints the instruction set that ran.
 * INPUTS: int64 count, then for each tensor int64 code, bits, rank, sizes[rank] (DLPack's numbers) and its bytes. OUTPUTS: each tensor's bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "sealift.h"

#define MAX_TENSORS 8

static int64_t read_number(FILE *file) {
  int64_t number = -1;
  if (fread(&number, sizeof number, 1, file) != 1) exit(4);
  return number;
}

int main(int argc, char **argv) {
  static int64_t sizes[MAX_TENSORS][16];
  DLTensor inputs[MAX_TENSORS];
  DLManagedTensorVersioned *outputs[MAX_TENSORS] = {0};
  char error[512] = "";
  sealift_open_options options;
  sealift_model *model = NULL;
  sealift_context *context = NULL;
  if (argc != 4) return 2;
  sealift_open_options_init(&options);
  options.num_threads = 1;
  if (sealift_open(argv[1], &options, &model, error, sizeof error) != SEALIFT_OK) return fprintf(stderr, "%s\n", error), 3;
  FILE *file = fopen(argv[2], "rb");
  if (file == NULL) return 4;
  const int64_t count = read_number(file);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t code = read_number(file), bits = read_number(file), rank = read_number(file);
    int64_t bytes = bits / 8;
    for (int64_t d = 0; d < rank; ++d) bytes *= sizes[i][d] = read_number(file);
    void *data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64 + 64);
    if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes) return 4;
    const DLTensor tensor = {data, {kDLCPU, 0}, (int32_t)rank, {(uint8_t)code, (uint8_t)bits, 1}, sizes[i], NULL, 0};
    inputs[i] = tensor;
  }
  const int32_t num_outputs = sealift_num_outputs(model);
  if (sealift_context_create(model, &context, error, sizeof error) != SEALIFT_OK ||
      sealift_run(context, (int32_t)count, inputs, num_outputs, outputs, error, sizeof error) != SEALIFT_OK)
    return fprintf(stderr, "%s\n", error), 5;
  FILE *out = fopen(argv[3], "wb");
  for (int32_t i = 0; i < num_outputs; ++i) {
    const DLTensor *t = &outputs[i]->dl_tensor;
    size_t bytes = t->dtype.bits / 8;
    for (int32_t d = 0; d < t->ndim; ++d) bytes *= (size_t)t->shape[d];
    if (fwrite((const char *)t->data + t->byte_offset, 1, bytes, out) != bytes) return 6;
    outputs[i]->deleter(outputs[i]);
  }
  fclose(out);
  puts(sealift_model_isa(model));
  sealift_context_destroy(context);
  sealift_close(model);
  return 0;
}
