// libsealift through sealift.h: opening, checks, runs, constants, states, record points, threads, fork.
#define CHECK_MAIN
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "fixture.h"

namespace {

sealift_status open_status(const std::string &path, std::string *message, const char *name = nullptr, int isa = -1) {
  sealift_open_options options;
  sealift_open_options_init(&options);
  options.model_name = name;
  options.isa = isa;
  sealift_model *model = nullptr;
  char err[1024] = "";
  const sealift_status status = sealift_open(path.c_str(), &options, &model, err, sizeof err);
  CHECK((status == SEALIFT_OK) == (model != nullptr));
  sealift_close(model);
  *message = err;
  return status;
}

#define EXPECT_ERROR(call, status, text, part)                                   \
  do {                                                                           \
    const sealift_status actual = (call);                                        \
    CHECK_EQUAL(static_cast<int>(actual), static_cast<int>(status));             \
    CHECK_CONTAINS(text, std::string("[") + sealift_status_code(status) + "] "); \
    CHECK_CONTAINS(text, part);                                                  \
    CHECK(std::string(text).find('\n') == std::string::npos);                    \
  } while (false)

}  // namespace

// ---- opening -------------------------------------------------------------------------------------------------------------

TEST(describes_the_model) {
  Handle h(package("linear"));
  CHECK_EQUAL(std::string(sealift_model_name(h.model)) == "model", true);
  CHECK_CONTAINS(sealift_model_isa(h.model), "baseline");
  CHECK_EQUAL(sealift_num_inputs(h.model), 1);
  CHECK_EQUAL(sealift_num_outputs(h.model), 1);
  const sealift_tensor_info *x = sealift_input_info(h.model, 0);
  CHECK_CONTAINS(x->name, "x");
  CHECK_EQUAL(x->rank, 2);
  CHECK_CONTAINS(x->dims[0].text, "batch");
  CHECK_EQUAL(x->dims[0].min, 1);
  CHECK_EQUAL(x->dims[0].max, 1024);
  CHECK_EQUAL(x->dims[1].min, 4);
  CHECK_EQUAL(x->dims[1].max, 4);
  CHECK(sealift_input_info(h.model, 1) == nullptr && sealift_input_info(h.model, -1) == nullptr);
  CHECK_EQUAL(sealift_num_constants(h.model), 2);
  CHECK_CONTAINS(sealift_constant(h.model, 0)->fqn, "lin.weight");
  CHECK_EQUAL(sealift_constant(h.model, 0)->shape[1], 4);
  CHECK_EQUAL(sealift_num_kernels(h.model), 2);
  CHECK_CONTAINS(sealift_kernel(h.model, 1)->name, "k1_bias");
  CHECK_CONTAINS(sealift_input_spec(h.model), "builtins.tuple");
  std::size_t bytes = 0;
  const char *manifest = sealift_member(h.model, "sealift/manifest.json", &bytes);
  CHECK(manifest != nullptr && bytes == std::strlen(manifest));
  CHECK_CONTAINS(manifest, "schema");
  CHECK(sealift_member(h.model, "sealift/manifest.json", nullptr) == manifest);
  CHECK(sealift_member(h.model, "absent", &bytes) == nullptr && bytes == 0);

  Handle shapes(package("shapes"));
  CHECK_EQUAL(sealift_input_info(shapes.model, 1)->dims[0].max, 16);  // 2*s, s <= 8
  CHECK_EQUAL(sealift_output_info(shapes.model, 1)->is_none, 1);
  CHECK_EQUAL(sealift_output_info(shapes.model, 3)->rank, 0);
}

TEST(refuses_to_open) {
  std::string text;
  EXPECT_ERROR(open_status("/nonexistent/model.pt2", &text), SEALIFT_ERROR_FILE, text, "/nonexistent/model.pt2");
  EXPECT_ERROR(open_status("/dev/null", &text), SEALIFT_ERROR_PACKAGE, text, "help:");
  EXPECT_ERROR(open_status(package("linear"), &text, "decoder"), SEALIFT_ERROR_MODEL_NAME, text, "'model'");
  EXPECT_ERROR(open_status(package("two"), &text), SEALIFT_ERROR_MODEL_NAME, text, "'encoder', 'state'");
  EXPECT_ERROR(open_status(package("isa"), &text), SEALIFT_ERROR_ISA, text, "built for none");
  EXPECT_ERROR(open_status(package("linear"), &text, nullptr, 3), SEALIFT_ERROR_ISA, text, "with amx");
  EXPECT_ERROR(open_status(package("linear"), &text, nullptr, 77), SEALIFT_ERROR_ARGUMENT, text, "77");
  EXPECT_ERROR(open_status(package("abi"), &text), SEALIFT_ERROR_LIBRARY, text, "ABI");
  EXPECT_ERROR(open_status(package("nolibrary"), &text), SEALIFT_ERROR_LIBRARY, text, "model.wrapper.so");
  EXPECT_ERROR(open_status(package("newer"), &text), SEALIFT_ERROR_VERSION, text, "1.7");
  EXPECT_ERROR(open_status(package("changed"), &text), SEALIFT_ERROR_INTEGRITY, text, "weights.bin");
  char err[512];
  sealift_model *model = nullptr;
  EXPECT_ERROR(sealift_open(nullptr, nullptr, &model, err, sizeof err), SEALIFT_ERROR_ARGUMENT, err, "path");
  CHECK_EQUAL(static_cast<int>(sealift_open("x", nullptr, nullptr, nullptr, 0)), static_cast<int>(SEALIFT_ERROR_ARGUMENT));
  char tiny[8];
  sealift_open("/nonexistent", nullptr, &model, tiny, sizeof tiny);
  CHECK(std::strlen(tiny) < sizeof tiny);
  Handle named(package("two"), 1, "encoder");
  // Code only: the changed weights are not looked at.
  sealift_open_options options;
  sealift_open_options_init(&options);
  options.verify = 0;
  CHECK_EQUAL(static_cast<int>(sealift_open(package("changed").c_str(), &options, &model, err, sizeof err)), static_cast<int>(SEALIFT_OK));
  sealift_close(model);
}

