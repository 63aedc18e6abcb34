#include "otlp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace otlp {

class SeriesLookup { /* holds the dictionary still for as long as one message is read */
 public:
  explicit SeriesLookup(const SeriesIds &ids) : ids_(ids), lock_(ids.mutex_) {}
  const SeriesIds::Entry *find(std::string_view attributes) const {
    const auto found = ids_.entries_.find(attributes);
    return found == ids_.entries_.end() ? nullptr : &found->second;
  }

 private:
  const SeriesIds &ids_;
  std::shared_lock<std::shared_mutex> lock_;
};

void SeriesIds::learn(std::string_view attributes, int64_t id, bool has_operator) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (entries_.count(attributes)) return;
  texts_.emplace_back(attributes);
  size_bytes_ += attributes.size();
  entries_.emplace(texts_.back(), Entry{id, has_operator});
}

size_t SeriesIds::size() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return entries_.size();
}

size_t SeriesIds::size_bytes() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return size_bytes_;
}

namespace {

constexpr int32_t SCALE = 3;
constexpr int64_t MAX_RUN = 4096, BUCKET_MIN = -1, BUCKET_MAX = 511, SLOT_S = 10, NS = 1000000000;
constexpr uint64_t MAX_COUNT = uint64_t{1} << 53, FUTURE_NS = 300 * uint64_t{NS};
constexpr double MAX_TOTAL_NS = 1152921504606846976.0; /* 2**60 */

enum Kind : uint32_t { VARINT,
                       FIXED64,
                       BYTES,
                       FIXED32 = 5 };

constexpr uint64_t tag_of(uint32_t field, Kind kind) { return uint64_t{field} << 3 | kind; }

/* ---- the wire format --------------------------------------------------------------------------------------------------------- */

/* Walks a message's fields. After an error there are no more fields, and `error` is set. */
class Fields {
 public:
  Fields(std::string_view message, const char **error) : at_(bytes(message)), end_(at_ + message.size()), error_(error) {}

  uint64_t tag = 0;
  uint64_t number = 0;    /* of a varint or a fixed field */
  std::string_view text;  /* of a length-delimited field */
  std::string_view whole; /* the field with its tag */

  bool next() {
    if (at_ == end_) return false;
    const uint8_t *begin = at_;
    if (!varint(&tag)) return false;
    text = {};
    switch (tag & 7) {
      case VARINT:
        if (!varint(&number)) return false;
        break;
      case FIXED64:
        if (!fixed<uint64_t>()) return false;
        break;
      case FIXED32:
        if (!fixed<uint32_t>()) return false;
        break;
      case BYTES: {
        uint64_t size;
        if (!varint(&size)) return false;
        if (size > static_cast<uint64_t>(end_ - at_)) return fail("a field runs past its message");
        text = {reinterpret_cast<const char *>(at_), static_cast<size_t>(size)};
        at_ += size;
        break;
      }
      default:
        return fail("a field of an unknown wire type");
    }
    whole = {reinterpret_cast<const char *>(begin), static_cast<size_t>(at_ - begin)};
    return true;
  }

  /* One number of a packed field; below 2**63, since buckets' counts are added up as signed. */
  bool next_count(int64_t *value) {
    if (at_ == end_) return false;
    if (*at_ < 0x80) {
      *value = *at_++;
      return true;
    }
    const uint8_t *begin = at_;
    uint64_t wide;
    if (!varint(&wide)) return false;
    if (at_ - begin > 9) return fail("a count of 2**63 or more");
    *value = static_cast<int64_t>(wide);
    return true;
  }

 private:
  static const uint8_t *bytes(std::string_view text) { return reinterpret_cast<const uint8_t *>(text.data()); }

  bool fail(const char *why) {
    *error_ = why;
    at_ = end_;
    return false;
  }

  bool varint(uint64_t *value) {
    uint64_t found = 0;
    for (int shift = 0; at_ != end_ && shift < 70; shift += 7) {
      const uint8_t byte = *at_++;
      found |= static_cast<uint64_t>(byte & 0x7F) << shift; /* the tenth byte's upper bits fall out */
      if (byte < 0x80) {
        *value = found;
        return true;
      }
    }
    return fail("a number runs past its message");
  }

  template <class T>
  bool fixed() {
    T value;
    if (static_cast<size_t>(end_ - at_) < sizeof value) return fail("a field runs past its message");
    memcpy(&value, at_, sizeof value);
    number = value;
    at_ += sizeof value;
    return true;
  }

