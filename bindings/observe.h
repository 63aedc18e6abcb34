/* Watching operators from Python: what sealift/observe/ builds on. */
#pragma once
#include <nanobind/nanobind.h>

void bind_observe(nanobind::module_ &m);
