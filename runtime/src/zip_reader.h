// The directory of a ZIP archive, read so that no bytes of it can harm: contracts/PACKAGE.md, rules 1 and 2.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "file.h"

namespace sealift::runtime {

struct ZipEntry {
  std::string name;  // below the top directory
  uint64_t data_offset, size_bytes;
};

struct ZipDirectory {
  std::string top;                // without the slash
  std::vector<ZipEntry> entries;  // sorted by name
};

// Failure E-PACKAGE-001 for whatever breaks a rule.
ZipDirectory read_zip(const File &file);

}  // namespace sealift::runtime
