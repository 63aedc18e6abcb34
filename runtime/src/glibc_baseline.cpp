// Stand-ins for what the static C++ library takes from a glibc newer than 2.28, so that libsealift loads on older systems.
// Hidden: they serve this library alone.
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "glibc_baseline.h"