TEST(opens_many_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 10; ++i) {
        Handle h(package("linear"), 2);
        Floats x({5, 4}, F32), y({5, 3}, F32);
        fill_linear(x);
        CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
        CHECK(is_linear(y));
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
}

TEST(descriptors_are_not_lost) {
  auto lowest_free = [] {
    const int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
  };
  const int before = lowest_free();
  for (int i = 0; i < 20; ++i) {
    Handle h(package("linear"));
    std::string text;
    open_status(package("changed"), &text);
    open_status(package("abi"), &text);
  }
  CHECK_EQUAL(lowest_free(), before);
}

// A closed model's descriptor number comes back for another model: the loader must not take one library for the other.
TEST(reopening_gets_the_right_library) {
  for (int i = 0; i < 5; ++i) {
    {
      Handle h(package("linear"));
      CHECK_EQUAL(sealift_num_kernels(h.model), 2);
    }
    Handle h(package("state"));
    CHECK_EQUAL(sealift_num_kernels(h.model), 1);
  }
}

// ---- checks --------------------------------------------------------------------------------------------------------------

TEST(checks_inputs) {
  Handle h(package("linear"));
  Floats x({8, 4}, F32), y({8, 3}, F32);
  std::string text;
  EXPECT_ERROR(run_into(h.context, {}, {y.tensor}, &text), SEALIFT_ERROR_INPUT_COUNT, text, "0 inputs");
  EXPECT_ERROR(run_into(h.context, {x.tensor}, {}, &text), SEALIFT_ERROR_INPUT_COUNT, text, "0 outputs");
  Array<double> wide({8, 4}, F64);
  EXPECT_ERROR(run_into(h.context, {wide.tensor}, {y.tensor}, &text), SEALIFT_ERROR_DTYPE, text, "input 'x' has dtype float64, the model takes float32");
  Floats flat({8}, F32);
  EXPECT_ERROR(run_into(h.context, {flat.tensor}, {y.tensor}, &text), SEALIFT_ERROR_SHAPE, text, "1 dimensions");
  Floats large({1025, 4}, F32);
  EXPECT_ERROR(run_into(h.context, {large.tensor}, {y.tensor}, &text), SEALIFT_ERROR_SHAPE, text,
               "[E-INPUT-003] input 'x': size 1025 of dimension 0 (batch) is outside 1..1024; help:");
  Floats empty({0, 4}, F32);
  EXPECT_ERROR(run_into(h.context, {empty.tensor}, {y.tensor}, &text), SEALIFT_ERROR_SHAPE, text, "size 0 of dimension 0");
  Floats five({8, 5}, F32);
  EXPECT_ERROR(run_into(h.context, {five.tensor}, {y.tensor}, &text), SEALIFT_ERROR_SHAPE, text, "size 5 of dimension 1 must be 4");
  DLTensor elsewhere = x.tensor;
  elsewhere.device.device_type = kDLCUDA;
  EXPECT_ERROR(run_into(h.context, {elsewhere}, {y.tensor}, &text), SEALIFT_ERROR_DEVICE, text, "not on the CPU");
  DLTensor nothing = x.tensor;
  nothing.data = nullptr;
  EXPECT_ERROR(run_into(h.context, {nothing}, {y.tensor}, &text), SEALIFT_ERROR_ARGUMENT, text, "no data");
  DLTensor shapeless = x.tensor;
  shapeless.shape = nullptr;
  EXPECT_ERROR(run_into(h.context, {shapeless}, {y.tensor}, &text), SEALIFT_ERROR_ARGUMENT, text, "no shape");
  Floats short_y({7, 3}, F32);
  EXPECT_ERROR(run_into(h.context, {x.tensor}, {short_y.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "size 7 of dimension 0 must be 8 (batch)");
  EXPECT_ERROR(run_into(h.context, {x.tensor}, {wide.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "dtype float64");
  EXPECT_ERROR(run_into(h.context, {x.tensor}, {flat.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "1 dimensions");
  Floats repeated({8, 3}, F32, {0, 1}, 24);
  EXPECT_ERROR(run_into(h.context, {x.tensor}, {repeated.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "overlap");
  char err[512];
  EXPECT_ERROR(sealift_run_into(nullptr, 0, nullptr, 0, nullptr, err, sizeof err), SEALIFT_ERROR_ARGUMENT, err, "context");
  EXPECT_ERROR(sealift_run_into(h.context, 1, nullptr, 1, &y.tensor, err, sizeof err), SEALIFT_ERROR_ARGUMENT, err, "inputs");
  // And after all those refusals it still runs.
  fill_linear(x);
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor}, &text)), 0);
  CHECK(is_linear(y));
}

TEST(checks_sizes_that_depend_on_others) {
  Handle h(package("shapes"));
  Floats a({3, 4}, F32), same({3, 4}, F32), none({0}, F32), turned({3, 4}, F32, {1, 3});
  Array<std::int64_t> b({6}, I64), sum({}, I64);
  Array<std::uint8_t> c({3}, BOOL);
  std::string text;
  std::vector<DLTensor> outputs{same.tensor, none.tensor, turned.tensor, sum.tensor};
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {a.tensor, b.tensor, c.tensor}, outputs, &text)), 0);
  Array<std::int64_t> seven({7}, I64);
  EXPECT_ERROR(run_into(h.context, {a.tensor, seven.tensor, c.tensor}, outputs, &text), SEALIFT_ERROR_SHAPE, text,
               "input 'b': size 7 of dimension 0 must be 2*s = 6");
  Array<std::uint8_t> two({2}, BOOL);
  EXPECT_ERROR(run_into(h.context, {a.tensor, b.tensor, two.tensor}, outputs, &text), SEALIFT_ERROR_SHAPE, text,
               "size 2 of dimension 0 differs from s = 3, set by dimension 0 of input 'a'");
  outputs[3] = same.tensor;
  EXPECT_ERROR(run_into(h.context, {a.tensor, b.tensor, c.tensor}, outputs, &text), SEALIFT_ERROR_OUTPUT, text, "sum");
  outputs[3] = sum.tensor;
  outputs[2] = same.tensor;
  EXPECT_ERROR(run_into(h.context, {a.tensor, b.tensor, c.tensor}, outputs, &text), SEALIFT_ERROR_OUTPUT, text, "same memory");
}

TEST(reports_errors_of_the_run) {
  Handle h(package("errors"));
  Array<std::int64_t> i({2}, I64);
  Floats y({2}, F32);
  std::string text;
  i.data = {0, 7};
  i.tensor.data = i.data.data();
  EXPECT_ERROR(run_into(h.context, {i.tensor}, {y.tensor}, &text), SEALIFT_ERROR_INDEX, text,
               "index 7 is out of range for a dimension of size 5 in k0_index (aten.index) at model.py:12 table");
  i.data[1] = -1;
  EXPECT_ERROR(run_into(h.context, {i.tensor}, {y.tensor}, &text), SEALIFT_ERROR_ASSERT, text, "k0_index");
  i.data[1] = -100;
  EXPECT_ERROR(run_into(h.context, {i.tensor}, {y.tensor}, &text), SEALIFT_ERROR_DIVIDE, text, "model.py:12");
  i.data[1] = 4;
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {i.tensor}, {y.tensor}, &text)), 0);
  CHECK_EQUAL(y.data[1], 4.5f);
  Array<std::int64_t> no_index({0}, I64);
  Floats no_y({0}, F32);
  no_index.tensor.data = nullptr;
  no_y.tensor.data = nullptr;
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {no_index.tensor}, {no_y.tensor}, &text)), 0);
  DLManagedTensorVersioned *output = nullptr;
  char err[512];
  i.data[1] = 9;
  EXPECT_ERROR(sealift_run(h.context, 1, &i.tensor, 1, &output, err, sizeof err), SEALIFT_ERROR_INDEX, err, "index 9");
  CHECK(output == nullptr);
}

