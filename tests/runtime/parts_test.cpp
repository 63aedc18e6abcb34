// The runtime's parts on their own: digests, the thread pool, packing, strided copies.
#define CHECK_MAIN
#include <atomic>
#include <numeric>
#include <thread>

#include "check.h"
#include "context_handle.h"
#include "digest.h"
#include "fixture.h"
#include "pack_layout.h"
#include "strided_copy.h"
#include "thread_pool.h"

using namespace sealift::runtime;

namespace {

std::string sha256(const std::string &text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

}  // namespace

TEST(sha256_has_the_standard_values) {
  CHECK_CONTAINS(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_CONTAINS(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_CONTAINS(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_CONTAINS(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // However the input is cut.
  const std::string text(300, 'x');
  for (std::size_t cut = 0; cut <= text.size(); cut += 7) {
    Sha256 sha;
    sha.update(text.data(), cut);
    sha.update(text.data() + cut, text.size() - cut);
    CHECK_CONTAINS(sha.hex(), sha256(text));
  }
}

TEST(crc32c_has_the_standard_values) {
  CHECK_EQUAL(crc32c("123456789", 9), 0xe3069283u);
  CHECK_EQUAL(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  CHECK_CONTAINS(crc32c_hex(0x00abcdefu), "00abcdef");
  std::vector<unsigned char> data(200001);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  for (const std::size_t bytes : {0u, 1u, 7u, 24575u, 24576u, 24577u, 49152u, 200001u}) {
    CHECK_EQUAL(crc32c(data.data(), bytes), crc32c_portable(data.data(), bytes));
    const std::size_t half = bytes / 3;
    CHECK_EQUAL(crc32c(data.data() + half, bytes - half, crc32c(data.data(), half)), crc32c(data.data(), bytes));
  }
}

TEST(pool_covers_every_index_once) {
  ThreadPool &pool = ThreadPool::of_process();
  for (const std::int32_t workers : {1, 2, 4, 7}) {
    for (const std::int64_t count : {1, 2, 3, 5, 16, 17, 1000}) {
      for (const std::int64_t grain : {1, 4, 7, 2000}) {
        struct Task {
          std::vector<std::atomic<int>> hits;
          std::int64_t count, grain;
          std::int32_t workers;
          std::atomic<int> wrong{0};
        } task{std::vector<std::atomic<int>>(static_cast<std::size_t>(count)), count, grain, workers, {}};
        CHECK(pool.try_take());
        CHECK(!pool.try_take());
        pool.parallel_for(workers, count, grain, [](void *arg, std::int64_t begin, std::int64_t end, std::int32_t worker) {
          Task &t = *static_cast<Task *>(arg);
          if (begin >= end || begin % t.grain != 0 || (end % t.grain != 0 && end != t.count) || worker < 0 || worker >= t.workers) ++t.wrong;
          for (std::int64_t i = begin; i < end; ++i) ++t.hits[static_cast<std::size_t>(i)]; }, &task);
        pool.release();
        for (const std::atomic<int> &hit : task.hits) CHECK_EQUAL(hit.load(), 1);
        CHECK_EQUAL(task.wrong.load(), 0);
      }
    }
  }
}

TEST(pool_stops_and_starts_again) {
  ThreadPool &pool = ThreadPool::of_process();
  for (int round = 0; round < 20; ++round) {
    std::atomic<std::int64_t> sum{0};
    CHECK(pool.try_take());
    for (int loop = 0; loop < 50; ++loop) {
      pool.parallel_for(
          4, 100, 1, [](void *arg, std::int64_t begin, std::int64_t end, std::int32_t) { *static_cast<std::atomic<std::int64_t> *>(arg) += end - begin; },
          &sum);
    }
    pool.release();
    CHECK_EQUAL(sum.load(), 5000);
    if (round % 3 == 0) pool.stop();
  }
  pool.stop();
}

TEST(convolution_weights_go_there_and_back) {
  struct Case {
    std::int64_t out_c, in_c_per_group;
    std::int32_t groups, layout;
  };
  for (const Case c : {Case{40, 3, 1, SEALIFT_CONV_PANEL32}, Case{80, 2, 2, SEALIFT_CONV_PANEL32}, Case{33, 1, 33, SEALIFT_CONV_DEPTHWISE}}) {
    const std::int64_t shape[] = {c.out_c, c.in_c_per_group, 3, 2}, taps = 6, rows = taps * c.in_c_per_group;
    const sealift_constant_spec constant{"w", "w", SEALIFT_FLOAT32, 4, shape, 0};
    const sealift_weight_spec weight{0, c.layout, 0, 0, c.groups};
    std::vector<float> plain(static_cast<std::size_t>(c.out_c * rows)), back(plain.size()), stored(static_cast<std::size_t>(stored_bytes(constant, weight)) / 4);
    std::iota(plain.begin(), plain.end(), 1.0f);
    pack(constant, weight, plain.data(), stored.data());
    unpack(constant, weight, stored.data(), back.data());
    CHECK(back == plain);
    const std::int64_t out = c.out_c - 1, channel = c.in_c_per_group - 1, tap = 4, per_group = c.out_c / c.groups, column = out % per_group;
    const std::int64_t panels_per_group = (per_group + 31) / 32, row = tap * c.in_c_per_group + channel;
    const std::int64_t at = c.layout == SEALIFT_CONV_DEPTHWISE ? tap * c.out_c + out
                                                               : (((out / per_group) * panels_per_group + column / 32) * rows + row) * 32 + column % 32;
    CHECK(stored[static_cast<std::size_t>(at)] == plain[static_cast<std::size_t>((out * c.in_c_per_group + channel) * taps + tap)]);
  }
}

TEST(transposed_convolution_weights_go_there_and_back) {
  struct Case {
    std::int64_t in_c, out_c_per_group;
    std::int32_t groups;
  };
  for (const Case c : {Case{5, 40, 1}, Case{6, 33, 2}, Case{4, 1, 4}}) {
    const std::int64_t shape[] = {c.in_c, c.out_c_per_group, 3, 2}, taps = 6, in_each = c.in_c / c.groups, rows = taps * in_each;
    const sealift_constant_spec constant{"w", "w", SEALIFT_FLOAT32, 4, shape, 0};
    const sealift_weight_spec weight{0, SEALIFT_CONV_TRANSPOSE_PANEL32, 0, 0, c.groups};
    const std::int64_t panels = (c.out_c_per_group + 31) / 32;
    std::vector<float> plain(static_cast<std::size_t>(c.in_c * c.out_c_per_group * taps)), back(plain.size());
    CHECK_EQUAL(stored_bytes(constant, weight), c.groups * panels * rows * 32 * 4);
    std::vector<float> stored(static_cast<std::size_t>(stored_bytes(constant, weight)) / 4);
    std::iota(plain.begin(), plain.end(), 1.0f);
    pack(constant, weight, plain.data(), stored.data());
    unpack(constant, weight, stored.data(), back.data());
    CHECK(back == plain);
    for (std::int64_t in = 0; in < c.in_c; ++in) {
      for (std::int64_t column = 0; column < c.out_c_per_group; ++column) {
        const std::int64_t tap = (in + column) % taps, row = tap * in_each + in % in_each;
        const std::int64_t at = ((in / in_each * panels + column / 32) * rows + row) * 32 + column % 32;
        CHECK(stored[static_cast<std::size_t>(at)] == plain[static_cast<std::size_t>((in * c.out_c_per_group + column) * taps + tap)]);
      }
    }
  }
}

TEST(packing_goes_there_and_back) {
  const sealift_weight_spec PLAIN{0, SEALIFT_ROW_MAJOR, 0, 0, 0}, PANELS{0, SEALIFT_PANEL32, 0, 0, 0}, TURNED{0, SEALIFT_PANEL32_T, 0, 0, 0};
  for (const std::int64_t n : {1, 31, 32, 33, 70}) {
    for (const std::int32_t dtype : {SEALIFT_FLOAT32, SEALIFT_BFLOAT16, SEALIFT_INT8, SEALIFT_FLOAT64}) {
      const std::int64_t shape[] = {n, 3, 2};
      const sealift_constant_spec constant{"w", "w", dtype, 3, shape, 0};
      const std::size_t element = static_cast<std::size_t>(DTYPES[dtype].bytes), plain_bytes = static_cast<std::size_t>(row_major_bytes(constant));
      std::vector<unsigned char> plain(plain_bytes), back(plain_bytes), stored(static_cast<std::size_t>(stored_bytes(constant, PANELS)), 0xff);
      std::iota(plain.begin(), plain.end(), static_cast<unsigned char>(1));
      CHECK_EQUAL(stored.size(), static_cast<std::size_t>((n + 31) / 32 * 32 * 6) * element);
      pack(constant, PANELS, plain.data(), stored.data());
      unpack(constant, PANELS, stored.data(), back.data());
      CHECK(back == plain);
      const std::size_t row = static_cast<std::size_t>(n - 1), k = 5;
      CHECK(std::memcmp(&stored[((row / 32 * 6 + k) * 32 + row % 32) * element], &plain[(row * 6 + k) * element], element) == 0);
      if (n % 32 != 0) {
        for (std::size_t byte = 0; byte < element; ++byte) CHECK_EQUAL(stored[stored.size() - 1 - byte] + 0, 0);
      }
      unpack(constant, PLAIN, plain.data(), back.data());
      CHECK(back == plain);
      std::vector<unsigned char> turned(static_cast<std::size_t>(stored_bytes(constant, TURNED)), 0xff);
      CHECK_EQUAL(turned.size(), static_cast<std::size_t>(32 * n) * element);  // six columns of n: one panel
      pack(constant, TURNED, plain.data(), turned.data());
      unpack(constant, TURNED, turned.data(), back.data());
      CHECK(back == plain);
      CHECK(std::memcmp(&turned[(row * 32 + k) * element], &plain[(row * 6 + k) * element], element) == 0);
    }
  }
  CHECK_EQUAL(stored_bytes(sealift_constant_spec{"w", "w", 0, 0, nullptr, 0}, sealift_weight_spec{0, 99, 0, 0, 0}), -1);
}

TEST(strided_copies_match_the_definition) {
  const std::int64_t shape[] = {3, 1, 4, 5};
  const std::int64_t sources[][4] = {{20, 20, 5, 1}, {1, 7, 3, 12}, {0, 0, 0, 1}, {-20, 3, 5, 1}, {20, 0, -5, -1}};
  const std::int64_t targets[][4] = {{20, 20, 5, 1}, {1, 0, 3, 12}, {40, 9, 10, 2}, {-20, 0, 5, 1}};
  std::vector<std::int64_t> source(400);
  std::iota(source.begin(), source.end(), 0);
  for (const auto &from : sources) {
    for (const auto &to : targets) {
      std::vector<std::int64_t> target(400, -1), expected(400, -1);
      const std::size_t base = 200;
      for (std::int64_t a = 0; a < 3; ++a) {
        for (std::int64_t c = 0; c < 4; ++c) {
          for (std::int64_t d = 0; d < 5; ++d) {
            expected[base + static_cast<std::size_t>(a * to[0] + c * to[2] + d * to[3])] =
                source[base + static_cast<std::size_t>(a * from[0] + c * from[2] + d * from[3])];
          }
        }
      }
      copy_strided(reinterpret_cast<char *>(&target[base]), to, reinterpret_cast<const char *>(&source[base]), from, shape, 4, 8);
      CHECK(target == expected);
    }
  }
}

namespace {

struct Window {
  sealift_callback own = 0;
  int heard = 0;
};

}  // namespace

// A run of many kernels is often longer than one of the recorder's windows: were it heard only until the window ends, its last kernels would be
// counted more rarely than its first.
TEST(a_run_that_began_in_a_window_is_heard_to_its_end) {
  Handle h(package("linear"));
  Floats x({2, 4}, F32), y({2, 3}, F32);
  fill_linear(x);
  Window window;
  window.own = add_callback(nullptr, [](void *user, void *, const sealift_record *) { ++static_cast<Window *>(user)->heard; }, &window, 1.0);
  sealift_callback closer = 0;
  const auto close = [](void *user, const sealift_record *) -> void * {
    Window &open = *static_cast<Window *>(user);
    if (open.own != 0) remove_callback(open.own, false);
    open.own = 0;
    return nullptr;
  };
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(close, nullptr, &window, 1.0, &closer)), 0);
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
  CHECK_EQUAL(window.own, 0u);
  CHECK_EQUAL(window.heard, 2);  // both of its kernels, though the window was closed in the first
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
  CHECK_EQUAL(window.heard, 2);  // and none of the next run
  CHECK_EQUAL(static_cast<int>(sealift_remove_callback(closer)), 0);
}
