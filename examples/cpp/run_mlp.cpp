// Runs the MLP of examples/mlp.py on the batch that its arguments give, and says how long the first answer took.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sealift.hpp>

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_mlp MODEL.pt2 [BATCH]\n");
    return 2;
  }
  try {
    const auto start = std::chrono::steady_clock::now();
    const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 8;
    sealift::Model model(argv[1]);
    sealift::Context context(model);
    std::vector<float> x(batch * 10, 1.0f), y(batch);
    context.run_into({sealift::view(x, {batch, 10})}, {sealift::view(y, {batch, 1})});
    const auto first = std::chrono::steady_clock::now();

    const int calls = 20000;
    for (int i = 0; i < calls; i++) context.run_into({sealift::view(x, {batch, 10})}, {sealift::view(y, {batch, 1})});
    const auto end = std::chrono::steady_clock::now();
    using us = std::chrono::duration<double, std::micro>;
    std::printf("%.7f  load and first answer %.2f ms, then %.2f us a call\n", static_cast<double>(y[0]), us(first - start).count() / 1e3,
                us(end - first).count() / calls);
  } catch (const sealift::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
