#include "runs.h"

#include <algorithm>

namespace runs {

bool Runs::is_valid(int64_t low, int64_t high) const {
  if (offsets[0] != 0 || offsets[rows] != static_cast<int64_t>(cells)) return false;
  for (size_t i = 0; i < rows; i++) {
    const int64_t length = offsets[i + 1] - offsets[i];
    if (length < 0 || offsets[i + 1] > static_cast<int64_t>(cells)) return false;
    if (length && (first[i] < low || first[i] > high || length > high - first[i] + 1)) return false;
  }
  return true;
}

bool add_up(const Runs &rows, const int64_t *order, size_t ordered, const int64_t *bounds, size_t groups, Merged *merged) {
  if (bounds[0] != 0 || bounds[groups] != static_cast<int64_t>(ordered)) return false;
  for (size_t i = 0; i < ordered; i++)
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(rows.rows)) return false;
  merged->first.reserve(groups);
  merged->offsets.reserve(groups + 1);
  merged->counts.reserve(rows.cells / (ordered / std::max<size_t>(groups, 1) + 1) + groups);
  merged->offsets.push_back(0);
  std::vector<int64_t> sums;
  for (size_t g = 0; g < groups; g++) {
    if (bounds[g] > bounds[g + 1] || bounds[g + 1] > static_cast<int64_t>(ordered)) return false;
    int64_t low = INT64_MAX, high = INT64_MIN; /* buckets with a place */
    for (int64_t i = bounds[g]; i < bounds[g + 1]; i++) {
      const int64_t row = order[i], length = rows.offsets[row + 1] - rows.offsets[row];
      if (!length) continue;
      low = std::min(low, rows.first[row]);
      high = std::max(high, rows.first[row] + length - 1);
    }
    sums.assign(low <= high ? static_cast<size_t>(high - low + 1) : 0, 0);
    for (int64_t i = bounds[g]; i < bounds[g + 1]; i++) {
      const int64_t row = order[i], length = rows.offsets[row + 1] - rows.offsets[row];
      if (!length) continue;
      const int64_t *from = rows.counts + rows.offsets[row];
      int64_t *into = sums.data() + (rows.first[row] - low);
      for (int64_t k = 0; k < length; k++) into[k] = static_cast<int64_t>(static_cast<uint64_t>(into[k]) + static_cast<uint64_t>(from[k]));
    }
    const auto is_full = [](int64_t n) { return n != 0; };
    const auto begin = std::find_if(sums.begin(), sums.end(), is_full);
    const auto end = std::find_if(sums.rbegin(), std::make_reverse_iterator(begin), is_full).base();
    merged->first.push_back(begin == end ? 0 : low + (begin - sums.begin()));
    merged->counts.insert(merged->counts.end(), begin, end);
    merged->offsets.push_back(static_cast<int64_t>(merged->counts.size()));
  }
  return true;
}

void weigh(const Runs &rows, const double *weight, int64_t low, double *sums) {
  for (size_t i = 0; i < rows.rows; i++) {
    double sum = 0;
    const int64_t begin = rows.offsets[i], length = rows.offsets[i + 1] - begin;
    const double *of = length ? weight + (rows.first[i] - low) : weight;
    for (int64_t k = 0; k < length; k++) sum += static_cast<double>(rows.counts[begin + k]) * of[k];
    sums[i] = sum;
  }
}

}  // namespace runs
