// A test program in one header: TEST(name) { CHECK(...); }, and main() in the file that defines CHECK_MAIN. Arguments choose tests by name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char *name;
  void (*body)();
};

inline std::vector<Test> &tests() {
  static std::vector<Test> all;
  return all;
}

struct Register {
  Register(const char *name, void (*body)()) { tests().push_back(Test{name, body}); }
};

[[noreturn]] inline void failed(const char *file, int line, const std::string &what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

inline void contains(const char *file, int line, const std::string &text, const std::string &part) {
  if (text.find(part) == std::string::npos) failed(file, line, "'" + text + "' does not contain '" + part + "'");
}

template <class A, class B>
void equal(const char *file, int line, const char *expression, const A &a, const B &b) {
  if (!(a == b)) failed(file, line, std::string(expression) + " differ: " + std::to_string(a) + " and " + std::to_string(b));
}

}  // namespace check

#define TEST(name)                                                  \
  static void test_##name();                                        \
  static const check::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(condition) (static_cast<bool>(condition) ? (void)0 : check::failed(__FILE__, __LINE__, "not true: " #condition))
#define CHECK_EQUAL(a, b) check::equal(__FILE__, __LINE__, #a " and " #b, a, b)
#define CHECK_CONTAINS(text, part) check::contains(__FILE__, __LINE__, text, part)

#ifdef CHECK_MAIN
int main(int argc, char **argv) {
  int run = 0;
  for (const check::Test &test : check::tests()) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; ++i) chosen = chosen || std::strcmp(argv[i], test.name) == 0;
    if (!chosen) continue;
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.body();
    ++run;
  }
  std::printf("%d tests passed\n", run);
  return run > 0 ? 0 : 1;
}
#endif
