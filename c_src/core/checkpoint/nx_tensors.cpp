#include "core/checkpoint/nx_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checkpoint/errors.hpp"

namespace exphil::core {

namespace {

using Kind = ErlangTerm::Kind;

constexpr std::uint64_t kHeadBytes = 12;
constexpr std::uint8_t kNxVersion = 1;
constexpr std::size_t kMaxNameBytes = 256, kMaxPathBytes = 1024;  // of one name, of "layer.name.part"

// Names appear in messages and as keys, so only printable ASCII is accepted.
std::string name_of(const ErlangTerm& term, const std::string& what) {
  const bool text = term.kind == Kind::binary || term.kind == Kind::atom;
  if (!text || term.text.empty() || term.text.size() > kMaxNameBytes) {
    bad(what, " has a layer or tensor whose name is not a text of 1 to ", kMaxNameBytes, " bytes");
  }
  for (const char c : term.text) {
    if (c <= ' ' || c > '~') bad(what, " has a layer or tensor whose name is not printable ASCII");
  }
  return std::string(term.text);
}

// "layer.name", "layer.name.part".
std::string joined(const std::string& path, const ErlangTerm& name, const std::string& what) {
  std::string result = path + "." + name_of(name, what);
  if (result.size() > kMaxPathBytes) {
    bad(what, " has a tensor whose name is of ", result.size(), " bytes, ", quote(result, 40),
        "; the limit is ", kMaxPathBytes);
  }
  return result;
}

Dtype dtype_of(const ErlangTerm& type, const std::string& name) {
  struct Known {
    const char* kind;
    std::int64_t bits;
    Dtype dtype;
  };
  constexpr Known kKnown[] = {{"f", 32, Dtype::f32}, {"f", 16, Dtype::f16}, {"bf", 16, Dtype::bf16},
                              {"f", 64, Dtype::f64}, {"c", 64, Dtype::c64}, {"u", 8, Dtype::u8},
                              {"u", 16, Dtype::u16}, {"u", 32, Dtype::u32}, {"u", 64, Dtype::u64},
                              {"s", 8, Dtype::s8},   {"s", 16, Dtype::s16}, {"s", 32, Dtype::s32},
                              {"s", 64, Dtype::s64}};
  if (type.kind == Kind::tuple && type.items.size() == 2 && type.items[0].kind == Kind::atom &&
      type.items[1].kind == Kind::integer) {
    for (const Known& known : kKnown) {
      if (type.items[0].text == known.kind && type.items[1].integer == known.bits) return known.dtype;
    }
  }
  bad("tensor ", quote(name), " has a type that is not {:f, 32} or another that this library reads");
}

Shape shape_of(const ErlangTerm& term, const std::string& name) {
  if (term.kind != Kind::tuple) bad("the shape of tensor ", quote(name), " is not a tuple");
  if (term.items.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    bad("tensor ", quote(name), " has ", term.items.size(), " dimensions; the limit is ", Shape::kMaxRank);
  }
  Shape shape;
  for (const ErlangTerm& dim : term.items) {
    if (dim.kind != Kind::integer || dim.integer < 1)
      bad("tensor ", quote(name), " has a bad number in its shape");
    shape.push_back(dim.integer);
  }
  return shape;
}

void require_not_vectorized(const ErlangTerm& axes, const std::string& name) {
  if (axes.kind != Kind::list || !axes.items.empty()) {
    bad("tensor ", quote(name), " is vectorized, which this library does not read");
  }
}

void check_size(const TensorView& view, const std::string& name) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(view.dtype));
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, view.shape[axis], &bytes)) {
      bad("the shape of tensor ", quote(name), ", ", view.shape.to_string(), ", is beyond 2^63 bytes");
    }
  }
  if (static_cast<std::uint64_t>(bytes) != view.bytes) {
    bad("tensor ", quote(name), " of type ", dtype_name(view.dtype), " and shape ", view.shape.to_string(),
        " needs ", bytes, " bytes, but has ", view.bytes);
  }
}

