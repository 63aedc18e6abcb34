// Elementary functions on vectors.
#pragma once

#include "vec.h"
