#include <iostream>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

int main(int argc, char **argv) {
  c10::InferenceMode mode;
  torch::inductor::AOTIModelPackageLoader loader(argc > 1 ? argv[1] : "model.pt2");
  // The batch of the export, and another: both are right.
  std::vector<torch::Tensor> inputs = {torch::ones({8, 10}, at::kCPU)};
  std::vector<torch::Tensor> outputs = loader.run(inputs);
  std::cout << "Result from the first inference:" << std::endl;
  std::cout << outputs[0] << std::endl;
  std::cout << "Result from the second inference:" << std::endl;
  std::cout << loader.run({torch::ones({1, 10}, at::kCPU)})[0] << std::endl;
  return 0;
}
