#include "library_loader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "failure.h"
#include "glibc_baseline.h"

namespace sealift::runtime {

namespace {

// Linux 6.3's way to say that a memory file may be executed; older kernels refuse the flag and need none.
constexpr unsigned EXECUTABLE = 0x10;

int memory_file(const std::string &name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = static_cast<int>(syscall(SYS_memfd_create, name.c_str(), flags | EXECUTABLE));
  return fd >= 0 || errno != EINVAL ? fd : static_cast<int>(syscall(SYS_memfd_create, name.c_str(), flags));
}

}  // namespace

Library::Library(const Package &package, const Package::Member &member, const std::string &model) {
  auto refuse = [&](const std::string &what, const std::string &help) {
    return Failure(SEALIFT_ERROR_LIBRARY, package.path() + ": member '" + member.name + "' " + what + "; help: " + help);
  };
  auto refuse_system = [&](const char *what) {
    return refuse(std::string("cannot be loaded from memory: ") + what + ": " + strerror(errno), "the system must allow memfd_create and its execution");
  };
  if (!can_load_libraries()) throw refuse("cannot be loaded: this process has no dlopen", "link the program with -ldl -lpthread");
  if (member.size_bytes == 0) throw refuse("is empty", "compile the model again");
  fd_ = FileDescriptor(memory_file("sealift:" + model.substr(0, 200)));
  const size_t bytes = static_cast<size_t>(member.size_bytes);
  if (fd_.get() < 0) throw refuse_system("memfd_create");
  if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) throw refuse_system("ftruncate");
  {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (memory == MAP_FAILED) throw refuse_system("mmap");
    struct Unmap {
      void *memory;
      size_t bytes;
      ~Unmap() { munmap(memory, bytes); }
    } const unmap{memory, bytes};
    package.file().read(member.offset, memory, bytes);
  }
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) throw refuse_system("F_ADD_SEALS");
  {
    // From here on nobody can change the bytes: this process's own threads included.
    void *memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
    if (memory == MAP_FAILED) throw refuse_system("mmap");
    Sha256 sha;
    sha.update(memory, bytes);
    munmap(memory, bytes);
    package.check_digest(member, sha.hex());
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_.get());
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char *reason = dlerror();
    throw refuse(std::string("cannot be loaded: ") + (reason == nullptr ? "unknown reason" : reason), "it was compiled for another system or architecture");
  }
  const auto get_api = reinterpret_cast<sealift_model_get_api_fn>(dlsym(handle_, "sealift_model_get_api"));
  if (get_api == nullptr) {
    dlclose(handle_);
    throw refuse("has no sealift_model_get_api", "compile the model again");
  }
  api_ = get_api(SEALIFT_MODEL_ABI_VERSION);
}

Library::~Library() {
  dlclose(handle_);
  // A library that stayed in the process keeps its path taken.
  void *still = dlopen(path_.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (still != nullptr) {
    dlclose(still);
    fd_.release();
  }
}

}  // namespace sealift::runtime
