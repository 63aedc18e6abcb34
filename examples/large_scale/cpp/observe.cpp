// The three programs of PyTorch's page "Features for large-scale deployments", on sealift's runtime: operators, API usage, model metadata.
#include <sealift_observe.h>
#include <sealift_torch_bridge.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstring>

namespace {

void on_api(void *, const char *key, uint64_t) { std::printf("uses %s\n", key); }

void on_export(void *, const char *module_type, sealift_put_file put, void *files) {
  const char json[] = "{\"producer\": \"trainer\"}";
  put(files, "producer_info.json", json, std::strlen(json));
  std::printf("stamps %s\n", module_type);
}

void print_series(void *, const sealift_series *series) {
  std::printf("%-16s %llu calls, %.1f us, model %s\n", series->name, static_cast<unsigned long long>(series->count),
              static_cast<double>(series->total_ns) / static_cast<double>(series->count) / 1000, series->model_id);
}

}  // namespace

int main(int argc, char **argv) {
  if (sealift_torch_bridge_install(sealift_observe_get_host(SEALIFT_OBSERVE_VERSION)) == 0) return 1;
  sealift_set_api_usage_handler(on_api, nullptr);
  sealift_torch_bridge_set_export_hook(on_export, nullptr);
  SEALIFT_LOG_API_USAGE_ONCE("my_service.start");

  sealift_recorder_options options;
  sealift_recorder_options_init(&options);  // the defaults are for services that run for months; this one is short
  options.sampling_probability = 1;
  options.duty_cycle = 1;
  options.budget = options.burst_duty_cycle = 0;
  char error[256];
  if (sealift_recorder_start(&options, error, sizeof error) != SEALIFT_OK) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }

  const sealift_label label = {"model_id", "ranker:7"};
  sealift_info *info = sealift_info_create(nullptr, 1, &label);
  sealift_info *before = sealift_info_exchange(info);
  torch::Tensor x = torch::ones({16, 64});
  for (int i = 0; i < 10; ++i) torch::relu(torch::mm(x, x.t()));
  sealift_info_release(sealift_info_exchange(before));
  sealift_info_release(before);
  sealift_info_release(info);

  sealift_recorder_stop();
  sealift_recorder_visit(print_series, nullptr);

  torch::jit::Module module("Model");
  module.define("def forward(self, x):\n    return x + 1\n");
  module.save(argc > 1 ? argv[1] : "model.ts");
  return 0;
}
