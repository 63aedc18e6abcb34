#include "model_table.h"

#include "dtype.h"
#include "pack_layout.h"

namespace sealift::runtime {

namespace {

bool is_slot(const sealift_model_api &api, sealift_size_slot slot) { return slot >= 0 && slot < api.num_sizes; }

bool is_tensor(const sealift_model_api &api, const sealift_tensor_spec &tensor) {
  if (tensor.name == nullptr || tensor.dtype < 0 || tensor.dtype >= NUM_DTYPES || tensor.rank < 0 || tensor.rank > SEALIFT_MAX_RANK) return false;
  uint32_t seen = 0;
  for (int32_t d = 0; d < tensor.rank; ++d) {
    if (!is_slot(api, tensor.shape[d]) || tensor.shape_text == nullptr || tensor.shape_text[d] == nullptr) return false;
    if (tensor.order == nullptr) continue;
    if (tensor.order[d] < 0 || tensor.order[d] >= tensor.rank || ((seen >> tensor.order[d]) & 1u) != 0) return false;
    seen |= 1u << tensor.order[d];
  }
  return true;
}

bool is_array(int32_t dtype, int32_t rank, const int64_t *shape) {
  if (dtype < 0 || dtype >= NUM_DTYPES || rank < 0 || rank > SEALIFT_MAX_RANK) return false;
  int64_t bytes = DTYPES[dtype].bytes;
  for (int32_t d = 0; d < rank; ++d) {
    if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes)) return false;
  }
  return true;
}

}  // namespace

uint32_t built_isas(const sealift_model_api &api) {
  uint32_t mask = 0;
  for (int32_t isa = 0; isa < SEALIFT_ISA_COUNT; ++isa) {
    if (((api.isa_mask >> isa) & 1u) != 0 && api.run[isa] != nullptr) mask |= 1u << isa;
  }
  return mask;
}

sealift_status check_model_table(const sealift_model_api *table, ErrorText err) {
  auto bad = [&](const char *what, int32_t index) {
    return fail(err, SEALIFT_ERROR_LIBRARY, "the model library's table is not valid: %s %d; help: compile the model again", what, static_cast<int>(index));
  };
  if (table == nullptr)
    return fail(err, SEALIFT_ERROR_LIBRARY, "the model library does not serve ABI %u; help: use the sealift that compiled it, or compile again",
                SEALIFT_MODEL_ABI_VERSION);
  const sealift_model_api &api = *table;
  if (api.abi_version != SEALIFT_MODEL_ABI_VERSION || api.struct_bytes < offsetof(sealift_model_api, changes_input)) {
    return fail(err, SEALIFT_ERROR_LIBRARY,
                "the model library has ABI %u (%u bytes), this sealift needs %u; help: use the sealift that compiled it, or compile again", api.abi_version,
                api.struct_bytes, SEALIFT_MODEL_ABI_VERSION);
  }
  if (api.name == nullptr || api.in_spec == nullptr || api.out_spec == nullptr) return bad("name or call spec", 0);
  if (api.num_inputs < 0 || api.num_outputs < 0 || api.num_symbols < 0 || api.num_sizes < api.num_symbols || api.num_constants < 0 ||
      api.num_weights < 0 || api.num_states < 0 || api.num_kernels < 0) {
    return bad("a count", 0);
  }
  if (!is_slot(api, api.arena_bytes_slot) || !is_slot(api, api.scratch_bytes_slot)) return bad("arena or scratch slot", 0);
  for (int32_t i = 0; i < api.num_inputs; ++i) {
    if (!is_tensor(api, api.inputs[i])) return bad("input", i);
  }
  for (int32_t i = 0; i < api.num_symbols; ++i) {
    const sealift_symbol_spec &symbol = api.symbols[i];
    if (symbol.name == nullptr || symbol.input < 0 || symbol.input >= api.num_inputs || symbol.dim < 0 || symbol.dim >= api.inputs[symbol.input].rank)
      return bad("symbol", i);
  }
  for (int32_t i = 0; i < api.num_outputs; ++i) {
    const sealift_tensor_spec &output = api.outputs[i];
    if (output.optional == 0 && !is_tensor(api, output)) return bad("output", i);
    if (output.alias_input >= api.num_inputs) return bad("output", i);
    if (output.optional == 0 && output.alias_input >= 0 &&
        (api.inputs[output.alias_input].dtype != output.dtype || api.inputs[output.alias_input].rank != output.rank)) {
      return bad("output", i);
    }
  }
  for (int32_t i = 0; i < api.num_constants; ++i) {
    const sealift_constant_spec &constant = api.constants[i];
    if (constant.name == nullptr || constant.fqn == nullptr || !is_array(constant.dtype, constant.rank, constant.shape)) return bad("constant", i);
  }
  for (int32_t i = 0; i < api.num_weights; ++i) {
    const sealift_weight_spec &weight = api.weights[i];
    if (weight.constant < 0 || weight.constant >= api.num_constants || weight.offset_bytes % 64 != 0 || weight.offset_bytes > api.weights_bytes ||
        weight.size_bytes > api.weights_bytes - weight.offset_bytes) {
      return bad("weight", i);
    }
    const int64_t stored = stored_bytes(api.constants[weight.constant], weight);
    if (stored < 0 || static_cast<uint64_t>(stored) > weight.size_bytes) return bad("weight", i);
  }
  for (int32_t i = 0; i < api.num_states; ++i) {
    const sealift_state_spec &state = api.states[i];
    if (!is_array(state.dtype, state.rank, state.shape) || state.initial_weight < 0 || state.initial_weight >= api.num_weights) return bad("state", i);
    const sealift_weight_spec &weight = api.weights[state.initial_weight];
    const sealift_constant_spec &constant = api.constants[weight.constant];
    int64_t bytes = DTYPES[state.dtype].bytes;
    for (int32_t d = 0; d < state.rank; ++d) bytes *= state.shape[d];
    if (weight.layout != SEALIFT_ROW_MAJOR || bytes != row_major_bytes(constant)) return bad("state", i);
  }
  for (int32_t i = 0; i < api.num_kernels; ++i) {
    if (api.kernels[i].id != i || api.kernels[i].name == nullptr || api.kernels[i].ops == nullptr || api.kernels[i].origin == nullptr) return bad("kernel", i);
  }
  return SEALIFT_OK;
}

}  // namespace sealift::runtime