TEST(every_status_has_a_code) {
  for (int status = 1; status <= SEALIFT_ERROR_BUSY; ++status) CHECK_CONTAINS(sealift_status_code(static_cast<sealift_status>(status)), "E-");
  CHECK_CONTAINS(sealift_status_code(static_cast<sealift_status>(99)), "UNKNOWN");
  CHECK_CONTAINS(sealift_version(), "0.1");
  CHECK((sealift_machine_isas() & 1u) != 0);
}

// ---- layouts -------------------------------------------------------------------------------------------------------------

TEST(takes_inputs_of_any_strides) {
  Handle h(package("linear"), 2);
  Floats y({8, 3}, F32);
  const std::vector<std::vector<std::int64_t>> layouts = {{4, 1}, {1, 8}, {8, 2}, {5, 1}};
  for (const auto &strides : layouts) {
    Floats x({8, 4}, F32, strides, 8 * 8);
    fill_linear(x);
    CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
    CHECK(is_linear(y));
  }
  // One row, eight times; backwards; at an offset; misaligned; without strides.
  Floats row({8, 4}, F32, {0, 1}, 4), plain({1, 4}, F32);
  for (int k = 0; k < 4; ++k) row.data[static_cast<std::size_t>(k)] = static_cast<float>(k);
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {row.tensor}, {y.tensor})), 0);
  for (int r = 0; r < 8; ++r) CHECK_EQUAL(y.data[static_cast<std::size_t>(3 * r)], 30.0f);
  Floats back({8, 4}, F32);
  fill_linear(back);
  back.strides = {-4, 1};
  back.tensor.data = back.data.data() + 28;
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {back.tensor}, {y.tensor})), 0);
  for (int r = 0; r < 8; ++r) CHECK_EQUAL(y.data[static_cast<std::size_t>(3 * r)], linear(7 - r, 0));
  Floats x({8, 4}, F32, {4, 1}, 40);
  fill_linear(x);
  std::memmove(x.data.data() + 5, x.data.data(), 32 * sizeof(float));
  x.tensor.byte_offset = 20;
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
  CHECK(is_linear(y));
  std::memmove(reinterpret_cast<char *>(x.data.data()) + 1, x.data.data() + 5, 32 * sizeof(float));
  x.tensor.byte_offset = 1;
  x.tensor.strides = nullptr;
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
  CHECK(is_linear(y));
}

