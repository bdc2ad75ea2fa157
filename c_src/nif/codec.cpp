#include "nif/codec.hpp"

#include <cstring>

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

const void* Call::aligned(const void* data, std::size_t bytes, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment == 0) return data;
  copies_.emplace_back(new unsigned char[bytes]);
  std::memcpy(copies_.back().get(), data, bytes);
  return copies_.back().get();
}

std::string describe(Call& call, Term term) {
  ErlNifBinary binary;
  if (enif_inspect_binary(call.env(), term, &binary)) {
    return core::message("a binary of ", binary.size, " bytes");
  }
  char text[160];
  const int length = enif_snprintf(text, sizeof text, "%T", term);
  std::string described(text);
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof text) described += "...";
  return described;
}

void fail_decode(Call& call, Term term, const char* argument, const char* expected) {
  fail(ErrorKind::invalid_argument, argument, argument, " must be ", expected, ", got ",
       describe(call, term));
}

bool Decoder<bool>::decode(Call& call, Term term, const char* argument) {
  if (enif_is_identical(term, encode_atom(call, "true"))) return true;
  if (enif_is_identical(term, encode_atom(call, "false"))) return false;
  fail_decode(call, term, argument, "true or false");
}

std::int64_t Decoder<std::int64_t>::decode(Call& call, Term term, const char* argument) {
  ErlNifSInt64 value = 0;
  if (!enif_get_int64(call.env(), term, &value)) {
    fail_decode(call, term, argument, "an integer of at most 63 bits");
  }
  return value;
}

Unsigned Decoder<Unsigned>::decode(Call& call, Term term, const char* argument) {
  ErlNifUInt64 value = 0;
  if (!enif_get_uint64(call.env(), term, &value)) {
    fail_decode(call, term, argument, "an integer from 0 to below 2^64");
  }
  return {value};
}

double Decoder<double>::decode(Call& call, Term term, const char* argument) {
  double value = 0;
  if (!enif_get_double(call.env(), term, &value)) fail_decode(call, term, argument, "a float");
  return value;
}

std::string Decoder<std::string>::decode(Call& call, Term term, const char* argument) {
  const Binary binary = Decoder<Binary>::decode(call, term, argument);
  return std::string(reinterpret_cast<const char*>(binary.data), binary.size);
}

Atom Decoder<Atom>::decode(Call& call, Term term, const char* argument) {
  char name[256];
  if (enif_get_atom(call.env(), term, name, sizeof name, ERL_NIF_LATIN1) == 0) {
    fail_decode(call, term, argument, "an atom");
  }
  return {name};
}

Binary Decoder<Binary>::decode(Call& call, Term term, const char* argument) {
  ErlNifBinary binary;
  if (!enif_inspect_binary(call.env(), term, &binary)) fail_decode(call, term, argument, "a binary");
  return {binary.data, binary.size};
}

Map Decoder<Map>::decode(Call& call, Term term, const char* argument) {
  ErlNifMapIterator iterator;
  if (!enif_map_iterator_create(call.env(), term, &iterator, ERL_NIF_MAP_ITERATOR_FIRST)) {
    fail_decode(call, term, argument, "a map");
  }
  // Frees the iterator of a large map also where a key that is not an atom throws.
  struct Owner {
    Call& call;
    ErlNifMapIterator& iterator;
    ~Owner() { enif_map_iterator_destroy(call.env(), &iterator); }
  } const owner{call, iterator};
  Map map;
  Term key = 0, value = 0;
  while (enif_map_iterator_get_pair(call.env(), &iterator, &key, &value)) {
    map.emplace_back(Decoder<Atom>::decode(call, key, argument), value);
    enif_map_iterator_next(call.env(), &iterator);
  }
  return map;
}

namespace {

core::Shape decode_shape(Call& call, Term term, const char* argument) {
  int rank = 0;
  const Term* dims = nullptr;
  if (!enif_get_tuple(call.env(), term, &rank, &dims)) {
    fail_decode(call, term, argument, "{type, shape, binary} with a tuple for the shape");
  }
  if (rank > core::Shape::kMaxRank) {
    fail(ErrorKind::invalid_argument, argument, argument, " has ", rank, " dimensions; a tensor has at most ",
         core::Shape::kMaxRank);
  }
  core::Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    ErlNifSInt64 dim = 0;
    if (!enif_get_int64(call.env(), dims[axis], &dim)) {
      const bool big = enif_term_type(call.env(), dims[axis]) == ERL_NIF_TERM_TYPE_INTEGER;
      fail(big ? ErrorKind::limit_exceeded : ErrorKind::invalid_argument, argument,
           "every size in the shape of ", argument, " must be an integer below 2^63, got ",
           describe(call, term));
    }
    if (dim < 0) {
      fail(ErrorKind::invalid_argument, argument, "the shape of ", argument,
           " has a negative size: ", describe(call, term));
    }
    shape.push_back(dim);
  }
  return shape;
}

