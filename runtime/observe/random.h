// Random numbers of the process: seeded by the system, and anew in a forked child, so that no two processes draw the same.
#pragma once

#include <stdint.h>

namespace sealift::observe {

uint64_t system_random();

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
class Random {
 public:
  Random() : state_(system_random()) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

}  // namespace sealift::observe