bool is_container(const ErlangTerm& term) {
  return term.kind == Kind::tuple && term.items.size() == 3 &&
         term.items[0].is_atom("Elixir.Nx.Container.Map");
}

// {Nx.Container.Map, [{key, value}], :ok} -> the list.
const std::vector<ErlangTerm>& pairs_of(const ErlangTerm& container, const std::string& where) {
  const std::vector<ErlangTerm>& parts = container.items;
  if (!is_container(container) || parts[1].kind != Kind::list || !parts[2].is_atom("ok")) {
    bad(where, " is not a map of tensors as Nx.serialize writes it");
  }
  for (const ErlangTerm& pair : parts[1].items) {
    if (pair.kind != Kind::tuple || pair.items.size() != 2) bad(where, " is not a list of {name, value}");
  }
  return parts[1].items;
}

struct Placed {
  std::string name;
  TensorView view;  // data is not set yet
  std::uint64_t offset = 0;
};

// {:t, shape, type, names, vectorized_axes, offset, size}
Placed placed(std::string name, const ErlangTerm& term) {
  const std::vector<ErlangTerm>& parts = term.items;
  if (term.kind != Kind::tuple || parts.size() != 7 || !parts[0].is_atom("t")) {
    bad(quote(name), " is not a tensor as Nx.serialize writes it");
  }
  Placed result;
  result.view.dtype = dtype_of(parts[2], name);
  result.view.shape = shape_of(parts[1], name);
  require_not_vectorized(parts[4], name);
  for (const int i : {5, 6}) {
    const ErlangTerm& number = parts[static_cast<std::size_t>(i)];
    if (number.kind != Kind::integer || number.integer < 0) {
      bad("tensor ", quote(name), " has a bad offset or size");
    }
  }
  result.offset = static_cast<std::uint64_t>(parts[5].integer);
  result.view.bytes = static_cast<std::size_t>(parts[6].integer);
  result.name = std::move(name);
  check_size(result.view, result.name);
  return result;
}

// The tensors of a layer, or of a map in it.
void collect(const std::string& path, const ErlangTerm& container, const std::string& where,
             const std::string& what, std::vector<Placed>* all) {
  for (const ErlangTerm& pair : pairs_of(container, where)) {
    const std::string name = joined(path, pair.items[0], what);
    if (is_container(pair.items[1])) {
      collect(name, pair.items[1], quote(name), what, all);
    } else {
      all->push_back(placed(name, pair.items[1]));
    }
  }
}

std::vector<Placed> placed_tensors(const ErlangTerm& root, const std::string& what) {
  std::vector<Placed> all;
  for (const ErlangTerm& layer : pairs_of(root, what)) {
    const std::string name = name_of(layer.items[0], what);
    collect(name, layer.items[1], "layer " + quote(name), what, &all);
  }
  std::sort(all.begin(), all.end(), [](const Placed& left, const Placed& right) {
    return std::make_pair(left.offset, left.view.bytes) < std::make_pair(right.offset, right.view.bytes);
  });
  return all;
}

// The bytes of all tensors, which are contiguous.
std::uint64_t total_bytes(const std::vector<Placed>& tensors) {
  std::uint64_t end = 0;
  for (const Placed& tensor : tensors) {
    if (tensor.offset < end) bad("tensor ", quote(tensor.name), " overlaps the tensor before it");
    if (tensor.offset > end) bad("there are unused bytes before tensor ", quote(tensor.name));
    if (__builtin_add_overflow(end, tensor.view.bytes, &end)) bad("the tensors are beyond 2^64 bytes");
  }
  return end;
}

void insert(TensorMap* tensors, const std::string& name, const TensorView& view) {
  if (!tensors->emplace(name, view).second) bad("tensor ", quote(name), " appears twice");
}

const ErlangTerm& field(const ErlangTerm& tensor, const char* key, const std::string& name) {
  const ErlangTerm* value = tensor.atom_key(key);
  if (value == nullptr) bad("tensor ", quote(name), " has no ", key);
  return *value;
}

