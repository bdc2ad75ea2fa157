#include "core/checkpoint/checkpoint.hpp"

#include <cstring>

#include "core/checkpoint/safetensors.hpp"
#include "support/catch.hpp"
#include "support/erlang_writer.hpp"
#include "support/errors.hpp"
#include "support/safetensors_writer.hpp"
#include "support/shared_data.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;

test::TemporaryFile file_of(const Text& bytes) {
  return test::TemporaryFile(test::Bytes(bytes.begin(), bytes.end()));
}

void refused(const Text& bytes, const std::string& part) {
  const test::TemporaryFile file(test::Bytes(bytes.begin(), bytes.end()));
  const test::CaughtError error = test::error_of([&] { Checkpoint::open(file.path()); });
  INFO(part << " in: " << error.message);
  CHECK(error.kind == ErrorKind::invalid_checkpoint);
  CHECK(error.argument == "path");
  CHECK(error.says(part));
}

const Text kData = Text("\0\0\x80\x3f\0\0\0\x40", 8);  // 1.0, 2.0

Text two_tensors(NxTensor a, NxTensor b) {
  return term(container_map({{"layer", container_map({{"bias", a.bytes()}, {"kernel", b.bytes()}})}}));
}

NxTensor at(std::int64_t offset, std::int64_t size = 4) {
  NxTensor tensor;
  tensor.shape = {1};
  tensor.offset = offset;
  tensor.size = size;
  return tensor;
}

Text spec_metadata() {
  return term(map(
      {{binary("__edifice_spec__"),
        map({{atom("arch"), atom("mamba")},
             {atom("build_opts"), list({tuple({atom("window_size"), integer(60)}),
                                        tuple({atom("dropout"), tag(70) + number(0x3fe0000000000000u, 8)}),
                                        tuple({atom("hidden_sizes"), list({integer(512)})})})}})}}));
}

Text sound(int flag) {
  return container(flag, spec_metadata(), serialized(two_tensors(at(0), at(4)), kData));
}

// With the tensor part changed.
void refused_part(const Text& part, const std::string& words) {
  refused(container(0, spec_metadata(), part), words);
  refused(container(1, spec_metadata(), part), words);
}

Text old_tensor(const Text& data, const Text& shape = tuple({integer(1)}),
                const char* backend = "Nx.BinaryBackend") {
  return map({{atom("__struct__"), atom("Elixir.Nx.Tensor")},
              {atom("data"),
               map({{atom("__struct__"), atom(Text("Elixir.") + backend)}, {atom("state"), binary(data)}})},
              {atom("shape"), shape},
              {atom("type"), tuple({atom("f"), integer(32)})}});
}

Text old_term(const Text& tensor) {
  const Text layers = map({{binary("layer"), map({{binary("bias"), tensor}})}});
  return term(map({{atom("config"), map({{atom("backbone"), atom("mamba")}})}, {atom("params"), layers}}));
}

}  // namespace

TEST_CASE("containers plain and compressed give tensors and build options", "[checkpoint]") {
  for (const int flag : {0, 1}) {
    const test::TemporaryFile file = file_of(sound(flag));
    const Checkpoint opened = Checkpoint::open(file.path());
    CHECK(opened.format() == Checkpoint::Format::container);
    REQUIRE(opened.tensors().size() == 2);
    float kernel = 0;
    std::memcpy(&kernel, opened.tensors().at("layer.kernel").data, sizeof kernel);
    CHECK(kernel == 2.0f);
    REQUIRE(opened.build());
    CHECK(opened.build()->arch == "mamba");
    CHECK(opened.build()->values.at("window_size") == "60");
    CHECK(opened.build()->values.at("dropout") == "0.5");
    CHECK(opened.build()->values.count("hidden_sizes") == 0);
  }
  const test::TemporaryFile bare = file_of(container(0, "", serialized(two_tensors(at(0), at(4)), kData)));
  CHECK(!Checkpoint::open(bare.path()).build());
}