// Type and shape; `elements` is the tensor's third part.
core::TensorView decode_header(Call& call, Term term, const char* argument, Term* elements) {
  int arity = 0;
  const Term* parts = nullptr;
  if (!enif_get_tuple(call.env(), term, &arity, &parts) || arity != 3) {
    fail_decode(call, term, argument, "a tensor {type, shape, binary}");
  }
  core::TensorView view;
  char type[16] = "";
  const bool atom = enif_get_atom(call.env(), parts[0], type, sizeof type, ERL_NIF_LATIN1) != 0;
  if (!atom || !core::parse_dtype(type, &view.dtype)) {
    fail(ErrorKind::invalid_argument, argument, argument, " has the type ", describe(call, parts[0]),
         "; expected f32, f16, bf16, c64, f64, s32 or s64");
  }
  view.shape = decode_shape(call, parts[1], argument);
  *elements = parts[2];
  return view;
}

}  // namespace

core::TensorView Decoder<core::TensorView>::decode(Call& call, Term term, const char* argument) {
  Term elements = 0;
  core::TensorView view = decode_header(call, term, argument, &elements);
  ErlNifBinary binary;
  if (!enif_inspect_binary(call.env(), elements, &binary)) {
    fail_decode(call, elements, argument, "{type, shape, binary} with a binary for the elements");
  }
  view.bytes = binary.size;
  view.data = binary.data;
  core::check_bytes(view, argument);
  // A c64 is two f32, so the alignment of its real element is enough.
  const std::size_t element = core::dtype_size(view.dtype);
  view.data = call.aligned(binary.data, binary.size, view.dtype == core::Dtype::c64 ? element / 2 : element);
  return view;
}

ScanTensor Decoder<ScanTensor>::decode(Call& call, Term term, const char* argument) {
  Term elements = 0;
  core::TensorView view = decode_header(call, term, argument, &elements);
  int arity = 0;
  const Term* parts = nullptr;
  ErlNifUInt64 address = 0, bytes = 0;
  if (!enif_get_tuple(call.env(), elements, &arity, &parts) || arity != 4 ||
      !enif_is_identical(parts[0], encode_atom(call, "device")) ||
      !enif_get_uint64(call.env(), parts[1], &address) || !enif_get_uint64(call.env(), parts[2], &bytes)) {
    return {Decoder<core::TensorView>::decode(call, term, argument)};
  }
  view.bytes = static_cast<std::size_t>(core::checked_multiply(
      view.shape.elements(argument), static_cast<std::int64_t>(core::dtype_size(view.dtype)), argument));
  view.data = reinterpret_cast<const void*>(address);
  if (bytes < view.bytes) {
    fail(ErrorKind::invalid_argument, argument, argument, " needs ", view.bytes,
         " bytes, and its device memory has ", bytes);
  }
  call.add_device_range({argument, view.data, view.bytes});
  return {view};
}

Term encode_atom(Call& call, const char* name) {
  return enif_make_atom(call.env(), name);
}

NewBinary::NewBinary(std::size_t bytes) {
  if (!enif_alloc_binary(bytes, &binary_)) {
    fail(ErrorKind::out_of_memory, "", "no memory for a binary of ", bytes, " bytes");
  }
}

Term NewBinary::term(Call& call) {
  const Term made = enif_make_binary(call.env(), &binary_);
  binary_.data = nullptr;
  return made;
}

Term encode_bytes(Call& call, const void* data, std::size_t size) {
  NewBinary binary(size);
  if (size > 0) std::memcpy(binary.data(), data, size);
  return binary.term(call);
}

Term encode(Call& call, const Map& map) {
  std::vector<Term> keys, values;
  for (const auto& [key, value] : map) {
    keys.push_back(encode(call, key));
    values.push_back(value);
  }
  return encode_map(call, keys.data(), values.data(), keys.size());
}

Term encode_map(Call& call, const Term* keys, const Term* values, std::size_t count) {
  Term term = 0;
  // The function only reads the keys and values.
  if (!enif_make_map_from_arrays(call.env(), const_cast<Term*>(keys), const_cast<Term*>(values), count,
                                 &term)) {
    fail(ErrorKind::internal, "", "a map was built with a key twice");
  }
  return term;
}

Term encode(Call& call, const core::Shape& shape) {
  std::vector<Term> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(encode_integer(call, shape[axis]));
  return enif_make_tuple_from_array(call.env(), dims.data(), static_cast<unsigned>(dims.size()));
}

Term encode_tensor(Call& call, core::Dtype dtype, const core::Shape& shape, Term binary) {
  return enif_make_tuple3(call.env(), encode_atom(call, core::dtype_name(dtype)), encode(call, shape),
                          binary);
}

Term encode_list(Call& call, const std::vector<Term>& terms) {
  return enif_make_list_from_array(call.env(), terms.data(), static_cast<unsigned>(terms.size()));
}

}  // namespace exphil::nif