TEST(fills_outputs_of_any_strides) {
  Handle h(package("linear"), 2);
  Floats x({8, 4}, F32);
  fill_linear(x);
  const std::vector<std::vector<std::int64_t>> layouts = {{3, 1}, {1, 8}, {6, 2}, {7, 2}};
  for (const auto &strides : layouts) {
    Floats y({8, 3}, F32, strides, 64);
    for (float &value : y.data) value = -1;
    CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
    CHECK(is_linear(y));
    std::size_t untouched = 0;
    for (const float value : y.data) untouched += value == -1 ? 1u : 0u;
    CHECK(untouched >= 64 - 24);
  }
  // Over its own input: the values are those of the input as it was.
  Floats both({8, 4}, F32);
  fill_linear(both);
  std::vector<std::int64_t> shape{8, 3}, strides{3, 1};
  DLTensor over = both.tensor;
  over.shape = shape.data();
  over.strides = strides.data();
  CHECK_EQUAL(static_cast<int>(run_into(h.context, {both.tensor}, {over})), 0);
  for (int r = 0; r < 8; ++r) CHECK_EQUAL(both.data[static_cast<std::size_t>(3 * r + 1)], linear(r, 1));
}

TEST(aliases_none_and_other_orders) {
  Handle h(package("shapes"));
  for (const std::int64_t s : {3, 0, 1, 8}) {
    Floats a({s, 4}, F32, {1, s == 0 ? 1 : s});  // column-major
    Array<std::int64_t> b({2 * s}, I64);
    Array<std::uint8_t> c({s}, BOOL);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = static_cast<float>(i) + 1;
    for (std::size_t i = 0; i < b.data.size(); ++i) sum += b.data[i] = static_cast<std::int64_t>(i * i);
    for (std::size_t i = 0; i < c.data.size(); ++i) c.data[i] = i % 2 == 0;
    DLTensor inputs[] = {a.tensor, b.tensor, c.tensor};
    DLManagedTensorVersioned *outputs[4];
    char err[512] = "";
    CHECK_EQUAL(static_cast<int>(sealift_run(h.context, 3, inputs, 4, outputs, err, sizeof err)), 0);
    CHECK(outputs[1] == nullptr);
    const DLTensor &same = outputs[0]->dl_tensor, &turned = outputs[2]->dl_tensor;
    CHECK(same.data != a.data.data());
    CHECK_EQUAL(turned.strides[0], 1);
    CHECK(s < 1 || turned.strides[1] == s);
    for (std::int64_t i = 0; i < s; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) {
        const float value = a.data[static_cast<std::size_t>(i + j * s)];
        CHECK_EQUAL(static_cast<float *>(same.data)[i * 4 + j], value);
        CHECK_EQUAL(static_cast<float *>(turned.data)[i + j * s], i % 2 == 0 ? 2 * value : 0.0f);
      }
    }
    CHECK_EQUAL(*static_cast<std::int64_t *>(outputs[3]->dl_tensor.data), sum);
    CHECK_EQUAL(outputs[3]->dl_tensor.ndim, 0);
    // Into the caller's tensors: the alias is a copy there, too, in any strides.
    Floats copy({s, 4}, F32, {8, 2}, 8 * s + 8), none({0}, F32), rows({s, 4}, F32);
    Array<std::int64_t> total({}, I64);
    CHECK_EQUAL(static_cast<int>(run_into(h.context, {a.tensor, b.tensor, c.tensor}, {copy.tensor, none.tensor, rows.tensor, total.tensor})), 0);
    for (std::int64_t i = 0; i < s; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) {
        CHECK_EQUAL(copy.data[static_cast<std::size_t>(i * 8 + j * 2)], a.data[static_cast<std::size_t>(i + j * s)]);
        CHECK_EQUAL(rows.data[static_cast<std::size_t>(i * 4 + j)], static_cast<float *>(turned.data)[i + j * s]);
      }
    }
    CHECK_EQUAL(total.data[0], sum);
    for (DLManagedTensorVersioned *output : outputs) {
      if (output != nullptr) output->deleter(output);
    }
  }
}

TEST(tells_output_shapes) {
  Handle h(package("shapes"));
  Floats a({5, 4}, F32);
  Array<std::int64_t> b({10}, I64);
  Array<std::uint8_t> c({5}, BOOL);
  DLTensor inputs[] = {a.tensor, b.tensor, c.tensor};
  std::int64_t shapes[4][16], strides[4][16];
  char err[512];
  CHECK_EQUAL(static_cast<int>(sealift_output_shapes(h.context, 3, inputs, shapes, strides, err, sizeof err)), 0);
  CHECK_EQUAL(shapes[2][0], 5);
  CHECK_EQUAL(shapes[2][1], 4);
  CHECK_EQUAL(strides[2][0], 1);
  CHECK_EQUAL(strides[2][1], 5);
  CHECK_EQUAL(static_cast<int>(sealift_output_shapes(h.context, 3, inputs, nullptr, nullptr, err, sizeof err)), 0);
}