TEST_CASE("a compressed part in a compressed part counts towards the same limit", "[checkpoint]") {
  const Text zeros(std::size_t{12} << 20, '\0');
  const auto compressed = [&](const Text& body) { return compressed_term(body, body.size()); };
  const Text half = compressed(binary(zeros)), announced = compressed_term(binary(""), 0xffffffff);
  const auto error_of = [](const Text& bytes) {
    const test::TemporaryFile file = file_of(bytes);
    return test::error_of([&] { Checkpoint::open(file.path()); });
  };
  // Each alone fits; the second does not fit beside the first.
  CHECK(error_of(container(1, "", serialized(half, ""))).says("not a map of tensors"));
  CHECK(
      error_of(container(1, half, serialized(two_tensors(at(0), at(4)), kData))).says("the metadata is not"));
  const Text metadata = compressed(map({{atom("x"), binary(zeros)}}));
  const test::CaughtError both = error_of(container(1, metadata, serialized(half, "")));
  CHECK(both.kind == ErrorKind::limit_exceeded);
  CHECK(both.says("): the description of the tensor part inflates to more than the limit"));
  const test::CaughtError description = error_of(container(1, "", serialized(announced, "")));
  CHECK(description.kind == ErrorKind::limit_exceeded);
  CHECK(description.says("the description of the tensor part inflates to 4294967295 bytes"));
  const test::CaughtError stated = error_of(container(0, announced, ""));
  CHECK(stated.kind == ErrorKind::limit_exceeded);
  CHECK(stated.says("the metadata inflates to 4294967295 bytes; the limit is 67108864"));
  NxTensor large = at(0, std::int64_t{1} << 30);
  large.shape = {std::int64_t{1} << 28};
  const test::CaughtError tensors = error_of(container(
      1, "",
      serialized(term(container_map({{"a", container_map({{"b", large.bytes()}})}})), Text(1000, '\0'))));
  CHECK(tensors.kind == ErrorKind::limit_exceeded);
}

TEST_CASE("maps of tensors within a layer have names with dots", "[checkpoint]") {
  const Text inner = container_map({{"br", at(0).bytes()}, {"bz", at(4).bytes()}});
  const Text struct_of_maps =
      term(map({{atom("config"), map({})},
                {atom("params"),
                 map({{binary("gru_1"),
                       map({{binary("bias"), map({{binary("br"), old_tensor(kData.substr(0, 4))}})}})}})}}));
  for (const Text& bytes :
       {container(0, "",
                  serialized(term(container_map({{"gru_1", container_map({{"bias", inner}})}})), kData)),
        struct_of_maps}) {
    const test::TemporaryFile file = file_of(bytes);
    float br = 0;
    std::memcpy(&br, Checkpoint::open(file.path()).tensors().at("gru_1.bias.br").data, sizeof br);
    CHECK(br == 1.0f);
  }
  const Text name(250, 'n');
  Text deep = at(0).bytes();
  for (int i = 0; i < 5; ++i) deep = container_map({{name, deep}});
  refused_part(serialized(term(container_map({{"a", deep}})), kData), "the limit is 1024");
}