bool is_struct(const ErlangTerm& term, std::string_view module) {
  const ErlangTerm* name = term.atom_key("__struct__");
  return name != nullptr && name->is_atom(module);
}

TensorView struct_tensor(const ErlangTerm& tensor, const std::string& name) {
  if (!is_struct(tensor, "Elixir.Nx.Tensor")) bad(quote(name), " is not an Nx.Tensor");
  TensorView view;
  view.dtype = dtype_of(field(tensor, "type", name), name);
  view.shape = shape_of(field(tensor, "shape", name), name);
  const ErlangTerm* axes = tensor.atom_key("vectorized_axes");  // absent before Nx 0.6
  if (axes != nullptr) require_not_vectorized(*axes, name);
  const ErlangTerm& data = field(tensor, "data", name);
  const ErlangTerm* state = data.atom_key("state");
  if (!is_struct(data, "Elixir.Nx.BinaryBackend") || state == nullptr || state->kind != Kind::binary) {
    bad("tensor ", quote(name), " is not on Nx.BinaryBackend: transfer it there before saving");
  }
  view.data = state->text.data();
  view.bytes = state->text.size();
  check_size(view, name);
  return view;
}

// The tensors of a layer, or of a map in it, which is no struct.
void collect_structs(const std::string& path, const ErlangTerm& map, const std::string& what,
                     TensorMap* tensors) {
  for (std::size_t i = 0; i < map.items.size(); i += 2) {
    const std::string name = joined(path, map.items[i], what);
    const ErlangTerm& value = map.items[i + 1];
    if (value.kind == Kind::map && value.atom_key("__struct__") == nullptr) {
      collect_structs(name, value, what, tensors);
    } else {
      insert(tensors, name, struct_tensor(value, name));
    }
  }
}

}  // namespace

TensorMap read_nx_serialized(ByteSource& source, const std::string& what, InflationLimit& limit) {
  const std::uint8_t* head = source.take(kHeadBytes);
  if (head[0] != 'n' || head[1] != 'x') bad(what, " does not start with \"nx\", as Nx.serialize writes it");
  if (head[2] != kNxVersion) {
    bad(what, " has version ", int{head[2]}, " of Nx.serialize; this library reads version ",
        int{kNxVersion});
  }
  if (head[3] != 0)
    bad(what, " has big-endian tensors (byte order ", int{head[3]}, "); expected 0, little-endian");
  std::uint64_t term_bytes = 0;
  for (int i = 4; i < 12; ++i) term_bytes = term_bytes << 8 | head[i];
  if (term_bytes > kMaxTermBytes) {
    bad(what, " announces a description of ", term_bytes, " bytes; the limit is ", kMaxTermBytes);
  }
  const std::uint8_t* term = source.take(term_bytes);
  const ExternalTerm description = read_external_term(term, static_cast<std::size_t>(term_bytes),
                                                      "the description of " + what, limit, kMaxTermBytes);
  const std::vector<Placed> tensors = placed_tensors(description.root, what);
  const std::uint8_t* data = source.take(total_bytes(tensors));
  source.finish();
  TensorMap result;
  for (Placed tensor : tensors) {
    tensor.view.data = data + tensor.offset;
    insert(&result, tensor.name, tensor.view);
  }
  return result;
}

TensorMap read_nx_structs(const ErlangTerm& params, const std::string& what) {
  const ErlangTerm* layers = &params;
  if (is_struct(params, "Elixir.Axon.ModelState")) layers = params.atom_key("data");
  if (layers == nullptr || layers->kind != Kind::map) bad(what, " are not a map of layers");
  TensorMap result;
  for (std::size_t i = 0; i < layers->items.size(); i += 2) {
    const std::string layer = name_of(layers->items[i], what);
    const ErlangTerm& tensors = layers->items[i + 1];
    if (tensors.kind != Kind::map) bad("layer ", quote(layer), " is not a map of tensors");
    collect_structs(layer, tensors, what, &result);
  }
  return result;
}

}  // namespace exphil::core
