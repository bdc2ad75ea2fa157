// Erlang external terms and the containers of Edifice and ExPhil, as bytes for tests: valid ones from small
// parts, broken ones by changing a part. The results of all functions can be concatenated.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace exphil::test::erlang {

using Text = std::string;  // bytes

inline Text number(std::uint64_t value, int bytes) {
  Text out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline Text tag(int value) {
  return Text(1, static_cast<char>(value));
}
inline Text integer(std::int64_t value) {
  if (value >= 0 && value < 256) return tag(97) + number(static_cast<std::uint64_t>(value), 1);
  return tag(98) + number(static_cast<std::uint64_t>(value), 4);
}
inline Text atom(const Text& name, bool utf8 = false) {
  return utf8 ? tag(119) + number(name.size(), 1) + name : tag(100) + number(name.size(), 2) + name;
}
inline Text binary(const Text& bytes) {
  return tag(109) + number(bytes.size(), 4) + bytes;
}
inline Text join(const std::vector<Text>& parts) {
  Text out;
  for (const Text& part : parts) out += part;
  return out;
}
inline Text tuple(const std::vector<Text>& items) {
  return tag(104) + number(items.size(), 1) + join(items);
}
inline Text list(const std::vector<Text>& items) {
  return items.empty() ? tag(106) : tag(108) + number(items.size(), 4) + join(items) + tag(106);
}
inline Text map(const std::vector<std::pair<Text, Text>>& pairs) {
  Text out = tag(116) + number(pairs.size(), 4);
  for (const auto& [key, value] : pairs) out += key + value;
  return out;
}
inline Text term(const Text& body) {
  return tag(131) + body;
}
inline Text deflated(const Text& plain) {
  uLongf size = compressBound(plain.size());
  Text out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
            plain.size(), 9);
  out.resize(size);
  return out;
}
inline Text compressed_term(const Text& body, std::uint64_t announced) {
  return tag(131) + tag(80) + number(announced, 4) + deflated(body);
}

// {:t, shape, type, names, [], offset, size}
struct NxTensor {
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, size = 0;
  Text type = tuple({atom("f"), integer(32)});
  Text axes = list({});
  Text bytes() const {
    std::vector<Text> dims, names;
    for (const std::int64_t dim : shape) dims.push_back(integer(dim)), names.push_back(atom("nil"));
    return tuple({atom("t"), tuple(dims), type, list(names), axes, integer(offset), integer(size)});
  }
};
inline Text container_map(const std::vector<std::pair<Text, Text>>& pairs) {
  std::vector<Text> items;
  for (const auto& [name, value] : pairs) items.push_back(tuple({binary(name), value}));
  return tuple({atom("Elixir.Nx.Container.Map"), list(items), atom("ok")});
}
inline Text serialized(const Text& term_bytes, const Text& data, int version = 1, int order = 0) {
  return "nx" + tag(version) + tag(order) + number(term_bytes.size(), 8) + term_bytes + data;
}
inline Text container(int flag, const Text& metadata, const Text& tensors) {
  return tag(flag) + number(metadata.size(), 4) + metadata + (flag == 1 ? deflated(tensors) : tensors);
}

}  // namespace exphil::test::erlang
