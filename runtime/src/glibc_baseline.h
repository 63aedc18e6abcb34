// Binds to the symbol versions that glibc 2.28 has, also when linked against a newer one (which moved these functions into libc and
// gave them a new version). Include it last, in every file that calls one of them. They are weak: on glibc before 2.34 they live in
// libpthread and libdl, which the process may not have loaded, so check them before the first call.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// The sanitizers intercept the default versions.
#elif defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.2.5");
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");
#endif

#pragma weak pthread_create
#pragma weak pthread_join
#pragma weak pthread_mutex_trylock
#pragma weak dlopen
#pragma weak dlclose
#pragma weak dlsym
#pragma weak dladdr
#pragma weak dlerror

namespace sealift::runtime {
inline bool can_make_threads() { return &pthread_create != nullptr && &pthread_join != nullptr && &pthread_mutex_trylock != nullptr; }
inline bool can_load_libraries() { return &dlopen != nullptr && &dlclose != nullptr && &dlsym != nullptr && &dladdr != nullptr && &dlerror != nullptr; }
}  // namespace sealift::runtime
