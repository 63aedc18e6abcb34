// Stand-ins for what the static C++ library takes from a glibc newer than 2.28, so that libsealift loads on older systems too. Hidden: they
// serve this library alone. Where the compiler's glibc is as old as that, nothing refers to them.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

extern "C" {

// 2.32: whether shared_ptr may count without atomics. It may not, for all that this library knows.
char __libc_single_threaded = 0;

// 2.36.
uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

// 2.34 gave it a new version.
int pthread_once(pthread_once_t *control, void (*routine)(void)) {
  enum { FRESH = 0,
         RUNNING = 1,
         DONE = 2 };
  int state = FRESH;
  if (__atomic_compare_exchange_n(control, &state, RUNNING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    routine();
    __atomic_store_n(control, DONE, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(control, __ATOMIC_ACQUIRE) != DONE) sched_yield();
  return 0;
}

// Only its address is looked at: whether the process has threads.
int __pthread_key_create(pthread_key_t *, void (*)(void *)) { return -1; }

// 2.35: where the unwinder finds an address's unwind table.
int _dl_find_object(void *address, struct dl_find_object *result) noexcept {
  struct Search {
    uintptr_t address;
    struct dl_find_object *result;
  } search{reinterpret_cast<uintptr_t>(address), result};
  const int found = dl_iterate_phdr(
      [](struct dl_phdr_info *info, size_t, void *data) {
        Search &wanted = *static_cast<Search *>(data);
        uintptr_t begin = UINTPTR_MAX, end = 0, table = 0;
        bool inside = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr) &segment = info->dlpi_phdr[i];
          const uintptr_t from = info->dlpi_addr + segment.p_vaddr, to = from + segment.p_memsz;
          if (segment.p_type == PT_GNU_EH_FRAME) table = from;
          if (segment.p_type != PT_LOAD) continue;
          begin = from < begin ? from : begin;
          end = to > end ? to : end;
          inside = inside || (wanted.address >= from && wanted.address < to);
        }
        if (!inside || table == 0) return 0;
        *wanted.result = {};
        wanted.result->dlfo_map_start = reinterpret_cast<void *>(begin);
        wanted.result->dlfo_map_end = reinterpret_cast<void *>(end);
        wanted.result->dlfo_eh_frame = reinterpret_cast<void *>(table);
        return 1;
      },
      &search);
  return found != 0 ? 0 : -1;
}

}  // extern "C"

#endif
