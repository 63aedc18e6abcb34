// The one header a generated kernel includes: vectors (vec.h) and elementary functions on them (elementary.h).
#pragma once

#include "isa.h"
#include "vec.h"
#include "elementary.h"
