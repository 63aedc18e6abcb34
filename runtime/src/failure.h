// The exception inside the runtime while a package is opened; sealift.h's entry points turn it into a status and a message.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "sealift.h"

namespace sealift::runtime {

class Failure : public std::exception {
 public:
  // Names from a damaged file may hold any byte, NUL included.
  Failure(sealift_status status, std::string message) : status_(status), message_(std::move(message)) {
    for (char &c : message_) {
      if (static_cast<unsigned char>(c) < 0x20) c = '?';
    }
  }
  sealift_status status() const { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  sealift_status status_;
  std::string message_;
};

}  // namespace sealift::runtime
