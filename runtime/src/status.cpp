#include "status.h"

#include <stdarg.h>
#include <stdio.h>

namespace sealift::runtime {

const char *status_code(sealift_status status) {
  switch (status) {
    case SEALIFT_OK: return "OK";
    case SEALIFT_ERROR_ARGUMENT: return "E-ARG-001";
    case SEALIFT_ERROR_FILE: return "E-FILE-001";
    case SEALIFT_ERROR_PACKAGE: return "E-PACKAGE-001";
    case SEALIFT_ERROR_INTEGRITY: return "E-PACKAGE-002";
    case SEALIFT_ERROR_VERSION: return "E-PACKAGE-003";
    case SEALIFT_ERROR_MODEL_NAME: return "E-PACKAGE-004";
    case SEALIFT_ERROR_ISA: return "E-ISA-001";
    case SEALIFT_ERROR_LIBRARY: return "E-LIBRARY-001";
    case SEALIFT_ERROR_INPUT_COUNT: return "E-INPUT-001";
    case SEALIFT_ERROR_DTYPE: return "E-INPUT-002";
    case SEALIFT_ERROR_SHAPE: return "E-INPUT-003";
    case SEALIFT_ERROR_DEVICE: return "E-INPUT-004";
    case SEALIFT_ERROR_OUTPUT: return "E-INPUT-005";
    case SEALIFT_ERROR_INDEX: return "E-RUN-001";
    case SEALIFT_ERROR_ASSERT: return "E-RUN-002";
    case SEALIFT_ERROR_DIVIDE: return "E-RUN-003";
    case SEALIFT_ERROR_MEMORY: return "E-MEMORY-001";
    case SEALIFT_ERROR_CONSTANT: return "E-CONSTANT-001";
    case SEALIFT_ERROR_BUSY: return "E-CONTEXT-001";
  }
  return "E-UNKNOWN";
}

sealift_status fail(ErrorText err, sealift_status status, const char *format, ...) {
  if (err.text == nullptr || err.size == 0) return status;
  int used = snprintf(err.text, err.size, "[%s] ", status_code(status));
  if (used >= 0 && static_cast<size_t>(used) < err.size) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err.text + used, err.size - static_cast<size_t>(used), format, arguments);
    va_end(arguments);
  }
  for (char *c = err.text; *c != '\0'; ++c) {
    if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f) *c = '?';
  }
  return status;
}

}  // namespace sealift::runtime