  const uint8_t *at_, *end_;
  const char **error_;
};

int64_t zigzag32(uint64_t value) {
  const uint32_t low = static_cast<uint32_t>(value);
  return static_cast<int32_t>((low >> 1) ^ (0u - (low & 1)));
}

double as_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* ---- points ------------------------------------------------------------------------------------------------------------------ */

/* A field that may come in several pieces; the one that every sender writes, in one piece, is not copied. */
class Joined {
 public:
  void add(std::string_view piece) {
    if (view_.empty()) {
      view_ = piece;
    } else if (!is_copy_ && view_.data() + view_.size() == piece.data()) {
      view_ = {view_.data(), view_.size() + piece.size()};
    } else {
      if (!is_copy_) copy_.assign(view_);
      copy_.append(piece);
      is_copy_ = true;
      view_ = copy_;
    }
  }
  std::string_view view() const { return view_; }

 private:
  std::string_view view_;
  std::string copy_;
  bool is_copy_ = false;
};

struct Histogram {
  Joined attributes;
  uint64_t start_ns = 0, end_ns = 0, count = 0, zero = 0;
  double total_ns = 0;
  int64_t scale = 0, first = 0;
};

struct Number {
  Joined attributes;
  uint64_t end_ns = 0;
  double value = 0;
};

struct Place { /* of a series' point in time: where a histogram and its samples meet */
  int64_t series;
  uint64_t end_ns;
  bool operator==(const Place &other) const { return series == other.series && end_ns == other.end_ns; }
};

struct PlaceHash {
  size_t operator()(const Place &place) const { return static_cast<size_t>(place.series) * 0x9E3779B97F4A7C15u ^ static_cast<size_t>(place.end_ns); }
};

struct Sides {
  double samples = -1, self_ns = -1; /* -1: not said */
};

class Reader {
 public:
  Reader(uint64_t now_ns, const SeriesIds &ids, Reading *out) : now_ns_(now_ns), ids_(ids), out_(out), points_(out->points) {}

  const char *read(std::string_view message) {
    points_.offsets.assign(1, 0);
    for (Fields resource(message, &error_); resource.next();)
      if (resource.tag == tag_of(2, BYTES))
        for (Fields scope(resource.text, &error_); scope.next();)
          if (scope.tag == tag_of(2, BYTES)) metric(scope.text);
    if (!error_) finish();
    return error_;
  }

 private:
  void metric(std::string_view message) {
    std::string_view name;
    std::vector<std::pair<uint64_t, std::string_view>> data; /* gauge 5, sum 7, histogram 9, exponential histogram 10, summary 11 */
    for (Fields fields(message, &error_); fields.next();) {
      if ((fields.tag & 7) != BYTES) continue;
      const uint64_t field = fields.tag >> 3;
      if (field == 1) name = fields.text;
      if (field == 5 || field == 7 || (field >= 9 && field <= 11)) data.emplace_back(field, fields.text);
    }
    for (const auto &[field, text] : data) {
      const bool is_number = field == 5 || field == 7;
      if (is_number && name == "sealift.observe.dropped") {
        meter(text, &out_->dropped, true);
      } else if (is_number && name == "sealift.observe.overflow") {
        meter(text, &out_->overflow, true);
      } else if (is_number && name == "sealift.observe.overhead") {
        meter(text, &out_->overhead, false);
      } else if (field == 10 && name == "sealift.operator.duration") {
        points(name, text, [this](std::string_view point) { histogram(point); });
      } else if (field == 7 && name == "sealift.operator.samples") {
        points(name, text, [this](std::string_view point) { side(point, &Sides::samples); });
      } else if (field == 7 && name == "sealift.operator.self_time") {
        points(name, text, [this](std::string_view point) { side(point, &Sides::self_ns); });
      } else {
        refuse(count_points(text), FOREIGN, name);
      }
    }
  }

  int64_t count_points(std::string_view data) {
    int64_t count = 0;
    for (Fields fields(data, &error_); fields.next();) count += fields.tag == tag_of(1, BYTES);
    return count;
  }

  template <class Take>
  void points(std::string_view name, std::string_view data, Take take) {
    uint64_t temporality = 0;
    int64_t count = 0;
    for (Fields fields(data, &error_); fields.next();) {
      if (fields.tag == tag_of(2, VARINT)) temporality = fields.number;
      count += fields.tag == tag_of(1, BYTES);
    }
    if (temporality != 1) {
      refuse(count, NOT_DELTA, name);
      return;
    }
    for (Fields fields(data, &error_); fields.next();)
      if (fields.tag == tag_of(1, BYTES)) take(fields.text);
  }

