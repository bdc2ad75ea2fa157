#include "core/checkpoint/safetensors.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::core {

namespace {

using test::Bytes;
using test::CaughtError;
using test::raw_safetensors;
using test::SafetensorsWriter;
using test::TemporaryFile;

CaughtError error_of_bytes(const Bytes& bytes) {
  const TemporaryFile file(bytes);
  return test::error_of([&] { Safetensors::open(file.path()); });
}

void refused(const std::string& header, std::size_t data_bytes, const std::string& part) {
  const CaughtError error = error_of_bytes(raw_safetensors(header, Bytes(data_bytes)));
  INFO(header << " says: " << error.message);
  CHECK(error.kind == ErrorKind::invalid_checkpoint);
  CHECK(error.argument == "path");
  CHECK(error.says(part));
}

Bytes sound_file() {
  SafetensorsWriter writer;
  writer.add_f32("weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.add_bf16("half", {3}, {1, -2, 0.5});
  writer.add_f32("empty", {0, 4}, {});
  writer.add_f32("scalar", {}, {7});
  writer.metadata["format"] = "pt";
  return writer.bytes();
}

}  // namespace

TEST_CASE("a valid file gives its tensors and metadata", "[safetensors]") {
  const TemporaryFile file(sound_file());
  const Safetensors opened = Safetensors::open(file.path());
  CHECK(opened.path() == file.path());
  CHECK(opened.tensors().size() == 4);
  CHECK(opened.metadata().at("format") == "pt");
  CHECK(opened.find("absent") == nullptr);
  const TensorView* weight = opened.find("weight");
  REQUIRE(weight != nullptr);
  CHECK(weight->shape == Shape{2, 3});
  float values[6];
  std::memcpy(values, weight->data, sizeof values);
  CHECK(values[5] == 6.0f);
  CHECK(opened.find("half")->dtype == Dtype::bf16);
  CHECK(opened.find("empty")->bytes == 0);
  CHECK(opened.find("scalar")->shape.rank() == 0);
  // The data stays readable when the file is overwritten in place.
  file.rewrite({});
  std::memcpy(values, weight->data, sizeof values);
  CHECK(values[0] == 1.0f);
}

TEST_CASE("a file cut at any length is refused", "[safetensors]") {
  const Bytes full = sound_file();
  const TemporaryFile file({});
  int wrong = 0;
  for (std::size_t length = 0; length < full.size(); ++length) {
    file.rewrite(Bytes(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(length)));
    const CaughtError error = test::error_of([&] { Safetensors::open(file.path()); });
    wrong += error.kind != ErrorKind::invalid_checkpoint;
  }
  CHECK(wrong == 0);
  Bytes longer = full;
  longer.push_back(0);
  file.rewrite(longer);
  CHECK(test::error_of([&] { Safetensors::open(file.path()); }).says("the tensors cover"));
}

// With any byte of the header changed, the file is valid or is refused by an error of this library.
TEST_CASE("a header with any byte changed does no harm", "[safetensors]") {
  const Bytes full = sound_file();
  const std::size_t header_end = 8 + full[0] + 256u * full[1];
  const TemporaryFile file({});
  int opened = 0, refused = 0;
  for (std::size_t at = 0; at < header_end; ++at) {
    for (const int change : {0x01, 0x04, 0x10, 0x20, 0x80, 0xff}) {
      Bytes changed = full;
      changed[at] ^= static_cast<std::uint8_t>(change);
      file.rewrite(changed);
      try {
        const Safetensors view = Safetensors::open(file.path());
        std::size_t bytes = 0;
        for (const auto& item : view.tensors()) bytes += item.second.bytes;
        CHECK(bytes == full.size() - header_end);
        ++opened;
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::invalid_checkpoint) ++refused;
      }
    }
  }
  CHECK(opened + refused == static_cast<int>(header_end) * 6);
  CHECK(refused > opened);
}

TEST_CASE("broken headers say what is wrong", "[safetensors]") {
  CHECK(error_of_bytes({}).says("0 bytes"));
  CHECK(error_of_bytes(Bytes(7)).says("7 bytes"));
  Bytes huge = raw_safetensors("{}", {});
  huge[5] = 1;
  CHECK(error_of_bytes(huge).says("announces a header"));
  const std::string text = "plain text, which is no checkpoint";
  const CaughtError other = error_of_bytes(Bytes(text.begin(), text.end()));
  CHECK(other.says("is no safetensors file: no '{' follows the 8 bytes of its header's length"));
  CHECK_FALSE(other.says("announces"));
  refused("", 0, "no '{' follows the 8 bytes");
  refused("[]", 0, "no '{' follows the 8 bytes");
  refused("{", 0, "not valid JSON");
  refused("{\"a\":\"\xff\"}", 0, "not valid JSON");
  refused(R"({"a":[[[[[[[[1]]]]]]]]})", 0, "is not an object");
  refused(R"({"a":5})", 0, "not an object");
  refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype");
  refused(R"({"a":{"type":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "unknown field \"type\"");
  refused(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "has dtype \"F33\"");
  refused(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "is not a string");
  refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape");
  refused(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "not a list");
  refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "bad number in its shape");
  refused(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "bad number in its shape");
  refused(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
          "more than 8 dimensions");
  refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "has no data_offsets");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "not two numbers");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e99]}})", 4, "bad number");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "out of range");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "out of range");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8 bytes");
  refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4, "beyond 2^63");
  refused(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "bad number");
  refused(R"({"__metadata__":{"a":1}})", 0, "is not a string");
  refused(R"({"__metadata__":[]})", 0, "is not an object");
}

TEST_CASE("tensors must cover the data once, without gaps", "[safetensors]") {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  refused("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "overlaps");
  refused("{" + a + R"(,"b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}})", 6, "overlaps");
  refused("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})", 10, "unused bytes");
  refused("{" + a + "}", 8, "the tensors cover 4 bytes, but the file holds 8");
  refused("{}", 8, "the tensors cover 0 bytes");
  refused("{" + a + "," + a + "}", 4, "names \"a\" twice");
  refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
          "names \"dtype\" twice");
}

TEST_CASE("files that cannot be read are file errors", "[safetensors]") {
  const auto kind = [](const std::string& path) { return test::error_of([&] { Safetensors::open(path); }); };
  CHECK(kind("/nowhere/policy.safetensors").kind == ErrorKind::file_error);
  CHECK(kind("/nowhere/policy.safetensors").says("/nowhere/policy.safetensors"));
  CHECK(kind("").kind == ErrorKind::file_error);
  CHECK(kind("/").says("not a regular file"));
  CHECK(kind("/dev/zero").says("not a regular file"));
  const TemporaryFile name({});
  const std::string pipe = name.path() + ".pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(kind(pipe).says("not a regular file"));  // and does not wait for a writer
  ::unlink(pipe.c_str());
}

}  // namespace exphil::core