TEST_CASE("the older one-term form, plain, compressed, and in a ModelState", "[checkpoint]") {
  const Text one = kData.substr(0, 4);
  const Text body = old_term(old_tensor(one)).substr(1);
  const Text state = term(
      map({{atom("config"), map({})},
           {atom("params"),
            map({{atom("__struct__"), atom("Elixir.Axon.ModelState")},
                 {atom("data"), map({{binary("layer"), map({{binary("bias"), old_tensor(one)}})}})}})}}));
  for (const Text& bytes : {term(body), compressed_term(body, body.size()), state}) {
    const test::TemporaryFile file = file_of(bytes);
    const Checkpoint opened = Checkpoint::open(file.path());
    CHECK(opened.format() == Checkpoint::Format::term);
    CHECK(opened.build()->arch == "exphil_policy");
    float bias = 0;
    std::memcpy(&bias, opened.tensors().at("layer.bias").data, sizeof bias);
    CHECK(bias == 1.0f);
  }
  refused(term(map({{atom("params"), map({})}})), "not a map with params and config");
  refused(term(integer(3)), "not a map with params and config");
  refused(old_term(integer(1)), "is not an Nx.Tensor");
  refused(old_term(old_tensor(one, tuple({integer(2)}))), "needs 8 bytes, but has 4");
  refused(old_term(old_tensor(one, integer(1))), "is not a tuple");
  refused(old_term(old_tensor(one, tuple({integer(1)}), "EXLA.Backend")), "not on Nx.BinaryBackend");
  refused(term(body) + "x", "1 bytes follow the term");
}

TEST_CASE("broken containers say what is wrong", "[checkpoint]") {
  refused("", "is empty");
  refused(Text("\0\0\0", 3), "fewer than its head of 5");
  refused(Text("\0\0\0\1\0", 5), "announces 256 bytes of metadata and has 0");
  refused(tag(2) + Text(20, 'x'), "0, 1 or 131; it starts with 2");
  refused(Text("PK\3\4") + Text(20, 'x'), "0, 1 or 131; it starts with 80");
  refused("plain text", "is no checkpoint: neither a safetensors file");
  refused(tag(131), "the policy is truncated: nothing follows byte 131");
  refused(container(0, term(integer(1)), ""), "the metadata is not a map");
  refused(container(0, tag(7) + tag(7), ""), "must start with byte 131");
  refused(container(0, term(tag(112) + Text(9, 'x')), ""), "(a function)");
  refused_part("", "the tensor part");
  const Text two = two_tensors(at(0), at(4));
  refused_part("xx" + serialized(two, kData).substr(2), "does not start with \"nx\"");
  refused_part(serialized(two, kData, 2), "version 2");
  refused_part(serialized(two, kData, 1, 1), "big-endian");
  refused_part(serialized(two, kData).substr(0, 40), "the tensor part");
  Text huge = serialized(two, kData);
  huge[4] = 1;
  refused_part(huge, "announces a description of");
  refused_part(serialized(two, kData.substr(0, 7)), "the tensor part");
  refused(container(0, "", serialized(two, kData + "x")), "1 bytes follow the end");
  refused(container(1, "", serialized(two, kData + "x")), "more bytes than it announces");
  refused(container(1, "", serialized(two, kData)) + "x", "1 bytes follow the zlib stream");
  refused(container(0, "", deflated(serialized(two, kData))), "does not start with \"nx\"");
}

TEST_CASE("tensors cover the data once, and agree with their sizes", "[checkpoint]") {
  const auto part = [](NxTensor a, NxTensor b) {
    return serialized(two_tensors(std::move(a), std::move(b)), kData);
  };
  refused_part(part(at(0), at(0)), "overlaps");
  refused_part(part(at(0), at(2)), "overlaps");
  refused_part(part(at(0), at(8)), "unused bytes");
  refused_part(part(at(4), at(8)), "unused bytes");
  refused_part(part(at(0), at(-4)), "bad offset or size");
  refused_part(part(at(0), at(4, 8)), "needs 4 bytes, but has 8");
  NxTensor other = at(4);
  other.type = tuple({atom("q"), integer(4)});
  refused_part(part(at(0), other), "has a type that is not");
  other = at(4), other.axes = list({tuple({atom("x"), integer(1)})});
  refused_part(part(at(0), other), "vectorized");
  other = at(4), other.shape = {0};
  refused_part(part(at(0), other), "bad number in its shape");
  other = at(4), other.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  refused_part(part(at(0), other), "9 dimensions");
  refused_part(serialized(term(tuple({atom("x")})), ""), "not a map of tensors");
  refused_part(serialized(term(container_map({{"a", container_map({{"b\n", at(0).bytes()}})}})), kData),
               "not printable");
  refused_part(serialized(term(container_map({{"a", integer(1)}})), kData), "layer \"a\"");
  const Text twice =
      term(container_map({{"a", container_map({{"b", at(0).bytes()}, {"b", at(4).bytes()}})}}));
  refused_part(serialized(twice, kData), "\"a.b\" appears twice");
}

