// Calls functions of generated libraries on recorded frames: what rows.py has the guest do. Outputs go to the I/O port 0xE9 as lines
// "@row CALL STATUS ERROR hex hex ...", which Bochs writes to its standard output.
//
//   run_rows CALLS
//
// CALLS: int64 calls; each: text library, text symbol, int64 sizes, the sizes, int64 inputs, the arrays, int64 outputs, their bytes (-1: none
// is written), int64 weights, the arrays, int64 arena bytes. A text or an array: int64 bytes, the bytes.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sealift_model.h"

namespace {

constexpr int64_t SCRATCH_BYTES = 1 << 24;

std::vector<char> g_bytes;
size_t g_at = 0;
sigjmp_buf g_before;

int64_t number() {
  int64_t value;
  memcpy(&value, g_bytes.data() + g_at, 8);
  g_at += 8;
  return value;
}
std::string text() {
  const size_t bytes = static_cast<size_t>(number());
  g_at += bytes;
  return std::string(g_bytes.data() + g_at - bytes, bytes);
}
char *aligned(size_t bytes) { return static_cast<char *>(aligned_alloc(64, (bytes + 127) / 64 * 64)); }
std::vector<char *> arrays() {
  std::vector<char *> made(static_cast<size_t>(number()));
  for (char *&each : made) {
    const std::string content = text();
    memcpy(each = aligned(content.size()), content.data(), content.size());
  }
  return made;
}
void say(const std::string &line) {
  for (const char c : line) outb(static_cast<unsigned char>(c), 0xE9);
}
void crashed(int signal) { siglongjmp(g_before, signal); }

} // namespace

int main(int argc, char **argv) {
  if (argc != 2 || ioperm(0xE9, 1, 1) != 0) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  g_bytes.assign(std::istreambuf_iterator<char>(file), {});
  for (const int each : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    struct sigaction action = {};
    action.sa_handler = crashed, action.sa_flags = SA_NODEFER;
    sigaction(each, &action, nullptr);
  }
  char *scratch = aligned(SCRATCH_BYTES);
  std::string loaded;
  void *library = nullptr;
  const int64_t calls = number();
  int crashes = 0;
  for (int64_t call = 0; call < calls; ++call) {
    const std::string name = text(), symbol = text();
    if (name != loaded) {
      if (library) dlclose(library);
      library = dlopen(("./" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library) {
        printf("%s\n", dlerror());
        return 3;
      }
      loaded = name;
    }
    std::vector<int64_t> sizes(static_cast<size_t>(number()) + 1);
    for (size_t i = 0; i + 1 < sizes.size(); ++i) sizes[i] = number();
    std::vector<char *> inputs = arrays(), outputs(static_cast<size_t>(number()));
    std::vector<int64_t> output_bytes;
    for (char *&each : outputs) {
      const int64_t bytes = number();
      output_bytes.push_back(bytes);
      if (bytes >= 0) each = static_cast<char *>(memset(aligned(static_cast<size_t>(bytes)), 0, static_cast<size_t>(bytes)));
    }
    std::vector<char *> weights = arrays();
    char *arena = aligned(static_cast<size_t>(number()));
    sealift_frame frame = {};
    frame.sizes = sizes.data(), frame.inputs = reinterpret_cast<const void *const *>(inputs.data());
    frame.outputs = reinterpret_cast<void *const *>(outputs.data()), frame.weights = reinterpret_cast<const void *const *>(weights.data());
    frame.arena = arena, frame.scratch = scratch, frame.scratch_stride_bytes = SCRATCH_BYTES;
    frame.num_workers = 1, frame.error_kernel = -1, frame.countdown = INT64_MAX;
    const auto run = reinterpret_cast<int32_t (*)(sealift_frame *)>(dlsym(library, symbol.c_str()));
    volatile int32_t status;
    if (const int signal = sigsetjmp(g_before, 1)) {
      status = 1000 + signal;
      crashes++;
    } else {
      status = run(&frame);
    }
    std::string line = "@row " + std::to_string(call) + " " + std::to_string(status) + " " + std::to_string(frame.error);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i]) line += " x";
      for (int64_t b = 0; b < output_bytes[i]; ++b) {
        const unsigned char byte = static_cast<unsigned char>(outputs[i][b]);
        line += "0123456789abcdef"[byte >> 4], line += "0123456789abcdef"[byte & 15];
      }
    }
    say(line + "\n");
    for (auto *list : {&inputs, &outputs, &weights})
      for (char *each : *list) free(each);
    free(arena);
  }
  printf("%ld calls, %d crashes\n", static_cast<long>(calls), crashes);
  return crashes != 0;
}
