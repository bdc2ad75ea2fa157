// Safetensors files and other checkpoints for Elixir. Every tensor is copied, because a binary may outlive
// the file that was read.
#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/safetensors.hpp"

#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

// Names come from the file, so the keys are strings: atoms are never collected.
Term string_map(Call& call, const std::vector<Term>& keys, const std::vector<Term>& values) {
  Term map = 0;
  if (!enif_make_map_from_arrays(call.env(), const_cast<Term*>(keys.data()), const_cast<Term*>(values.data()),
                                 keys.size(), &map)) {
    core::fail(core::ErrorKind::internal, "", "a safetensors file has a name twice");
  }
  return map;
}

template <class Tensors>
Term encode_contents(Call& call, const Tensors& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<Term> names, views, keys, values;
  for (const auto& [name, view] : tensors) {
    names.push_back(encode(call, name));
    views.push_back(encode_tensor(call, view.dtype, view.shape, encode_bytes(call, view.data, view.bytes)));
  }
  for (const auto& [key, value] : metadata) {
    keys.push_back(encode(call, key));
    values.push_back(encode(call, value));
  }
  return enif_make_tuple2(call.env(), string_map(call, names, views), string_map(call, keys, values));
}

}  // namespace

Term read_safetensors(Call& call, std::string path) {
  const core::Safetensors file = core::Safetensors::open(path);
  return encode_contents(call, file.tensors(), file.metadata());
}

Term read_checkpoint(Call& call, std::string path) {
  const core::Checkpoint file = core::Checkpoint::open(path);
  return encode_contents(call, file.tensors(), file.metadata());
}

}  // namespace exphil::nif