  bool number(std::string_view message, Number *found) {
    for (Fields fields(message, &error_); fields.next();) switch (fields.tag) {
        case tag_of(3, FIXED64): found->end_ns = fields.number; break;
        case tag_of(4, FIXED64): found->value = as_double(fields.number); break;
        case tag_of(6, FIXED64): found->value = static_cast<double>(static_cast<int64_t>(fields.number)); break;
        case tag_of(7, BYTES): found->attributes.add(fields.whole); break;
        default: break;
      }
    return !error_;
  }

  void meter(std::string_view data, double *into, bool add) {
    for (Fields fields(data, &error_); fields.next();) {
      Number point;
      if (fields.tag != tag_of(1, BYTES) || !number(fields.text, &point)) continue;
      if (point.value >= 0 && point.value < static_cast<double>(MAX_COUNT)) *into = add ? *into + point.value : point.value; /* not for NaN */
    }
  }

  void side(std::string_view message, double Sides::*which) {
    Number point;
    if (!number(message, &point)) return;
    const SeriesIds::Entry *series = look_up(point.attributes.view());
    if (!series || !(point.value >= 0)) return;
    double &value = sides_[place(series->id, point.end_ns)].*which;
    value = std::max(value, 0.0) + point.value;
  }

  void histogram(std::string_view message) {
    Histogram h;
    const size_t begin = points_.counts.size();
    int64_t sum = 0, run = 0;
    bool is_large = false; /* the sum is 2**53 or more, and `sum` stopped there */
    for (Fields fields(message, &error_); fields.next();) switch (fields.tag) {
        case tag_of(1, BYTES): h.attributes.add(fields.whole); break;
        case tag_of(2, FIXED64): h.start_ns = fields.number; break;
        case tag_of(3, FIXED64): h.end_ns = fields.number; break;
        case tag_of(4, FIXED64): h.count = fields.number; break;
        case tag_of(5, FIXED64): h.total_ns = as_double(fields.number); break;
        case tag_of(6, VARINT): h.scale = zigzag32(fields.number); break;
        case tag_of(7, FIXED64): h.zero = fields.number; break;
        case tag_of(8, BYTES): buckets(fields.text, &h, &run, &sum, &is_large); break;
        default: break;
      }
    if (error_) return;
    const SeriesIds::Entry *series = look_up(h.attributes.view());
    if (!series) {
      points_.counts.resize(begin);
      return;
    }
    const Refusal reason = judge(h, run, sum, is_large, series->has_operator);
    if (reason != KEPT) {
      refuse(1, reason, {});
      points_.counts.resize(begin);
      return;
    }
    points_.first.push_back(rescale(h, begin));
    points_.offsets.push_back(static_cast<int64_t>(points_.counts.size()));
    points_.series.push_back(series->id);
    points_.time_s.push_back(slot(h.start_ns, h.end_ns));
    points_.count.push_back(static_cast<int64_t>(h.count));
    points_.total_ns.push_back(static_cast<int64_t>(std::nearbyint(h.total_ns)));
    points_.zero.push_back(static_cast<int64_t>(h.zero));
    places_.push_back(place(series->id, h.end_ns));
  }

  void buckets(std::string_view message, Histogram *h, int64_t *run, int64_t *sum, bool *is_large) {
    const auto take = [&](int64_t n) {
      if (++*run > MAX_RUN) return; /* it will be refused */
      points_.counts.push_back(n);
      if (*is_large || n >= static_cast<int64_t>(MAX_COUNT) || *sum + n >= static_cast<int64_t>(MAX_COUNT))
        *is_large = true;
      else
        *sum += n;
    };
    for (Fields fields(message, &error_); fields.next();) switch (fields.tag) {
        case tag_of(1, VARINT): h->first = zigzag32(fields.number); break;
        case tag_of(2, BYTES): {
          int64_t n;
          for (Fields packed(fields.text, &error_); packed.next_count(&n);) take(n);
          break;
        }
        case tag_of(2, VARINT): /* one by itself */
          if (fields.number >> 63) {
            error_ = "a count of 2**63 or more";
            return;
          }
          take(static_cast<int64_t>(fields.number));
          break;
        default: break;
      }
  }

  static Refusal judge(const Histogram &h, int64_t run, int64_t sum, bool is_large, bool has_operator) {
    if (h.scale < SCALE || h.scale > 20) return SCALE_RANGE;
    if (std::abs(h.first) >= 1 << 30) return OFFSET_RANGE;
    if (run > MAX_RUN) return TOO_MANY_BUCKETS;
    if (!(h.total_ns >= 0 && h.total_ns < MAX_TOTAL_NS)) return SUM_RANGE;
    if (h.count == 0 || h.count >= MAX_COUNT || h.zero >= MAX_COUNT || is_large) return COUNT_RANGE;
    if (static_cast<uint64_t>(sum) + h.zero != h.count) return DOES_NOT_ADD_UP;
    return has_operator ? KEPT : NO_OPERATOR;
  }

