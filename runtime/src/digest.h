// The two digests that seal a package: SHA-256 (FIPS 180-4) and CRC-32C (Castagnoli, RFC 3720).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

namespace sealift::runtime {

class Sha256 {
 public:
  Sha256();
  void update(const void *data, size_t bytes);
  std::string hex();  // ends it

 private:
  void blocks(const unsigned char *data, size_t count);

  uint32_t state_[8];
  unsigned char pending_[64];
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  bool sha_ni_;
};

// Of `data` after bytes whose CRC is `before`. Uses SSE4.2 where the machine has it.
uint32_t crc32c(const void *data, size_t bytes, uint32_t before = 0);
uint32_t crc32c_portable(const void *data, size_t bytes, uint32_t before = 0);

std::string crc32c_hex(uint32_t crc);

}  // namespace sealift::runtime
