/* OTLP's histograms to columns, as sealift/fleet/otlp/points.py reads them, which says what is kept and is what this is tested against.
 * No Python in here: the sanitizers run it alone (tests/fleet/otlp_mutations.cpp). */
#pragma once
#include <cstdint>
#include <deque>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace otlp {

/* Attributes' bytes, as they stand in a point, to their series' number. Thread-safe. */
class SeriesIds {
 public:
  struct Entry {
    int64_t id;
    bool has_operator;
  };
  void learn(std::string_view attributes, int64_t id, bool has_operator);
  size_t size() const;
  size_t size_bytes() const;

 private:
  friend class SeriesLookup;
  mutable std::shared_mutex mutex_;
  std::deque<std::string> texts_; /* what the views below point into; never moved */
  std::unordered_map<std::string_view, Entry> entries_;
  size_t size_bytes_ = 0;
};

/* Why a point is not kept; the numbers are points.py's. */
enum Refusal : int32_t {
  KEPT,
  NOT_DELTA,
  FOREIGN,
  SCALE_RANGE,
  OFFSET_RANGE,
  TOO_MANY_BUCKETS,
  SUM_RANGE,
  COUNT_RANGE,
  DOES_NOT_ADD_UP,
  NO_OPERATOR,
};

struct Columns {
  std::vector<int64_t> series, time_s, count, samples, total_ns, self_ns, zero, first, offsets, counts;
};

struct Reading {
  Columns points;
  double dropped = 0, overflow = 0, overhead = -1; /* overhead: -1 for none */
  int64_t refused = 0;
  Refusal reason = KEPT;            /* of the first refused */
  std::string name;                 /* of the first refused metric */
  std::vector<std::string> unknown; /* attributes to learn before the same bytes are read again: the points are worth nothing while there are any */
};

/* The points of one ResourceMetrics. Null, or what makes the bytes no OTLP. Never reads beyond `message`, whatever is in it. */
const char *read_points(std::string_view message, uint64_t now_ns, const SeriesIds &ids, Reading *reading);

/* 64 bits of `bytes` and what came before, to tell one content from another: 6 GB/s, where a cryptographic one takes as long as all the rest.
 * Whoever made two contents collide would only have his own batch taken for a repetition. */
uint64_t digest(std::string_view bytes, uint64_t before);

}  // namespace otlp
