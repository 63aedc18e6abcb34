#include "cpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sealift_model.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sealift::runtime {

#if defined(__x86_64__)
namespace {

struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r{0, 0, 0, 0};
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool has(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

// Which register files the operating system saves (XCR0).
uint64_t saved_state(uint32_t leaf1_ecx) {
  if (!has(leaf1_ecx, 27)) return 0;  // OSXSAVE
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

constexpr uint64_t XCR0_AVX = 0x6;      // XMM, YMM
constexpr uint64_t XCR0_AVX512 = 0xe6;  // and opmask, both ZMM halves
constexpr uint64_t XCR0_AMX = 0x60000;  // tile configuration, tile data
constexpr long ARCH_REQ_XCOMP_PERM = 0x1023;
constexpr long XFEATURE_XTILEDATA = 18;

uint32_t detect_isas() {
  uint32_t mask = 1u << SEALIFT_ISA_BASELINE;
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), extended = cpuid(0x80000001u, 0);
  const uint64_t saved = saved_state(one.ecx);
  const bool v3 = has(one.ecx, 12) && has(one.ecx, 22) && has(one.ecx, 23) && has(one.ecx, 28) && has(one.ecx, 29)  // FMA MOVBE POPCNT AVX F16C
                  && has(seven.ebx, 3) && has(seven.ebx, 5) && has(seven.ebx, 8)                                    // BMI1 AVX2 BMI2
                  && has(extended.ecx, 5) && (saved & XCR0_AVX) == XCR0_AVX;                                        // LZCNT
  if (!v3) return mask;
  mask |= 1u << SEALIFT_ISA_AVX2;
  const bool v4 = has(seven.ebx, 16) && has(seven.ebx, 17) && has(seven.ebx, 28) && has(seven.ebx, 30) && has(seven.ebx, 31)  // F DQ CD BW VL
                  && (saved & XCR0_AVX512) == XCR0_AVX512;
  if (!v4) return mask;
  mask |= 1u << SEALIFT_ISA_AVX512;
  // Linux gives the tile registers to a process that asks (the permission covers all its threads).
  if (has(seven.edx, 22) && has(seven.edx, 24) && (saved & XCR0_AMX) == XCR0_AMX &&
      syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) {
    mask |= 1u << SEALIFT_ISA_AMX;
  }
  return mask;
}

}  // namespace

uint32_t machine_isas() { return detect_isas(); }
bool has_sse42() { return has(cpuid(1, 0).ecx, 20); }
bool has_sha_ni() { return has(cpuid(7, 0).ebx, 29) && has(cpuid(1, 0).ecx, 19); }
#else
uint32_t machine_isas() { return 1u << SEALIFT_ISA_BASELINE; }
bool has_sse42() { return false; }
bool has_sha_ni() { return false; }
#endif

int32_t best_isa(uint32_t built, uint32_t machine) {
  for (int32_t isa = SEALIFT_ISA_COUNT - 1; isa >= 0; --isa) {
    if (((built & machine) >> isa) & 1u) return isa;
  }
  return -1;
}

const char *isa_name(int32_t isa) {
  static const char *const names[SEALIFT_ISA_COUNT] = {"baseline", "avx2", "avx512", "amx"};
  return isa >= 0 && isa < SEALIFT_ISA_COUNT ? names[isa] : "unknown";
}

const char *isa_names(uint32_t mask, char (&buffer)[64]) {
  buffer[0] = '\0';
  for (int32_t isa = 0; isa < SEALIFT_ISA_COUNT; ++isa) {
    if (((mask >> isa) & 1u) == 0) continue;
    const size_t used = strlen(buffer);
    snprintf(buffer + used, sizeof buffer - used, "%s%s", used == 0 ? "" : ", ", isa_name(isa));
  }
  return buffer[0] == '\0' ? "none" : buffer;
}

int32_t usable_cores() {
  unsigned long mask[128] = {0};  // 8192 CPUs: the kernel's largest configuration
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int32_t cores = 0;
  for (long i = 0; i < bytes / static_cast<long>(sizeof mask[0]); ++i) cores += __builtin_popcountl(mask[i]);
  return cores > 0 ? cores : 1;
}

}  // namespace sealift::runtime
