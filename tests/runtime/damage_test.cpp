// Damaged packages, thousands of them, in one process: every one is refused with a message or opens and runs right. Nothing crashes; run it
// under the sanitizers.
#define CHECK_MAIN
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include "fixture.h"

namespace {

std::string contents(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

struct MemoryFile {
  int fd = memfd_create("damaged", MFD_CLOEXEC);
  std::string path = "/proc/self/fd/" + std::to_string(fd);
  ~MemoryFile() { close(fd); }
  void write(const std::string &bytes) const {
    CHECK_EQUAL(ftruncate(fd, 0), 0);
    CHECK_EQUAL(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
};

// 0: refused; 1: opened, and then it must run right.
int attempt(const MemoryFile &file, const std::string &bytes) {
  file.write(bytes);
  char err[1024] = "";
  sealift_model *model = nullptr;
  const sealift_status status = sealift_open(file.path.c_str(), nullptr, &model, err, sizeof err);
  if (status != SEALIFT_OK) {
    CHECK(model == nullptr && err[0] == '[' && std::strchr(err, '\n') == nullptr);
    CHECK_CONTAINS(std::string(err), "help:");
    CHECK(status == SEALIFT_ERROR_PACKAGE || status == SEALIFT_ERROR_INTEGRITY || status == SEALIFT_ERROR_VERSION);
    return 0;
  }
  sealift_context *context = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_context_create(model, &context, err, sizeof err)), 0);
  Floats x({4, 4}, F32), y({4, 3}, F32);
  fill_linear(x);
  CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
  CHECK(is_linear(y));
  sealift_context_destroy(context);
  sealift_close(model);
  return 1;
}

}  // namespace

TEST(truncated) {
  const std::string whole = contents(package("linear"));
  const MemoryFile file;
  CHECK_EQUAL(attempt(file, whole), 1);
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 40) CHECK_EQUAL(attempt(file, whole.substr(0, length)), 0);
  for (std::size_t cut = 1; cut < 1200; cut += 3) CHECK_EQUAL(attempt(file, whole.substr(0, whole.size() - cut)), 0);
  CHECK_EQUAL(attempt(file, whole + "x"), 0);
  CHECK_EQUAL(attempt(file, "x" + whole), 0);
}

TEST(one_byte_changed) {
  const std::string whole = contents(package("linear"));
  const MemoryFile file;
  std::size_t opened = 0, tried = 0;
  for (std::size_t offset = 0; offset < whole.size(); offset += whole.size() - offset < 2500 ? 1 : 37, ++tried) {
    std::string bytes = whole;
    bytes[offset] = static_cast<char>(bytes[offset] ^ (1 << (offset % 8)));
    opened += static_cast<std::size_t>(attempt(file, bytes));
  }
  // What may change unseen is padding, time stamps and the like; test_package_reading.py tells exactly which.
  CHECK(opened < tried / 3);
}

TEST(many_bytes_changed) {
  const std::string whole = contents(package("linear"));
  const std::size_t tail = 2500;
  const MemoryFile file;
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = whole;
    // The directory at the end is where damage can mislead.
    for (unsigned change = 0; change < 1 + random() % 8; ++change) {
      const std::size_t offset = round % 4 == 0 ? random() % bytes.size() : bytes.size() - 1 - random() % tail;
      static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff, 0x50, '/', '.'};
      bytes[offset] = static_cast<char>(random() % 2 == 0 ? values[random() % 8] : random());
    }
    attempt(file, bytes);
  }
}
