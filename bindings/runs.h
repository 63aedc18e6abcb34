/* Histograms as dense runs of buckets, the way the fleet's segments hold them: row i has counts[offsets[i] .. offsets[i + 1]) from first[i] on. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace runs {

struct Runs { /* views; the numbers may come from a damaged file, so is_valid comes first */
  const int64_t *first, *offsets, *counts;
  size_t rows, cells;
  /* Offsets that rise from 0 to `cells`, and every bucket from `low` to `high`. */
  bool is_valid(int64_t low, int64_t high) const;
};

struct Merged {
  std::vector<int64_t> first, offsets, counts;
};

/* For each g, the rows order[bounds[g] .. bounds[g + 1]) added up, without zeros at either end; a row of no counts starts at 0. False if `order` or
 * `bounds` name rows that are not there. */
bool add_up(const Runs &rows, const int64_t *order, size_t ordered, const int64_t *bounds, size_t groups, Merged *merged);

/* The sum of count x weight[bucket - low] of each row. */
void weigh(const Runs &rows, const double *weight, int64_t low, double *sums);

}  // namespace runs