TEST(sizes_change_from_run_to_run) {
  Handle h(package("linear"), 4);
  for (const std::int64_t batch : {1, 1000, 2, 1024, 3, 3, 64}) {
    Floats x({batch, 4}, F32), y({batch, 3}, F32);
    fill_linear(x);
    CHECK_EQUAL(static_cast<int>(run_into(h.context, {x.tensor}, {y.tensor})), 0);
    CHECK(is_linear(y));
  }
}

// ---- states and constants ------------------------------------------------------------------------------------------------

TEST(state_belongs_to_the_context) {
  Handle h(package("state"));
  Floats x({4}, F32), y({4}, F32);
  for (float &value : x.data) value = 1;
  char err[512];
  auto run = [&](sealift_context *context) {
    CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
    return y.data[3];
  };
  CHECK_EQUAL(run(h.context), 5.0f);
  CHECK_EQUAL(run(h.context), 6.0f);
  sealift_context *fresh = nullptr, *clone = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_context_create(h.model, &fresh, err, sizeof err)), 0);
  CHECK_EQUAL(static_cast<int>(sealift_context_clone(h.context, &clone, err, sizeof err)), 0);
  CHECK_EQUAL(run(fresh), 5.0f);
  CHECK_EQUAL(run(clone), 7.0f);
  CHECK_EQUAL(run(h.context), 7.0f);
  CHECK_EQUAL(run(clone), 8.0f);
  CHECK_EQUAL(static_cast<int>(sealift_context_reset(h.context, err, sizeof err)), 0);
  CHECK_EQUAL(run(h.context), 5.0f);
  CHECK_EQUAL(run(clone), 9.0f);
  sealift_context_destroy(fresh);
  sealift_context_destroy(clone);
}

TEST(models_of_a_session_share_their_state) {
  char err[512];
  sealift_package *opened = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_package_open(package("session").c_str(), nullptr, &opened, err, sizeof err)), 0);
  CHECK_EQUAL(sealift_package_num_models(opened), 2);
  CHECK(std::string(sealift_model_name(sealift_package_model(opened, 0))) == "again");
  CHECK(sealift_package_model(opened, 2) == nullptr && sealift_package_model(opened, -1) == nullptr);
  CHECK(sealift_package_find(opened, "once") == sealift_package_model(opened, 1) && sealift_package_find(opened, "never") == nullptr);
  sealift_session *session = nullptr, *clone = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_session_create(opened, &session, err, sizeof err)), 0);
  sealift_context *alone = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_context_create(sealift_package_model(opened, 0), &alone, err, sizeof err)), 0);
  sealift_package_close(opened);  // the session keeps what it needs
  Floats x({4}, F32), y({4}, F32);
  for (float &value : x.data) value = 1;
  auto run = [&](sealift_context *context) {
    CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
    return y.data[3];
  };
  sealift_context *again = sealift_session_context(session, 0), *once = sealift_session_context(session, 1);
  CHECK(sealift_session_context(session, 2) == nullptr);
  CHECK_EQUAL(run(again), 5.0f);
  CHECK_EQUAL(run(once), 6.0f);
  CHECK_EQUAL(run(alone), 5.0f);
  CHECK_EQUAL(static_cast<int>(sealift_session_clone(session, &clone, err, sizeof err)), 0);
  CHECK_EQUAL(run(again), 7.0f);
  CHECK_EQUAL(run(sealift_session_context(clone, 1)), 7.0f);
  CHECK_EQUAL(run(sealift_session_context(clone, 0)), 8.0f);
  sealift_context *refused = nullptr;
  EXPECT_ERROR(sealift_context_clone(once, &refused, err, sizeof err), SEALIFT_ERROR_ARGUMENT, err, "clone the session");
  CHECK_EQUAL(static_cast<int>(sealift_context_reset(once, err, sizeof err)), 0);  // all of it
  CHECK_EQUAL(run(again), 5.0f);
  CHECK_EQUAL(static_cast<int>(sealift_session_reset(session, err, sizeof err)), 0);
  CHECK_EQUAL(run(once), 5.0f);
  CHECK_EQUAL(run(sealift_session_context(clone, 0)), 9.0f);
  sealift_context_destroy(once);  // the session's: left alone
  CHECK_EQUAL(run(once), 6.0f);
  sealift_session_destroy(session);
  sealift_session_destroy(clone);
  sealift_session_destroy(nullptr);
  sealift_context_destroy(alone);
  EXPECT_ERROR(sealift_package_open(package("missing").c_str(), nullptr, &opened, err, sizeof err), SEALIFT_ERROR_FILE, err, "missing");
  CHECK(opened == nullptr);
  sealift_package_close(nullptr);
}

TEST(a_session_takes_turns) {
  char err[512];
  sealift_package *opened = nullptr;
  sealift_session *session = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_package_open(package("session").c_str(), nullptr, &opened, err, sizeof err)), 0);
  CHECK_EQUAL(static_cast<int>(sealift_session_create(opened, &session, err, sizeof err)), 0);
  std::atomic<int> done{0};
  auto work = [&](int which) {
    Floats x({4}, F32), y({4}, F32);
    for (float &value : x.data) value = 1;
    for (int i = 0; i < 2000; ++i) {
      const sealift_status status = run_into(sealift_session_context(session, which), {x.tensor}, {y.tensor});
      CHECK(status == SEALIFT_OK || status == SEALIFT_ERROR_BUSY);
      done += status == SEALIFT_OK;
    }
  };
  std::thread one(work, 0), two(work, 1);
  one.join();
  two.join();
  Floats x({4}, F32), y({4}, F32);
  CHECK_EQUAL(static_cast<int>(run_into(sealift_session_context(session, 0), {x.tensor}, {y.tensor})), 0);
  CHECK_EQUAL(y.data[0], 1.0f + static_cast<float>(done.load()));  // every run that was let in counted once
  sealift_session_destroy(session);
  sealift_package_close(opened);
}

