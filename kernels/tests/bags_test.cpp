// Bags of embeddings against their definition: types, modes, weights, padding, widths around a vector, empty bags, bad indices and offsets, workers.
#include "../bags/bags.h"

#include <initializer_list>
#include <vector>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

template <class T>
constexpr int32_t kDtype = sizeof(T) == 8 ? SEALIFT_FLOAT64 : SEALIFT_FLOAT32;
template <class I>
constexpr int32_t kIndexDtype = sizeof(I) == 8 ? SEALIFT_INT64 : SEALIFT_INT32;

template <class T, class I>
void run_case(int64_t rows, int64_t width, int64_t bags, int64_t longest, int32_t mode, bool weighted, bool has_end, int64_t padding, Random &random) {
  std::vector<int64_t> begins(1, 0);
  for (int64_t k = 0; k < bags; k++) begins.push_back(begins.back() + random.below(longest + 1));
  const int64_t count = begins.back();
  Guarded<T> table(rows * width), weights(weighted ? count : 0), out(bags * width);
  Guarded<I> indices(count), offsets(bags + (has_end ? 1 : 0));
  random.fill(table, 4), random.fill(weights, 2);
  for (int64_t p = 0; p < count; p++) indices[p] = static_cast<I>(random.below(rows));
  for (int64_t k = 0; k < offsets.size(); k++) offsets[k] = static_cast<I>(begins[static_cast<size_t>(k)]);
  if (width > 0 && rows > 1) table[width] = NAN;  // row 1
  Bags b;
  b.table = table.data, b.table_stride = width, b.indices = indices.data, b.offsets = offsets.data, b.weights = weighted ? weights.data : nullptr;
  b.out = out.data, b.out_stride = width, b.rows = rows, b.width = width, b.count = count, b.bags = bags, b.padding_idx = padding;
  b.dtype = kDtype<T>, b.index_dtype = b.offset_dtype = kIndexDtype<I>, b.mode = mode, b.has_end = has_end;
  std::vector<T> first;
  for (int32_t workers : {1, 3}) {
    TestHost host(workers, 0);
    embedding_bags(&host.frame, b);
    expect_true(host.frame.error == 0, "no error");
    if (workers == 1)
      first.assign(out.data, out.data + out.size());
    else
      expect_true(first.empty() || memcmp(first.data(), out.data, first.size() * sizeof(T)) == 0, "the same for any number of workers");
  }
  for (int64_t k = 0; k < bags; k++)
    for (int64_t j = 0; j < width; j++) {
      double total = 0, size = 0;
      int64_t found = 0;
      for (int64_t p = begins[static_cast<size_t>(k)]; p < begins[static_cast<size_t>(k) + 1]; p++) {
        if (indices[p] == padding) continue;
        const double x = static_cast<double>(table[indices[p] * width + j]) * (weighted ? static_cast<double>(weights[p]) : 1);
        if (mode == kBagMax)
          total = found == 0 || isnan(x) || x > total ? (found && isnan(total) ? total : x) : total;
        else
          total += x;
        size += fabs(x), found++;
      }
      if (mode == kBagMean && found) total /= static_cast<double>(found);
      expect_close(out[k * width + j], total, size * 1e-6, "bag", k, j);
    }
}

void bad_positions_are_named() {
  float table[8] = {0}, out[4];
  struct Bad {
    int64_t indices[3], offsets[3], value, bound;
  };
  for (const Bad &bad : {Bad{{0, -3, 1}, {0, 2, 3}, -3, 4}, Bad{{0, 1, 4}, {0, 2, 3}, 4, 4}, Bad{{0, 1, 2}, {1, 2, 3}, 1, 1}, Bad{{0, 1, 2}, {0, 4, 3}, 4, 4},
                         Bad{{0, 1, 2}, {0, 2, 7}, 7, 4}, Bad{{0, 1, 2}, {0, -1, 3}, -1, 4}}) {
    Bags b;
    b.table = table, b.table_stride = b.width = 2, b.rows = 4, b.indices = bad.indices, b.offsets = bad.offsets, b.out = out, b.out_stride = 2;
    b.count = 3, b.bags = 2, b.has_end = 1;
    TestHost host(1, 0);
    embedding_bags(&host.frame, b);
    expect_true(host.frame.error == SEALIFT_RUN_INDEX, "an error");
    expect_close(static_cast<double>(host.frame.error_value), static_cast<double>(bad.value), 0, "the value as given", 0, 0);
    expect_close(static_cast<double>(host.frame.error_bound), static_cast<double>(bad.bound), 0, "its bound", 0, 0);
  }
}

}  // namespace

int main() {
  Random random(3);
  for (int64_t width : {1, 3, 8, 17, 64, 100, 200})
    for (int32_t mode : {kBagSum, kBagMean, kBagMax})
      for (bool has_end : {false, true})
        for (int64_t padding : {-1, 2}) {
          run_case<float, int64_t>(9, width, 7, 5, mode, false, has_end, padding, random);
          run_case<double, int32_t>(9, width, 7, 5, mode, false, has_end, padding, random);
          if (mode == kBagSum) run_case<float, int32_t>(9, width, 7, 5, mode, true, has_end, padding, random);
        }
  run_case<float, int64_t>(1000, 64, 400, 9, kBagSum, false, true, -1, random);  // forks
  run_case<float, int64_t>(5, 64, 3, 0, kBagMax, false, true, -1, random);       // empty bags only
  bad_positions_are_named();
  return finish_tests("bags");
}
