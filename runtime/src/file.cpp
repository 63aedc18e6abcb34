#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "failure.h"

namespace sealift::runtime {

namespace {

[[noreturn]] void file_error(const std::string &path, const char *action, int error, const char *help) {
  throw Failure(SEALIFT_ERROR_FILE, path + ": cannot " + action + ": " + strerror(error) + "; help: " + help);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor &FileDescriptor::operator=(FileDescriptor &&other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

File::File(const std::string &path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_.get() < 0) file_error(path, "open it", errno, "check the path and its permissions");
  // Also what tells a directory or a pipe from a file.
  const off_t end = lseek(fd_.get(), 0, SEEK_END);
  char byte;
  if (end < 0 || (end > 0 && pread(fd_.get(), &byte, 1, 0) < 0)) file_error(path, "read it", errno, "pass a package file");
  size_bytes_ = static_cast<uint64_t>(end);
}

void File::read(uint64_t offset, void *data, size_t bytes) const {
  char *next = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t got = pread(fd_.get(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file_error(path_, "read it", errno, "check the disk");
    if (got == 0) throw Failure(SEALIFT_ERROR_FILE, path_ + ": it became shorter while it was read; help: replace packages by renaming, never in place");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

Mapping::Mapping(const File &file, uint64_t offset, uint64_t bytes) : size_bytes_(bytes) {
  static const char nothing[64] = {};
  data_ = nothing;
  if (bytes == 0) return;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), before = offset % page;
  page_bytes_ = static_cast<size_t>(bytes + before);
  pages_ = mmap(nullptr, page_bytes_, PROT_READ, MAP_PRIVATE, file.descriptor(), static_cast<off_t>(offset - before));
  if (pages_ == MAP_FAILED) {
    pages_ = nullptr;
    file_error(file.path(), "map it", errno, "the address space or a limit (ulimit -v) is exhausted");
  }
  data_ = static_cast<const char *>(pages_) + before;
}

Mapping::~Mapping() {
  if (pages_ != nullptr) munmap(pages_, page_bytes_);
}

Mapping::Mapping(Mapping &&other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), page_bytes_(other.page_bytes_), data_(other.data_), size_bytes_(other.size_bytes_) {}

Mapping &Mapping::operator=(Mapping &&other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(page_bytes_, other.page_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

}  // namespace sealift::runtime
