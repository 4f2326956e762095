#include "api/legacy/descriptors/attn_descriptor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {
namespace {

static_assert(CUDNN_MH_ATTN_Q_WEIGHTS == 0 && CUDNN_MH_ATTN_K_WEIGHTS == 1 &&
              CUDNN_MH_ATTN_V_WEIGHTS == 2 && CUDNN_MH_ATTN_O_WEIGHTS == 3 &&
              CUDNN_MH_ATTN_Q_BIASES == 4 && CUDNN_MH_ATTN_O_BIASES == 7);

constexpr Projected kAll[] = {Projected::kQ, Projected::kK, Projected::kV, Projected::kO};
constexpr uint32_t kOneToOne = CUDNN_ATTN_QUERYMAP_ONE_TO_ONE;
constexpr uint32_t kBiases = CUDNN_ATTN_ENABLE_PROJ_BIASES;

// A data type, and the precisions that it is computed in.
constexpr std::pair<int, int> kTypes[] = {{CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
                                          {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE},
                                          {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT},
                                          {CUDNN_DATA_HALF, CUDNN_DATA_HALF},
                                          {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT}};

Status CheckTypes(int type, int compute) {
  const auto is_of = [](int value, std::initializer_list<int> known) {
    return std::ranges::find(known, value) != known.end();
  };
  if (!is_of(type, {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) ||
      !is_of(compute, {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF}))
    return Status::Error(Code::kBadParam,
                         "data type {} computed in {}: attention has float, double, half and "
                         "bfloat16, and computes in the first three",
                         type, compute);
  if (std::ranges::find(kTypes, std::pair(type, compute)) != std::end(kTypes)) return {};
  return Status::Error(Code::kNotSupported, "data type {} is not computed in {}", type, compute);
}

Status CheckPositive(std::initializer_list<std::pair<const char*, int>> numbers) {
  for (const auto& [name, value] : numbers)
    if (value <= 0) return Status::Error(Code::kBadParam, "{} is {}", name, value);
  return {};
}

Status CheckSizes(const AttnDesc& d) {
  RETURN_IF_ERROR(CheckPositive({{"qSize", d.size[0]},
                                 {"kSize", d.size[1]},
                                 {"vSize", d.size[2]},
                                 {"qoMaxSeqLength", d.most_queries},
                                 {"kvMaxSeqLength", d.most_keys},
                                 {"maxBatchSize", d.most_batch},
                                 {"maxBeamSize", d.most_beam}}));
  for (const int projected : d.projected)
    if (projected < 0) return Status::Error(Code::kBadParam, "a projection has size {}", projected);
  if (d.Width(Projected::kQ) == d.Width(Projected::kK)) return {};
  return Status::Error(Code::kBadParam,
                       "queries have {} elements and keys {}, where they are multiplied",
                       d.Width(Projected::kQ), d.Width(Projected::kK));
}

Status Check(const AttnDesc& d) {
  if ((d.mode & ~(kOneToOne | kBiases)) != 0)
    return Status::Error(Code::kBadParam, "attnMode is {:#x}; flags 1 and 2 are known", d.mode);
  RETURN_IF_ERROR(CheckPositive({{"nHeads", d.heads}}));
  if (d.scale < 0) return Status::Error(Code::kBadParam, "smScaler is {}", d.scale);
  RETURN_IF_ERROR(CheckTypes(d.type, d.compute));
  RETURN_IF_ERROR(CheckEnum(d.math, CUDNN_FMA_MATH, "cudnnMathType_t"));
  RETURN_IF_ERROR(CheckSizes(d));
  if ((d.mode & kOneToOne) == 0 || d.most_beam == 1) return {};
  return Status::Error(Code::kNotSupported,
                       "maxBeamSize is {}; with a key for each query of a beam it is 1",
                       d.most_beam);
}

struct Sized {
  AttnWeight weight;
  __int128 elements = 0;
};

// The tensor by itself, at offset 0. Matrices of Q, K and V first.
Sized MatrixOf(const AttnDesc& d, Projected what) {
  if (!d.has(what)) return {};
  const int64_t heads = d.heads, rows = d.Projection(what);
  const int64_t columns = d.Width(what == Projected::kO ? Projected::kV : what);
  if (what == Projected::kO)
    return {.weight = {.dims = {heads, rows, columns}, .strides = {rows * columns, 1, rows}},
            .elements = static_cast<__int128>(heads * rows) * columns};
  const int64_t size = d.Size(what);
  return {.weight = {.dims = {heads, rows, size}, .strides = {rows, 1, heads * rows}},
          .elements = static_cast<__int128>(heads * rows) * size};
}

Sized VectorOf(const AttnDesc& d, Projected what) {
  if (!d.has_biases() || !d.has(what)) return {};
  const int64_t heads = what == Projected::kO ? 1 : d.heads, rows = d.Projection(what);
  return {.weight = {.dims = {heads, rows, 1}, .strides = {rows, 1, 1}}, .elements = heads * rows};
}

// All eight in the order of their memory, until `visit` answers true.
template <class Visit>
__int128 ForEach(const AttnDesc& d, Visit&& visit) {
  __int128 offset = 0;
  for (const bool is_bias : {false, true})
    for (const Projected what : kAll) {
      Sized sized = is_bias ? VectorOf(d, what) : MatrixOf(d, what);
      sized.weight.offset = static_cast<int64_t>(offset);
      if (visit(is_bias, what, sized.weight)) return offset;
      offset += sized.elements;
    }
  return offset;
}

AttnWeight FindWeight(const AttnDesc& d, bool is_bias, Projected what) {
  AttnWeight found;
  ForEach(d, [&](bool of_bias, Projected of, const AttnWeight& weight) {
    if (of_bias != is_bias || of != what) return false;
    found = weight;
    return true;
  });
  return found;
}

}  // namespace

bool AttnDesc::has_biases() const { return (mode & kBiases) != 0; }

AttnWeight WeightOf(const AttnDesc& desc, Projected what) { return FindWeight(desc, false, what); }
AttnWeight BiasOf(const AttnDesc& desc, Projected what) { return FindWeight(desc, true, what); }

Result<int64_t> WeightElements(const AttnDesc& desc) {
  const __int128 all = ForEach(desc, [](bool, Projected, const AttnWeight&) { return false; });
  if (all <= std::numeric_limits<int64_t>::max() / 8) return static_cast<int64_t>(all);
  return Status::Text(Code::kNotSupported, "the weights have more bytes than 64 bits count");
}

Status CreateAttnDescriptor(void** out) { return CreateDescriptor<AttnDesc>(out); }
Status DestroyAttnDescriptor(void* object) { return DestroyDescriptor<AttnDesc>(object); }

Status SetAttnDescriptor(void* object, unsigned mode, int heads, double scale, int type,
                         int compute, int math, void* attn_dropout, void* post_dropout, int q_size,
                         int k_size, int v_size, int q_projected, int k_projected, int v_projected,
                         int o_projected, int most_queries, int most_keys, int most_batch,
                         int most_beam) {
  ASSIGN_OR_RETURN(AttnDesc * desc, Get<AttnDesc>(object));
  const AttnDesc set = {.mode = mode,
                        .heads = heads,
                        .scale = scale,
                        .type = type,
                        .compute = compute,
                        .math = math,
                        .most_queries = most_queries,
                        .most_keys = most_keys,
                        .most_batch = most_batch,
                        .most_beam = most_beam,
                        .size = {q_size, k_size, v_size},
                        .projected = {q_projected, k_projected, v_projected, o_projected},
                        .attn_dropout = attn_dropout,
                        .post_dropout = post_dropout};
  RETURN_IF_ERROR(Check(set));
  *desc = set;
  return {};
}

Status GetAttnDescriptor(void* object, unsigned* mode, int* heads, double* scale, int* type,
                         int* compute, int* math, void** attn_dropout, void** post_dropout,
                         int* q_size, int* k_size, int* v_size, int* q_projected, int* k_projected,
                         int* v_projected, int* o_projected, int* most_queries, int* most_keys,
                         int* most_batch, int* most_beam) {
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  Store(mode, desc->mode);
  Store(heads, desc->heads);
  Store(scale, desc->scale);
  Store(type, desc->type);
  Store(compute, desc->compute);
  Store(math, desc->math);
  Store(attn_dropout, desc->attn_dropout);
  Store(post_dropout, desc->post_dropout);
  int* const sizes[] = {q_size, k_size, v_size};
  for (size_t i = 0; i < std::size(sizes); ++i) Store(sizes[i], desc->size[i]);
  int* const projected[] = {q_projected, k_projected, v_projected, o_projected};
  for (size_t i = 0; i < std::size(projected); ++i) Store(projected[i], desc->projected[i]);
  Store(most_queries, desc->most_queries);
  Store(most_keys, desc->most_keys);
  Store(most_batch, desc->most_batch);
  Store(most_beam, desc->most_beam);
  return {};
}

Status GetMultiHeadAttnWeights(void* handle, void* object, int kind, size_t bytes,
                               const void* weights, void* w_desc, void** address) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const AttnDesc* desc, Get<AttnDesc>(object));
  ASSIGN_OR_RETURN(TensorDesc * tensor, Get<TensorDesc>(w_desc));
  RETURN_IF_ERROR(NotNull(address, "the place for the address"));
  RETURN_IF_ERROR(NotNull(weights, "the buffer of weights"));
  RETURN_IF_ERROR(CheckEnum(kind, CUDNN_MH_ATTN_O_BIASES, "cudnnMultiHeadAttnWeightKind_t"));
  ASSIGN_OR_RETURN(const int64_t elements, WeightElements(*desc));
  const int64_t needed = elements * ElementBytes(desc->type);
  if (bytes < static_cast<size_t>(needed))
    return Status::Error(Code::kBadParam, "the weights have {} bytes; {} were given", needed,
                         bytes);
  const bool is_bias = kind >= CUDNN_MH_ATTN_Q_BIASES;
  const AttnWeight weight = FindWeight(
      *desc, is_bias, static_cast<Projected>(is_bias ? kind - CUDNN_MH_ATTN_Q_BIASES : kind));
  if (!weight.is_there()) {
    *tensor = {};
    *address = nullptr;
    return {};
  }
  std::array<int, 3> dims, strides;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::max(weight.dims[d], weight.strides[d]) > std::numeric_limits<int>::max())
      return Status::Text(Code::kNotSupported, "a matrix is larger than descriptors can say");
    dims[d] = static_cast<int>(weight.dims[d]);
    strides[d] = static_cast<int>(weight.strides[d]);
  }
  RETURN_IF_ERROR(SetTensor(*tensor, desc->type, dims, strides));
  auto* const first = static_cast<char*>(const_cast<void*>(weights));
  *address = first + weight.offset * ElementBytes(desc->type);
  return {};
}

}  // namespace kiln::api::legacy
