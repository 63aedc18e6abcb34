#include "fleet.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <string_view>

#include "gil.h"
#include "otlp.h"
#include "runs.h"

namespace nb = nanobind;

namespace {

/* Every column after the other, as one bytes object of 64-bit integers: numpy takes it apart without copying. */
nb::bytes packed(std::initializer_list<const std::vector<int64_t> *> columns) {
  size_t total = 0;
  for (const auto *column : columns) total += column->size();
  PyObject *made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total * sizeof(int64_t)));
  if (!made) throw nb::python_error();
  char *at = PyBytes_AS_STRING(made);
  for (const auto *column : columns) {
    const size_t size = column->size() * sizeof(int64_t);
    if (size) memcpy(at, column->data(), size);
    at += size;
  }
  return nb::steal<nb::bytes>(made);
}

nb::object read_message(const otlp::SeriesIds &ids, const nb::bytes &body, size_t start, size_t end, uint64_t now_ns) {
  if (start > end || end > body.size()) throw nb::value_error("a message beyond its bytes");
  otlp::Reading found;
  const char *error;
  {
    const std::string_view message(body.c_str() + start, end - start);
    const Unlocked unlocked;
    error = otlp::read_points(message, now_ns, ids, &found);
  }
  if (error) throw nb::value_error(error);
  if (!found.unknown.empty()) {
    nb::list unknown;
    for (const std::string &attributes : found.unknown) unknown.append(nb::bytes(attributes.data(), attributes.size()));
    return unknown;
  }
  const otlp::Columns &p = found.points;
  const nb::bytes columns = packed({&p.series, &p.time_s, &p.count, &p.samples, &p.total_ns, &p.self_ns, &p.zero, &p.first, &p.offsets, &p.counts});
  return nb::make_tuple(p.series.size(), columns, found.dropped, found.overflow, found.overhead, found.refused,
                        static_cast<int>(found.reason), nb::bytes(found.name.data(), found.name.size()));
}

uint64_t digest(const nb::bytes &body, size_t start, size_t end, uint64_t before) {
  if (start > end || end > body.size()) throw nb::value_error("a message beyond its bytes");
  return otlp::digest({body.c_str() + start, end - start}, before);
}

// ---- runs of buckets ---------------------------------------------------------------------------------------------------------

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

runs::Runs checked(const Array<int64_t> &first, const Array<int64_t> &offsets, const Array<int64_t> &counts, int64_t low, int64_t high) {
  const runs::Runs rows{first.data(), offsets.data(), counts.data(), first.size(), counts.size()};
  if (offsets.size() != first.size() + 1 || !rows.is_valid(low, high)) throw nb::value_error("runs of buckets that do not fit their counts");
  return rows;
}

nb::tuple add_runs(const Array<int64_t> &first, const Array<int64_t> &offsets, const Array<int64_t> &counts, const Array<int64_t> &order,
                   const Array<int64_t> &bounds, int64_t low, int64_t high) {
  runs::Merged merged;
  bool is_done = false;
  {
    const Unlocked unlocked;
    const runs::Runs rows = checked(first, offsets, counts, low, high);
    if (bounds.size()) is_done = runs::add_up(rows, order.data(), order.size(), bounds.data(), bounds.size() - 1, &merged);
  }
  if (!is_done) throw nb::value_error("an order of rows that are not there");
  return nb::make_tuple(packed({&merged.first}), packed({&merged.offsets}), packed({&merged.counts}));
}

nb::bytes weigh_runs(const Array<int64_t> &first, const Array<int64_t> &offsets, const Array<int64_t> &counts, const Array<double> &weight, int64_t low) {
  PyObject *made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(first.size() * sizeof(double)));
  if (!made) throw nb::python_error();
  nb::bytes sums = nb::steal<nb::bytes>(made);
  {
    const Unlocked unlocked;
    const runs::Runs rows = checked(first, offsets, counts, low, low + static_cast<int64_t>(weight.size()) - 1);
    runs::weigh(rows, weight.data(), low, reinterpret_cast<double *>(PyBytes_AS_STRING(made)));
  }
  return sums;
}

}  // namespace

void bind_fleet(nb::module_ &m) {
  nb::class_<otlp::SeriesIds>(m, "SeriesIds")
      .def(nb::init<>())
      .def("learn", [](otlp::SeriesIds &ids, const nb::bytes &attributes, int64_t id, bool has_operator) { ids.learn({attributes.c_str(), attributes.size()}, id, has_operator); }, nb::arg("attributes"), nb::arg("id"), nb::arg("has_operator"))
      .def("read", read_message, nb::arg("body"), nb::arg("start"), nb::arg("end"), nb::arg("now_ns"))
      .def("__len__", &otlp::SeriesIds::size)
      .def_prop_ro("size_bytes", &otlp::SeriesIds::size_bytes);
  m.def("add_runs", add_runs, nb::arg("first"), nb::arg("offsets"), nb::arg("counts"), nb::arg("order"), nb::arg("bounds"), nb::arg("low"), nb::arg("high"));
  m.def("weigh_runs", weigh_runs, nb::arg("first"), nb::arg("offsets"), nb::arg("counts"), nb::arg("weight"), nb::arg("low"));
  m.def("digest", digest, nb::arg("body"), nb::arg("start"), nb::arg("end"), nb::arg("before"));
}