TEST_CASE("a safetensors file whose length starts with 0, 1 or 131 is still recognised", "[checkpoint]") {
  for (const std::size_t low : {0u, 1u, 131u}) {
    test::SafetensorsWriter writer;
    writer.add_f32("a", {1}, {1});
    std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    while (header.size() % 256 != low) header += ' ';
    const test::TemporaryFile file(test::raw_safetensors(header, test::Bytes(4)));
    const Checkpoint opened = Checkpoint::open(file.path());
    CHECK(opened.format() == Checkpoint::Format::safetensors);
    CHECK(opened.tensors().count("a") == 1);
  }
}

// A file with any byte changed is read, or refused by an error of this library.
TEST_CASE("a container with any byte changed does no harm", "[checkpoint]") {
  const Text one = kData.substr(0, 4);
  for (const Text& full : {sound(0), sound(1), old_term(old_tensor(one))}) {
    const test::TemporaryFile file({});
    int answered = 0, tried = 0;
    for (std::size_t i = 0; i < full.size(); ++i) {
      for (const int change : {0x01, 0x08, 0x80, 0xff}) {
        test::Bytes bytes(full.begin(), full.end());
        bytes[i] ^= static_cast<std::uint8_t>(change);
        file.rewrite(bytes);
        ++tried;
        const test::CaughtError error = test::error_of([&] { Checkpoint::open(file.path()); });
        answered += !error.thrown || error.kind == ErrorKind::invalid_checkpoint;
      }
    }
    CHECK(answered == tried);
  }
}

TEST_CASE("the files of Edifice and ExPhil open, in every form", "[checkpoint][exphil]") {
  if (!test::have_shared("exphil/exphil_policy/policy.bin")) return;
  const auto open = [](const char* name) {
    return Checkpoint::open(test::shared_path(std::string("exphil/") + name));
  };
  const Checkpoint zipped = open("edifice_mamba2/mamba_ssd_compressed.nx");
  const Safetensors plain =
      Safetensors::open(test::shared_path("exphil/edifice_mamba2/mamba_ssd.safetensors"));
  REQUIRE(zipped.tensors().size() == plain.tensors().size());
  for (const auto& [name, view] : plain.tensors()) {
    INFO(name);
    const TensorView& other = zipped.tensors().at(name);
    CHECK(other.shape == view.shape);
    CHECK(std::memcmp(other.data, view.data, view.bytes) == 0);
  }
  CHECK(zipped.build()->arch == "mamba_ssd");
  const auto same = [](const Checkpoint& one, const Checkpoint& two) {
    CHECK(one.build()->values == two.build()->values);
    for (const auto& [name, view] : one.tensors()) {
      CHECK(std::memcmp(view.data, two.tensors().at(name).data, view.bytes) == 0);
    }
  };
  same(open("edifice_mamba2/short_window.nx"), open("edifice_mamba2/short_window_utf8_atoms.nx"));
  same(open("exphil_policy/policy_old_term.bin"), open("exphil_policy/policy_old_term_utf8_atoms.bin"));
  const Checkpoint policy = open("exphil_policy/policy.bin");
  CHECK(policy.build()->arch == "exphil_policy");
  CHECK(policy.build()->values.at("window_size") == "60");
  CHECK(policy.tensors().at("dropout_1.key").dtype == Dtype::u32);
  CHECK(open("edifice_mamba/mamba.nx").tensors().size() == 30);
}

}  // namespace exphil::core