TEST(inputs_that_the_model_changes) {
  Handle h(package("changes"));
  CHECK_EQUAL(sealift_input_is_changed(h.model, 0), 1);
  CHECK_EQUAL(sealift_input_is_changed(h.model, 1), 0);
  CHECK_EQUAL(sealift_input_is_changed(h.model, 7), 0);
  std::string text;
  Floats x({2, 4}, F32), turned({2, 4}, F32, {1, 2}), z({4}, F32), y({4}, F32);
  for (std::size_t i = 0; i < 8; ++i) x.data[i] = static_cast<float>(i);
  for (int row = 0; row < 2; ++row)
    for (int j = 0; j < 4; ++j) turned.data[static_cast<std::size_t>(row + 2 * j)] = static_cast<float>(row * 4 + j);
  for (int round = 0; round < 3; ++round) {
    for (Floats *given : {&x, &turned}) {  // in place, and through a copy that goes back
      CHECK_EQUAL(static_cast<int>(run_into(h.context, {given->tensor, z.tensor}, {y.tensor})), 0);
      for (int j = 0; j < 4; ++j) CHECK_EQUAL(y.data[static_cast<std::size_t>(j)], static_cast<float>(4 + 2 * j + 2 * round));
    }
  }
  for (std::size_t i = 0; i < 8; ++i) CHECK_EQUAL(x.data[i], static_cast<float>(i) + 3);
  CHECK_EQUAL(turned.data[1], 7.0f);
  DLTensor same = z.tensor, over = y.tensor;
  same.data = x.data.data() + 4;
  EXPECT_ERROR(run_into(h.context, {x.tensor, same}, {y.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "shares memory with input 'z'");
  over.data = x.data.data();
  EXPECT_ERROR(run_into(h.context, {x.tensor, z.tensor}, {over}, &text), SEALIFT_ERROR_OUTPUT, text, "'x', which the model changes");
  Floats spread({2, 4}, F32, {0, 1});
  EXPECT_ERROR(run_into(h.context, {spread.tensor, z.tensor}, {y.tensor}, &text), SEALIFT_ERROR_OUTPUT, text, "let elements overlap");
  for (std::size_t i = 0; i < 8; ++i) CHECK_EQUAL(x.data[i], static_cast<float>(i) + 3);
}

TEST(constants_are_replaced_and_swapped) {
  Handle h(package("linear"));
  Floats x({8, 4}, F32), y({8, 3}, F32), bias({3}, F32), weight({3, 4}, F32, {1, 3});
  fill_linear(x);
  char err[512];
  const char *name = "lin.bias", *both[] = {"lin.weight", "lin.bias"}, *unknown = "lin.scale";
  EXPECT_ERROR(sealift_swap_constants(h.model, err, sizeof err), SEALIFT_ERROR_ARGUMENT, err, "no inactive set");
  bias.data[0] = 100;
  CHECK_EQUAL(static_cast<int>(sealift_load_constants(h.model, 1, &name, &bias.tensor, err, sizeof err)), 0);
  run_into(h.context, {x.tensor}, {y.tensor});
  CHECK(is_linear(y));  // not yet
  CHECK_EQUAL(static_cast<int>(sealift_swap_constants(h.model, err, sizeof err)), 0);
  run_into(h.context, {x.tensor}, {y.tensor});
  const float replaced[3] = {100, 0, 0};
  CHECK_EQUAL(y.data[3], linear(1, 0, replaced));
  CHECK_EQUAL(y.data[4], linear(1, 1, replaced));
  CHECK_EQUAL(static_cast<int>(sealift_swap_constants(h.model, err, sizeof err)), 0);
  run_into(h.context, {x.tensor}, {y.tensor});
  CHECK(is_linear(y));
  for (float &value : weight.data) value = 1;  // any strides
  weight.data[2] = 5;                          // [2, 0]
  bias.data[0] = 0;
  DLTensor values[] = {weight.tensor, bias.tensor};
  CHECK_EQUAL(static_cast<int>(sealift_load_constants(h.model, 2, both, values, err, sizeof err)), 0);
  CHECK_EQUAL(static_cast<int>(sealift_swap_constants(h.model, err, sizeof err)), 0);
  run_into(h.context, {x.tensor}, {y.tensor});
  CHECK_EQUAL(y.data[0], 0.0f + 3 + 6 + 9);
  CHECK_EQUAL(y.data[5], 7.0f * 5 + 10 + 2 + 5);
  EXPECT_ERROR(sealift_load_constants(h.model, 1, &unknown, &bias.tensor, err, sizeof err), SEALIFT_ERROR_CONSTANT, err, "lin.scale");
  EXPECT_ERROR(sealift_load_constants(h.model, 1, &name, &weight.tensor, err, sizeof err), SEALIFT_ERROR_CONSTANT, err, "shape [3], the new value has [3, 4]");
  Array<double> wide({3}, F64);
  EXPECT_ERROR(sealift_load_constants(h.model, 1, &name, &wide.tensor, err, sizeof err), SEALIFT_ERROR_CONSTANT, err, "float64");
}

// ---- threads -------------------------------------------------------------------------------------------------------------

TEST(one_model_many_threads) {
  Handle h(package("linear"), 4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&h, t] {
      sealift_context *context = nullptr;
      CHECK_EQUAL(static_cast<int>(sealift_context_create(h.model, &context, nullptr, 0)), 0);
      for (int i = 0; i < 200; ++i) {
        const std::int64_t batch = 1 + (t * 31 + i * 17) % 100;
        Floats x({batch, 4}, F32), y({batch, 3}, F32);
        fill_linear(x);
        CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
        CHECK(is_linear(y));
      }
      sealift_context_destroy(context);
    });
  }
  for (std::thread &thread : threads) thread.join();
}

