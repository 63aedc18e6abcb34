// The one header a generated kernel includes: vectors (vec.h has a map) and elementary functions on them (elementary.h).
#pragma once

#include "isa.h"
#include "reduce.h"
#include "elementary.h"
