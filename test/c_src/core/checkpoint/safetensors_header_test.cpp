// The cost of a header: time in proportion to its bytes, memory in proportion to its entries, no work after
// the first invalid element, and an error instead of an abort where memory is short.
#include "core/checkpoint/safetensors_header.hpp"

#include <time.h>

#include <algorithm>
#include <functional>
#include <new>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::core {

namespace {

constexpr std::int64_t kMegabyte = 1 << 20;

std::string repeated(const std::string& text, std::size_t count, const std::string& between = ",") {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += (i > 0 ? between : "") + text;
  return all;
}

// The tensors' names share a long start: comparing them is the worst case of the check for duplicates.
std::string empty_tensors(std::size_t count) {
  std::string json = "{";
  for (std::size_t i = 0; i < count; ++i) {
    json += (i > 0 ? ",\"backbone.layers.mixer." : "\"backbone.layers.mixer.") + std::to_string(i) +
            R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  return json + "}";
}

std::string metadata_entries(std::size_t count) {
  std::string json = R"({"__metadata__":{)";
  for (std::size_t i = 0; i < count; ++i) {
    json += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":"value")";
  }
  return json + "}}";
}

double seconds_of_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_to_parse(const std::string& json) {
  const double start = seconds_of_thread();
  test::error_of([&] { parse_safetensors_header(json, 0); });
  return seconds_of_thread() - start;
}

// A small valid header with a policy's usual parts, to fail every allocation of its parsing.
const char* const kSmall =
    R"({"__metadata__":{"norm_epsilon":"1e-05","format":"a value that is longer than a short string"},)"
    R"("backbone.layers.0.mixer.in_proj.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"data_offsets":[24,26],"shape":[],"dtype":"BF16"}})";

}  // namespace

// Some tenths of a second of a core. Where the time grew as the square of the entries they would take an
// hour.
TEST_CASE("a header of 300,000 entries is read or refused in a time as its length", "[header]") {
  const std::pair<const char*, std::function<std::string(std::size_t)>> kinds[] = {
      {"empty tensors", empty_tensors},
      {"metadata", metadata_entries},
      {"objects in a list", [](std::size_t n) { return R"({"a":[)" + repeated("{}", n) + "]}"; }},
      {"lists in a list", [](std::size_t n) { return R"({"a":)" + repeated("[]", n) + "}"; }},
      {"one tensor twice",
       [](std::size_t n) {
         std::string json = empty_tensors(n);
         json.back() = ',';
         return json + json.substr(1, json.find('}')) + "}";
       }},
  };
  for (const auto& [name, json] : kinds) {
    const double seconds = seconds_to_parse(json(300'000));
    INFO(name << ": " << seconds << " s");
    CHECK(seconds < 120);
  }
}

TEST_CASE("an invalid element is refused before it is read", "[header]") {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"a":[)" + repeated("{}", 160'000) + "]}", "entry for \"a\" is not an object"},
      {R"({"a":)" + repeated("[", 1'000'000, ""), "entry for \"a\" is not an object"},
      {R"({"a":)" + repeated(R"({"a":)", 1'000'000, ""), "unknown field \"a\""},
      {R"({"a":{"shape":[)" + repeated("1", 1'000'000) + "]}}", "more than 8 dimensions"},
      {R"({"a":{"shape":[[)" + repeated("1", 1'000'000) + "]]}}", "bad number in its shape"},
      {R"({"a":{"data_offsets":[)" + repeated("1", 1'000'000) + "]}}", "not two numbers"},
      {R"({"__metadata__":{"a":[)" + repeated("1", 1'000'000) + "]}}", "is not a string"},
      {R"({"a":null,)" + repeated("1", 1'000'000) + "}", "entry for \"a\" is not an object"},
      {R"({")" + repeated("name", 1'000, "") + R"(":)" + repeated("1", 1'000'000), "a name of 4000 bytes"},
  };
  for (const auto& [json, part] : cases) {
    const test::Allocations allocations;
    const test::CaughtError error = test::error_of([&] { parse_safetensors_header(json, 0); });
    INFO(json.substr(0, 40) << " says: " << error.message);
    CHECK(error.kind == ErrorKind::invalid_checkpoint);
    CHECK(error.says(part));
    CHECK(allocations.peak() < kMegabyte / 8);
  }
}

TEST_CASE("a string, a number or a run of blanks has a limit", "[header]") {
  const std::string two(2 * kMaxHeaderToken, '1');
  for (const std::string& json : {R"({"__metadata__":{"a":")" + two + "\"}}", R"({")" + two + "\":1}",
                                  R"({"a":{"shape":[)" + two + "]}}", "{}" + std::string(two.size(), ' ')}) {
    const test::Allocations allocations;
    const test::CaughtError error = test::error_of([&] { parse_safetensors_header(json, 0); });
    INFO(json.substr(0, 40) << " says: " << error.message);
    CHECK(error.says("an element of more than 1048576 bytes"));
    CHECK(allocations.peak() < 8 * kMegabyte);
  }
  CHECK(parse_safetensors_header(R"({"__metadata__":{"a":")" + two.substr(0, 1'000'000) + "\"}}", 0)
            .metadata.at("a")
            .size() == 1'000'000);
  CHECK(parse_safetensors_header("{}" + std::string(1'000'000, ' '), 0).entries.empty());
}

TEST_CASE("the number of tensors has a limit, and memory is in proportion to it", "[header]") {
  {
    const std::string json = empty_tensors(40'000);
    const test::Allocations allocations;
    CHECK(parse_safetensors_header(json, 0).entries.size() == 40'000);
    CHECK(allocations.peak() < 24 * kMegabyte);
  }
  CHECK(parse_safetensors_header(empty_tensors(kMaxHeaderEntries), 0).entries.size() == kMaxHeaderEntries);
  const auto error = [](const std::string& json) {
    return test::error_of([&] { parse_safetensors_header(json, 0); });
  };
  CHECK(error(empty_tensors(kMaxHeaderEntries + 1)).says("more than 65536 tensors"));
  CHECK(error(metadata_entries(kMaxHeaderEntries + 1)).says("more than 65536 entries in __metadata__"));
}

TEST_CASE("every allocation of the parser may fail", "[header]") {
  std::int64_t count = 0;
  {
    const test::Allocations allocations;
    CHECK(parse_safetensors_header(kSmall, 26).entries.size() == 2);
    count = allocations.count();
  }
  CHECK(count > 5);
  int refused = 0;
  for (std::int64_t number = 1; number <= count; ++number) {
    test::Allocations allocations;
    allocations.fail(number);
    try {
      parse_safetensors_header(kSmall, 26);
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    CHECK(allocations.failures() == 1);
    CHECK(allocations.bytes() == 0);
  }
  CHECK(refused == count);
}

TEST_CASE("content of a file is escaped and shortened in messages", "[header]") {
  const auto message = [](const std::string& json) {
    return test::error_of([&] { parse_safetensors_header(json, 0); }).message;
  };
  CHECK(message(R"({"a\u001b[31m":5})") == R"(the header's entry for "a\x1b[31m" is not an object)");
  CHECK(message("{\"a\":\"\xff\"}").find("\xff") == std::string::npos);
  CHECK(message(R"({"a":{"dtype":")" + std::string(900'000, 'F') + R"("}})").size() < 400);
  CHECK(message(R"({"a":{)" + std::string(900'000, 'F')).size() < 400);
}

}  // namespace exphil::core