TEST(one_context_one_thread) {
  Handle h(package("linear"), 2);
  std::atomic<int> busy{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Floats x({64, 4}, F32), y({64, 3}, F32);
      fill_linear(x);
      for (int i = 0; i < 500; ++i) {
        std::string text;
        const sealift_status status = run_into(h.context, {x.tensor}, {y.tensor}, &text);
        if (status == SEALIFT_ERROR_BUSY) {
          CHECK_CONTAINS(text, "[E-CONTEXT-001]");
          ++busy;
        } else {
          CHECK_EQUAL(static_cast<int>(status), 0);
          CHECK(is_linear(y));
          ++done;
        }
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  CHECK(done > 0);
  CHECK_EQUAL(busy + done, 2000);
}

TEST(swaps_while_others_run) {
  Handle h(package("linear"), 2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      sealift_context *context = nullptr;
      CHECK_EQUAL(static_cast<int>(sealift_context_create(h.model, &context, nullptr, 0)), 0);
      Floats x({16, 4}, F32), y({16, 3}, F32);
      while (!stop) {
        CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
        // x is 0: y is the bias of one set, whole.
        for (std::size_t i = 3; i < y.data.size(); ++i) CHECK_EQUAL(y.data[i] - y.data[i % 3], 0.0f);
        CHECK(y.data[0] == 10 || y.data[0] == y.data[2]);
      }
      sealift_context_destroy(context);
    });
  }
  Floats bias({3}, F32);
  const char *name = "lin.bias";
  for (int i = 0; i < 200; ++i) {
    for (float &value : bias.data) value = static_cast<float>(i);
    CHECK_EQUAL(static_cast<int>(sealift_load_constants(h.model, 1, &name, &bias.tensor, nullptr, 0)), 0);
    CHECK_EQUAL(static_cast<int>(sealift_swap_constants(h.model, nullptr, 0)), 0);
  }
  stop = true;
  for (std::thread &thread : threads) thread.join();
}

TEST(forked_child_has_its_own_threads) {
  Handle h(package("linear"), 4);
  auto works = [&h] {
    for (int i = 0; i < 20; ++i) {
      Floats x({256, 4}, F32), y({256, 3}, F32);
      fill_linear(x);
      if (run_into(h.context, {x.tensor}, {y.tensor}) != SEALIFT_OK || !is_linear(y)) return false;
    }
    return true;
  };
  CHECK(works());
  // Another thread runs while this one forks.
  std::atomic<bool> stop{false};
  std::thread other([&] {
    sealift_context *context = nullptr;
    CHECK_EQUAL(static_cast<int>(sealift_context_create(h.model, &context, nullptr, 0)), 0);
    Floats x({512, 4}, F32), y({512, 3}, F32);
    while (!stop) run_into(context, {x.tensor}, {y.tensor});
    sealift_context_destroy(context);
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(works() ? 0 : 1);
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(works());
  }
  stop = true;
  other.join();
}

// The closed handle is the caller's; the model itself goes with its last context.
TEST(contexts_outlive_the_handle) {
  sealift_model *model = nullptr;
  sealift_context *context = nullptr;
  CHECK_EQUAL(static_cast<int>(sealift_open(package("linear").c_str(), nullptr, &model, nullptr, 0)), 0);
  CHECK_EQUAL(static_cast<int>(sealift_context_create(model, &context, nullptr, 0)), 0);
  sealift_close(model);
  Floats x({8, 4}, F32), y({8, 3}, F32);
  fill_linear(x);
  CHECK_EQUAL(static_cast<int>(run_into(context, {x.tensor}, {y.tensor})), 0);
  CHECK(is_linear(y));
  sealift_context_destroy(context);
}

// ---- record points -------------------------------------------------------------------------------------------------------

namespace {

struct Seen {
  std::atomic<std::uint64_t> begun{0}, ended{0}, weight{0}, wrong{0};
  std::atomic<std::uint64_t> of_kernel[2] = {{0}, {0}};
};

void *on_begin(void *user, const sealift_record *record) {
  Seen &seen = *static_cast<Seen *>(user);
  ++seen.begun;
  if (record->dur_ns != 0 || record->start_ns == 0) ++seen.wrong;
  return reinterpret_cast<void *>(static_cast<std::uintptr_t>(record->kernel->id) + 1);
}

void on_end(void *user, void *begun, const sealift_record *record) {
  Seen &seen = *static_cast<Seen *>(user);
  ++seen.ended;
  seen.weight += record->weight;
  ++seen.of_kernel[record->kernel->id];
  if (begun != reinterpret_cast<void *>(static_cast<std::uintptr_t>(record->kernel->id) + 1) || std::strcmp(record->model_name, "model") != 0 ||
      record->context == nullptr)
    ++seen.wrong;
}

}  // namespace

TEST(records_every_kernel) {
  Handle h(package("linear"), 2);
  Floats x({8, 4}, F32), y({8, 3}, F32);
  Seen seen, second;
  run_into(h.context, {x.tensor}, {y.tensor});
  sealift_callback callback = 0, other = 0;
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, on_end, &seen, 1.0, &callback)), 0);
  for (int i = 0; i < 10; ++i) run_into(h.context, {x.tensor}, {y.tensor});
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, on_end, &second, 1.0, &other)), 0);
  for (int i = 0; i < 10; ++i) run_into(h.context, {x.tensor}, {y.tensor});
  CHECK_EQUAL(static_cast<int>(sealift_remove_callback(callback)), 0);
  for (int i = 0; i < 10; ++i) run_into(h.context, {x.tensor}, {y.tensor});
  CHECK_EQUAL(static_cast<int>(sealift_remove_callback(other)), 0);
  for (int i = 0; i < 10; ++i) run_into(h.context, {x.tensor}, {y.tensor});
  CHECK_EQUAL(seen.begun.load(), 40u);
  CHECK_EQUAL(seen.ended.load(), 40u);
  CHECK_EQUAL(seen.weight.load(), 40u);
  CHECK_EQUAL(seen.of_kernel[0].load(), 20u);
  CHECK_EQUAL(second.ended.load(), 40u);
  CHECK_EQUAL(seen.wrong.load() + second.wrong.load(), 0u);
  CHECK_EQUAL(static_cast<int>(sealift_remove_callback(callback)), static_cast<int>(SEALIFT_ERROR_ARGUMENT));
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(nullptr, nullptr, nullptr, 1.0, &callback)), static_cast<int>(SEALIFT_ERROR_ARGUMENT));
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, nullptr, nullptr, 0.0, &callback)), static_cast<int>(SEALIFT_ERROR_ARGUMENT));
  CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, nullptr, nullptr, std::nan(""), &callback)), static_cast<int>(SEALIFT_ERROR_ARGUMENT));
}

