// Code loaded from memory: the bytes that were verified are the bytes that run.
#pragma once

#include <string>

#include "file.h"
#include "package.h"
#include "sealift_model.h"

namespace sealift::runtime {

class Library {
 public:
  // Copies the member into a sealed memory file, checks its digest there, and loads it. Failure E-PACKAGE-002 or E-LIBRARY-001.
  Library(const Package &package, const Package::Member &member, const std::string &model);
  ~Library();
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  const sealift_model_api *api() const { return api_; }

 private:
  // Stays open while the library is loaded: the loader knows libraries by path, and /proc/self/fd/<n> must not come to name another.
  FileDescriptor fd_;
  std::string path_;
  void *handle_ = nullptr;
  const sealift_model_api *api_ = nullptr;
};

}  // namespace sealift::runtime
