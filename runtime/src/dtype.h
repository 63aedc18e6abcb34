// The element types that cross sealift.h, in the order of sealift_dtype.
#pragma once

#include "dlpack/dlpack.h"
#include "sealift_model.h"

namespace sealift::runtime {

struct DtypeInfo {
  const char *name;
  uint8_t code, bits;  // DLPack's, one lane
  int32_t bytes;
  int32_t align_bytes;
};

inline constexpr int32_t NUM_DTYPES = 11;
inline constexpr DtypeInfo DTYPES[NUM_DTYPES] = {
    {"float32", kDLFloat, 32, 4, 4},
    {"float64", kDLFloat, 64, 8, 8},
    {"int32", kDLInt, 32, 4, 4},
    {"int64", kDLInt, 64, 8, 8},
    {"bool", kDLBool, 8, 1, 1},
    {"bfloat16", kDLBfloat, 16, 2, 2},
    {"float16", kDLFloat, 16, 2, 2},
    {"int8", kDLInt, 8, 1, 1},
    {"int16", kDLInt, 16, 2, 2},
    {"uint8", kDLUInt, 8, 1, 1},
    {"complex64", kDLComplex, 64, 8, 4},
};
static_assert(SEALIFT_COMPLEX64 == NUM_DTYPES - 1, "a new dtype needs a row");

inline bool is_dtype(DLDataType type, int32_t dtype) {
  return type.code == DTYPES[dtype].code && type.bits == DTYPES[dtype].bits && type.lanes == 1;
}

inline DLDataType dlpack_dtype(int32_t dtype) { return DLDataType{DTYPES[dtype].code, DTYPES[dtype].bits, 1}; }

// A name for messages; `buffer` holds the ones that sealift does not know.
const char *dtype_name(DLDataType type, char (&buffer)[32]);

}  // namespace sealift::runtime