TEST(samples_without_bias) {
  Handle h(package("linear"));
  Floats x({1, 4}, F32), y({1, 3}, F32);
  const int runs = 20000;
  for (const double probability : {0.3, 0.02}) {
    Seen sparse, all;
    sealift_callback callback = 0, dense = 0;
    CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, on_end, &sparse, probability, &callback)), 0);
    CHECK_EQUAL(static_cast<int>(sealift_add_callback(
                    nullptr, [](void *user, void *, const sealift_record *) { ++static_cast<Seen *>(user)->ended; }, &all, 1.0, &dense)),
                0);
    for (int i = 0; i < runs; ++i) run_into(h.context, {x.tensor}, {y.tensor});
    CHECK_EQUAL(static_cast<int>(sealift_remove_callback(callback)), 0);
    CHECK_EQUAL(static_cast<int>(sealift_remove_callback(dense)), 0);
    CHECK_EQUAL(all.ended.load(), 2u * runs);
    const double kernels = 2.0 * runs, expected = kernels * probability, deviation = std::sqrt(kernels * probability * (1 - probability));
    CHECK(std::abs(static_cast<double>(sparse.ended) - expected) < 6 * deviation);
    CHECK(std::abs(static_cast<double>(sparse.weight) - kernels) < 7 * deviation / probability);
    // Two kernels a run: an even distance must not tie the sample to one of them.
    CHECK(std::abs(static_cast<double>(sparse.of_kernel[0]) - expected / 2) < 6 * deviation);
    CHECK_EQUAL(sparse.wrong.load(), 0u);
  }
}

TEST(callbacks_come_and_go_while_others_run) {
  Handle h(package("linear"), 2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      sealift_context *context = nullptr;
      CHECK_EQUAL(static_cast<int>(sealift_context_create(h.model, &context, nullptr, 0)), 0);
      Floats x({8, 4}, F32), y({8, 3}, F32);
      while (!stop) run_into(context, {x.tensor}, {y.tensor});
      sealift_context_destroy(context);
    });
  }
  for (int i = 0; i < 300; ++i) {
    Seen *seen = new Seen;  // freed at once after the removal: a late call would be seen by the sanitizers
    sealift_callback callback = 0;
    CHECK_EQUAL(static_cast<int>(sealift_add_callback(on_begin, on_end, seen, i % 2 == 0 ? 1.0 : 0.5, &callback)), 0);
    if (i % 3 == 0) usleep(200);
    CHECK_EQUAL(static_cast<int>(sealift_remove_callback(callback)), 0);
    CHECK_EQUAL(seen->begun.load(), seen->ended.load());
    CHECK_EQUAL(seen->wrong.load(), 0u);
    delete seen;
  }
  sealift_callback callbacks[20];
  int added = 0;
  while (added < 20 && sealift_add_callback(nullptr, [](void *, void *, const sealift_record *) {}, nullptr, 0.1, &callbacks[added]) == SEALIFT_OK) ++added;
  CHECK_EQUAL(added, 16);
  while (added > 0) CHECK_EQUAL(static_cast<int>(sealift_remove_callback(callbacks[--added])), 0);
  stop = true;
  for (std::thread &thread : threads) thread.join();
}
