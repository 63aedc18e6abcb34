#include "dtype.h"

#include <stdio.h>

namespace sealift::runtime {

const char *dtype_name(DLDataType type, char (&buffer)[32]) {
  for (int32_t dtype = 0; dtype < NUM_DTYPES; ++dtype) {
    if (is_dtype(type, dtype)) return DTYPES[dtype].name;
  }
  const char *kind = type.code == kDLInt       ? "int"
                     : type.code == kDLUInt    ? "uint"
                     : type.code == kDLFloat   ? "float"
                     : type.code == kDLComplex ? "complex"
                                               : nullptr;
  if (kind != nullptr && type.lanes == 1) {
    snprintf(buffer, sizeof buffer, "%s%d", kind, type.bits);
  } else {
    snprintf(buffer, sizeof buffer, "DLPack type %d/%d/%d", type.code, type.bits, type.lanes);
  }
  return buffer;
}

}  // namespace sealift::runtime
