// The error of a call: a status and one line of text written straight into the caller's buffer.
#pragma once

#include <stddef.h>

#include "sealift.h"

namespace sealift::runtime {

// Where a message goes; `text` may be NULL. Nothing is written on success.
struct ErrorText {
  char *text;
  size_t size;
};

const char *status_code(sealift_status status);

// Writes "[<code>] <message>" as one line (control characters become '?') and returns `status`.
sealift_status fail(ErrorText err, sealift_status status, const char *format, ...) __attribute__((format(printf, 3, 4), cold));

}  // namespace sealift::runtime
