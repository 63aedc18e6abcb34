/* CRC-32C, which seals weights: the processor's instruction where there is one, else a table. */
#pragma once
#include <cstddef>
#include <cstdint>

/* `crc` is the CRC of what came before (0 at the start); the result is that of both. */
uint32_t crc32c(const void *data, size_t bytes, uint32_t crc);
