/* Reading OTLP from Python: what sealift/fleet/otlp/decode.py builds on. */
#pragma once
#include <nanobind/nanobind.h>

void bind_fleet(nanobind::module_ &m);
