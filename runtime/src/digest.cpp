#include "digest.h"

#include <string.h>

#include <array>

#include "cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sealift::runtime {

namespace {

constexpr char HEX[] = "0123456789abcdef";

// ---- SHA-256 -------------------------------------------------------------------------------------------------------------

alignas(16) constexpr uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
    0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d,
    0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e,
    0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
    0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

uint32_t big_endian(const unsigned char *p) { return (uint32_t{p[0]} << 24) | (uint32_t{p[1]} << 16) | (uint32_t{p[2]} << 8) | p[3]; }

void sha256_portable(uint32_t *state, const unsigned char *data, size_t count) {
  for (; count > 0; --count, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3), s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const uint32_t t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
      const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)
// The SHA instructions keep the state as {a, b, e, f} and {c, d, g, h}, highest lane first; a step is four rounds.
__attribute__((target("sha,sse4.1"))) void sha256_ni(uint32_t *state, const unsigned char *data, size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto load = [](const uint32_t *p) __attribute__((target("sha,sse4.1"))) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)); };
  __m128i abcd = _mm_shuffle_epi32(load(state), 0x1b), efgh = _mm_shuffle_epi32(load(state + 4), 0x1b);  // a highest; e highest
  __m128i abef = _mm_unpackhi_epi64(efgh, abcd), cdgh = _mm_unpacklo_epi64(efgh, abcd);
  for (; count > 0; --count, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i *>(data + 16 * i)), swap);
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
      const __m128i words = w[step & 3];
      const __m128i sum = _mm_add_epi32(words, load(K + 4 * step));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (step < 12) {
        // The four words that are due in four steps: w[t-16] + s0(w[t-15]) + w[t-7], then s1 of the last ones.
        const __m128i next = w[(step + 1) & 3], next2 = w[(step + 2) & 3], next3 = w[(step + 3) & 3];
        const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(words, next), _mm_alignr_epi8(next3, next2, 4));
        w[step & 3] = _mm_sha256msg2_epu32(partial, next3);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i high = _mm_unpackhi_epi64(cdgh, abef), low = _mm_unpacklo_epi64(cdgh, abef);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state), _mm_shuffle_epi32(high, 0x1b));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state + 4), _mm_shuffle_epi32(low, 0x1b));
}
#endif

// ---- CRC-32C -------------------------------------------------------------------------------------------------------------

constexpr uint32_t POLYNOMIAL = 0x82f63b78;  // reflected: bit 31 is x^0

constexpr std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t i = 1; i < 8; ++i) tables[i][byte] = (tables[i - 1][byte] >> 8) ^ tables[0][tables[i - 1][byte] & 0xff];
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> CRC_TABLES = make_crc_tables();

#if defined(__x86_64__)
// a * b modulo the polynomial.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? POLYNOMIAL : 0);
  }
  return product;
}

// x^(8 * bytes): multiplying a CRC by it is appending that many zero bytes.
constexpr uint32_t append_zeros(uint64_t bytes) {
  uint32_t result = 0x80000000u, power = 0x00800000u;  // 1, x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

// The instruction takes three cycles and starts one a cycle: three streams keep it busy. 8 KiB each fit the L1 cache together.
constexpr size_t STREAM_BYTES = 8192;
constexpr uint32_t APPEND_STREAM = append_zeros(STREAM_BYTES);

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const unsigned char *data, size_t bytes, uint32_t crc) {
  auto load = [](const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
  };
  uint64_t a = crc;
  for (; bytes >= 3 * STREAM_BYTES; bytes -= 3 * STREAM_BYTES, data += 3 * STREAM_BYTES) {
    uint64_t b = 0, c = 0;
    for (size_t i = 0; i < STREAM_BYTES; i += 8) {
      a = _mm_crc32_u64(a, load(data + i));
      b = _mm_crc32_u64(b, load(data + STREAM_BYTES + i));
      c = _mm_crc32_u64(c, load(data + 2 * STREAM_BYTES + i));
    }
    a = multiply(APPEND_STREAM, multiply(APPEND_STREAM, static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ c;
  }
  for (; bytes >= 8; bytes -= 8, data += 8) a = _mm_crc32_u64(a, load(data));
  for (; bytes > 0; --bytes, ++data) a = _mm_crc32_u8(static_cast<uint32_t>(a), *data);
  return static_cast<uint32_t>(a);
}
#endif

}  // namespace

Sha256::Sha256() : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, sha_ni_(has_sha_ni()) {}

void Sha256::blocks(const unsigned char *data, size_t count) {
#if defined(__x86_64__)
  if (sha_ni_) return sha256_ni(state_, data, count);
#endif
  sha256_portable(state_, data, count);
}

void Sha256::update(const void *data, size_t bytes) {
  const unsigned char *next = static_cast<const unsigned char *>(data);
  total_bytes_ += bytes;
  if (pending_bytes_ > 0) {
    const size_t taken = bytes < 64 - pending_bytes_ ? bytes : 64 - pending_bytes_;
    memcpy(pending_ + pending_bytes_, next, taken);
    pending_bytes_ += taken;
    next += taken;
    bytes -= taken;
    if (pending_bytes_ < 64) return;
    blocks(pending_, 1);
    pending_bytes_ = 0;
  }
  blocks(next, bytes / 64);
  next += bytes / 64 * 64;
  pending_bytes_ = bytes % 64;
  if (pending_bytes_ > 0) memcpy(pending_, next, pending_bytes_);
}

std::string Sha256::hex() {
  const uint64_t bits = total_bytes_ * 8;
  unsigned char end[72] = {0x80};
  const size_t zeros = (pending_bytes_ < 56 ? 56 : 120) - pending_bytes_;
  for (size_t i = 0; i < 8; ++i) end[zeros + i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  update(end, zeros + 8);
  std::string text;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += HEX[(word >> shift) & 15];
  }
  return text;
}

uint32_t crc32c_portable(const void *data, size_t bytes, uint32_t before) {
  const unsigned char *next = static_cast<const unsigned char *>(data);
  uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    uint32_t low, high;
    memcpy(&low, next, 4);
    memcpy(&high, next + 4, 4);
    low ^= crc;
    crc = CRC_TABLES[7][low & 0xff] ^ CRC_TABLES[6][(low >> 8) & 0xff] ^ CRC_TABLES[5][(low >> 16) & 0xff] ^ CRC_TABLES[4][low >> 24] ^
          CRC_TABLES[3][high & 0xff] ^ CRC_TABLES[2][(high >> 8) & 0xff] ^ CRC_TABLES[1][(high >> 16) & 0xff] ^ CRC_TABLES[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++next) crc = (crc >> 8) ^ CRC_TABLES[0][(crc ^ *next) & 0xff];
  return ~crc;
}

uint32_t crc32c(const void *data, size_t bytes, uint32_t before) {
#if defined(__x86_64__)
  if (has_sse42()) return ~crc32c_sse42(static_cast<const unsigned char *>(data), bytes, ~before);
#endif
  return crc32c_portable(data, bytes, before);
}

std::string crc32c_hex(uint32_t crc) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += HEX[(crc >> shift) & 15];
  return text;
}

}  // namespace sealift::runtime