  /* The first bucket, once the counts from `begin` on are at SCALE and within BUCKET_MIN .. BUCKET_MAX: buckets of a finer scale fall together. */
  int64_t rescale(const Histogram &h, size_t begin) {
    std::vector<int64_t> &counts = points_.counts;
    const int64_t run = static_cast<int64_t>(counts.size() - begin);
    if (!run) return 0;
    const int64_t shift = h.scale - SCALE;
    if (!shift && h.first >= BUCKET_MIN && h.first + run - 1 <= BUCKET_MAX) return h.first;
    const auto index = [&](int64_t i) { return std::clamp((h.first + i) >> shift, BUCKET_MIN, BUCKET_MAX); };
    const int64_t first = index(0), last = index(run - 1);
    for (int64_t i = 0; i < run; i++) { /* index(i) - first <= i: what is overwritten has been read */
      const int64_t n = counts[begin + i];
      counts[begin + i] = 0;
      counts[begin + (index(i) - first)] += n;
    }
    counts.resize(begin + (last - first) + 1);
    return first;
  }

  /* The slot of the window's middle. A window without a start, or that ends before it starts, is at its end; one without a time, or from the
   * future, is at the time it arrived. */
  int64_t slot(uint64_t start, uint64_t end) const {
    const uint64_t limit = now_ns_ + FUTURE_NS;
    if (end == 0 || end > limit) start = end = now_ns_;
    if (start == 0 || start > end) start = end;
    return static_cast<int64_t>(start + (end - start) / 2) / (SLOT_S * NS) * SLOT_S;
  }

  const SeriesIds::Entry *look_up(std::string_view attributes) {
    const SeriesIds::Entry *found = ids_.find(attributes);
    if (!found && asked_.insert(std::string(attributes)).second) out_->unknown.emplace_back(attributes);
    return found;
  }

  size_t place(int64_t series, uint64_t end_ns) {
    const auto [found, is_new] = index_.try_emplace({series, end_ns}, sides_.size());
    if (is_new) sides_.emplace_back();
    return found->second;
  }

  void refuse(int64_t count, Refusal reason, std::string_view name) {
    if (count && !out_->refused) {
      out_->reason = reason;
      out_->name = name;
    }
    out_->refused += count;
  }

  void finish() {
    for (size_t i = 0; i < places_.size(); i++) {
      const Sides &side = sides_[places_[i]];
      const int64_t count = points_.count[i];
      const bool is_known = side.samples >= 0 && side.samples <= static_cast<double>(count);
      points_.samples.push_back(is_known ? std::max<int64_t>(static_cast<int64_t>(side.samples), 1) : count);
      points_.self_ns.push_back(side.self_ns < MAX_TOTAL_NS ? static_cast<int64_t>(std::nearbyint(side.self_ns)) : -1);
    }
  }

  const uint64_t now_ns_;
  const SeriesLookup ids_;
  Reading *out_;
  Columns &points_;
  const char *error_ = nullptr;
  std::vector<size_t> places_; /* of each point, in `sides_` */
  std::vector<Sides> sides_;
  std::unordered_map<Place, size_t, PlaceHash> index_;
  std::unordered_set<std::string> asked_;
};

}  // namespace

uint64_t digest(std::string_view bytes, uint64_t before) {
  const auto mix = [](uint64_t a, uint64_t b) { /* wyhash's step: both halves of the product */
                                                const unsigned __int128 product = static_cast<unsigned __int128>(a ^ 0xA0761D6478BD642Fu) * (b ^ 0xE7037ED1A0B428DBu);
                                                return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr size_t STEP = 16;
  uint64_t found = mix(before, bytes.size()), words[2];
  for (; bytes.size() >= STEP; bytes.remove_prefix(STEP)) {
    memcpy(words, bytes.data(), STEP);
    found = mix(words[0] ^ found, words[1] + found);
  }
  memset(words, 0, STEP);
  memcpy(words, bytes.data(), bytes.size());
  return mix(words[0] ^ found, words[1] + found);
}

const char *read_points(std::string_view message, uint64_t now_ns, const SeriesIds &ids, Reading *reading) {
  return Reader(now_ns, ids, reading).read(message);
}

}  // namespace otlp
