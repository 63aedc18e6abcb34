// sealift.hpp, as its users write it.
#define CHECK_MAIN
#include "sealift.hpp"

#include "check.h"

namespace {
std::string package(const std::string &name) { return std::string(SEALIFT_TEST_PACKAGES) + "/" + name + ".pt2"; }
}  // namespace

TEST(runs) {
  sealift::Model model(package("linear"), {"", 2});
  CHECK_EQUAL(model.inputs().size(), 1u);
  CHECK_EQUAL(model.constants().size(), 2u);
  CHECK_EQUAL(model.kernels().size(), 2u);
  CHECK(model.name() == "model" && model.isa() == "baseline" && model.num_threads() == 2);
  CHECK(model.member("archive_format") == "pt2" && model.member("absent").empty());
  sealift::Context context(model);
  std::vector<float> x(8, 1), y(6);
  context.run_into({sealift::view(x, {2, 4})}, {sealift::view(y, {2, 3})});
  CHECK_EQUAL(y[0], 20.0f);
  CHECK_EQUAL(y[5], 30.0f);
  const float constant[8] = {1, 1, 1, 1};
  const std::vector<sealift::Tensor> outputs = context.run({sealift::view(constant, {2, 4})});
  CHECK_EQUAL(outputs.size(), 1u);
  CHECK_EQUAL(outputs[0].size(), 6);
  CHECK_EQUAL(outputs[0].shape()[1], 3);
  CHECK_EQUAL(outputs[0].data<float>()[4], 20.0f);
  const auto shapes = context.output_shapes({sealift::view(x, {2, 4})});
  CHECK(shapes == (std::vector<std::vector<std::int64_t>>{{2, 3}}));
}

const auto thrown = [](auto kind, auto body) {
  try {
    body();
  } catch (const decltype(kind) &error) {
    CHECK_CONTAINS(error.what(), error.code());
    return true;
  }
  return false;
};

TEST(throws_by_kind) {
  CHECK(thrown(sealift::FileError(SEALIFT_OK, ""), [] { sealift::Model("/nonexistent"); }));
  CHECK(thrown(sealift::PackageError(SEALIFT_OK, ""), [] { sealift::Model model(package("changed")); }));
  CHECK(thrown(sealift::MachineError(SEALIFT_OK, ""), [] { sealift::Model model(package("isa")); }));
  sealift::Model model(package("linear"));
  sealift::Context context(model);
  std::vector<double> wide(4);
  std::vector<float> x(4);
  CHECK(thrown(sealift::InputError(SEALIFT_OK, ""), [&] { context.run({sealift::view(wide, {1, 4})}); }));
  CHECK(thrown(sealift::ArgumentError(SEALIFT_OK, ""), [&] { context.run({sealift::view(x, {2, 4})}); }));
  CHECK(thrown(sealift::ConstantError(SEALIFT_OK, ""), [&] { model.load_constants({{"nothing", sealift::view(x, {4})}}); }));
  sealift::Context errors{sealift::Model(package("errors"))};
  std::vector<std::int64_t> index{9};
  CHECK(thrown(sealift::RunError(SEALIFT_OK, ""), [&] { errors.run({sealift::view(index, {1})}); }));
}

TEST(keeps_state) {
  sealift::Context context{sealift::Model(package("state"))};
  std::vector<float> x(4, 1), y(4);
  auto run = [&](sealift::Context &c) {
    c.run_into({sealift::view(x, {4})}, {sealift::view(y, {4})});
    return y[0];
  };
  CHECK_EQUAL(run(context), 2.0f);
  sealift::Context clone = context.clone();
  CHECK_EQUAL(run(context), 3.0f);
  CHECK_EQUAL(run(clone), 3.0f);
  context.reset();
  CHECK_EQUAL(run(context), 2.0f);
}

TEST(sessions_share_state) {
  const sealift::Package package_of_two(package("session"));
  CHECK_EQUAL(package_of_two.size(), std::size_t{2});
  CHECK(package_of_two.model("once").name() == "once" && package_of_two.model(0).name() == "again");
  sealift::Session session(package_of_two);
  std::vector<float> x(4, 1), y(4);
  auto run = [&](sealift::Session &s, const std::string &name) {
    s.context(name).run_into({sealift::view(x, {4})}, {sealift::view(y, {4})});
    return y[0];
  };
  CHECK_EQUAL(run(session, "once"), 2.0f);
  CHECK_EQUAL(run(session, "again"), 3.0f);
  sealift::Session clone = session.clone();
  CHECK_EQUAL(run(session, "once"), 4.0f);
  CHECK_EQUAL(run(clone, "once"), 4.0f);
  session.reset();
  CHECK_EQUAL(run(session, "again"), 2.0f);
  CHECK_EQUAL(run(clone, "again"), 5.0f);
  CHECK(thrown(sealift::ArgumentError(SEALIFT_OK, ""), [&] { session.context("once").clone(); }));
  CHECK(thrown(sealift::PackageError(SEALIFT_OK, ""), [&] { session.context("never"); }));
  CHECK(thrown(sealift::PackageError(SEALIFT_OK, ""), [&] { package_of_two.model("never"); }));
  CHECK(sealift::Model(package("changes")).is_changed(0) && !sealift::Model(package("changes")).is_changed(1));
}

TEST(replaces_constants) {
  sealift::Model model(package("linear"));
  sealift::Context context(model);
  std::vector<float> bias{1, 2, 3}, x(4), y(3);
  model.load_constants({{"lin.bias", sealift::view(bias, {3})}});
  model.swap_constants();
  context.run_into({sealift::view(x, {1, 4})}, {sealift::view(y, {1, 3})});
  CHECK(y == bias);
}
