// An open file, read at offsets and mapped read-only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

namespace sealift::runtime {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor &&other) noexcept : fd_(other.release()) {}
  FileDescriptor &operator=(FileDescriptor &&other) noexcept;
  FileDescriptor(const FileDescriptor &) = delete;

  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

class File {
 public:
  explicit File(const std::string &path);

  const std::string &path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return fd_.get(); }
  // All of it, or Failure E-FILE-001. The range lies within the file as it was opened.
  void read(uint64_t offset, void *data, size_t bytes) const;

 private:
  std::string path_;
  FileDescriptor fd_;
  uint64_t size_bytes_ = 0;
};

// Bytes of a file, mapped private and read-only: one copy in the page cache for every process. A file that another program truncates in
// place takes the mapping with it (SIGBUS); replace packages by renaming.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const File &file, uint64_t offset, uint64_t bytes);
  ~Mapping();
  Mapping(Mapping &&other) noexcept;
  Mapping &operator=(Mapping &&other) noexcept;
  Mapping(const Mapping &) = delete;

  const char *data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  void *pages_ = nullptr;
  size_t page_bytes_ = 0;
  const char *data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace sealift::runtime
