#include "core/checkpoint/external_term.hpp"

#include "support/catch.hpp"
#include "support/erlang_writer.hpp"
#include "support/errors.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;
using Kind = ErlangTerm::Kind;

ExternalTerm read(const Text& bytes) {
  InflationLimit limit(bytes.size());
  return read_external_term(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "the term",
                            limit);
}

void refused_term(const Text& bytes, const std::string& part) {
  const test::CaughtError error = test::error_of([&] { read(bytes); });
  INFO(part << " in: " << error.message);
  CHECK(error.kind == ErrorKind::invalid_checkpoint);
  CHECK(error.argument == "path");
  CHECK(error.says(part));
}

}  // namespace

TEST_CASE("external terms of every accepted kind", "[external_term]") {
  const auto integer_of = [](const Text& body) {
    const Text bytes = term(body);
    const ExternalTerm read_term = read(bytes);
    CHECK(read_term.root.kind == Kind::integer);
    return read_term.root.integer;
  };
  CHECK(integer_of(tag(97) + tag(255)) == 255);
  CHECK(integer_of(tag(98) + number(0xffffffff, 4)) == -1);
  CHECK(integer_of(tag(110) + tag(5) + tag(0) + Text("\x35\x1c\xdc\xdf\x02", 5)) == 12345678901);
  CHECK(integer_of(tag(110) + tag(8) + tag(1) + number(0x80, 8)) == INT64_MIN);
  CHECK(integer_of(tag(111) + number(2, 4) + tag(1) + tag(1) + tag(1)) == -257);
  const Text big = term(tag(110) + tag(8) + tag(0) + number(0x80, 8)),
             wide = term(tag(110) + tag(9) + tag(0) + Text(9, '\1'));
  CHECK(read(big).root.kind == Kind::big);
  CHECK(read(wide).root.kind == Kind::big);
  const Text half = term(tag(70) + number(0xbfe0000000000000u, 8));
  CHECK(read(half).root.real == -0.5);
  for (const int atom_tag : {100, 118}) {
    const Text bytes = term(tag(atom_tag) + number(5, 2) + "mamba");
    CHECK(read(bytes).root.is_atom("mamba"));
  }
  for (const int atom_tag : {115, 119}) {
    const Text bytes = term(tag(atom_tag) + number(5, 1) + "mamba");
    CHECK(read(bytes).root.is_atom("mamba"));
  }
  const Text string = term(tag(107) + number(2, 2) + Text("\x01\xff", 2));
  CHECK(read(string).root.items.at(1).integer == 255);
  const Text nested = term(map({{atom("a"), list({binary("x"), tuple({})})}, {binary("a"), integer(7)}}));
  const ExternalTerm root = read(nested);
  CHECK(root.root.atom_key("a")->items.at(0).text == "x");
  CHECK(root.root.binary_key("a")->integer == 7);
  CHECK(root.root.atom_key("b") == nullptr);
  const Text large = term(tag(105) + number(1, 4) + atom("nil"));
  CHECK(read(large).root.items.size() == 1);
  const Text body = list({binary(Text(10000, 'x')), atom("end")});
  const ExternalTerm inflated = read(compressed_term(body, body.size()));
  CHECK(inflated.root.items.at(0).text == Text(10000, 'x'));
}

TEST_CASE("refused terms give the reason", "[external_term]") {
  refused_term("", "must start with byte 131");
  refused_term(Text(2, '\7'), "must start with byte 131, got 7");
  refused_term(term(""), "the term is truncated: nothing follows byte 131");
  refused_term(term(integer(1)) + "x", "1 bytes follow the term");
  refused_term(term(tag(77) + number(1, 4) + tag(8) + "x"), "tag 77 (a bit string)");
  refused_term(term(tag(88) + Text(20, 'x')), "(a process id)");
  refused_term(term(tag(103) + Text(20, 'x')), "(a process id)");
  refused_term(term(tag(102) + Text(20, 'x')), "(a port)");
  for (const int reference : {90, 101, 114})
    refused_term(term(tag(reference) + Text(20, 'x')), "(a reference)");
  for (const int function : {112, 113, 117})
    refused_term(term(tag(function) + Text(20, 'x')), "(a function)");
  refused_term(term(tag(99) + Text(31, '0')), "tag 99 is not accepted");
  refused_term(term(tag(82) + tag(0)), "tag 82 is not accepted");
  refused_term(term(tag(70) + number(0x7ff0000000000000u, 8)), "not finite");
  refused_term(term(tag(110) + tag(1) + tag(2) + tag(1)), "sign byte 2");
  refused_term(term(tag(100) + number(1021, 2) + Text(1021, 'a')), "an atom of 1021 bytes");
  refused_term(term(tag(108) + number(1, 4) + integer(1) + integer(2)), "improper list");
  refused_term(term(map({{atom("a"), integer(1)}, {atom("a"), integer(2)}})), "a key that appears twice");
  refused_term(term(tag(108) + number(0xffffffff, 4) + tag(106)), "4294967295 elements are announced");
  refused_term(term(tag(116) + number(0xffffffff, 4) + tag(106)), "elements are announced");
  refused_term(term(tag(109) + number(5, 4) + "abc"), "truncated");
  Text deep;
  for (int i = 0; i < 100; ++i) deep += tag(104) + tag(1);
  refused_term(term(deep + integer(1)), "nested more than 64 deep");
  refused_term(term(tag(108) + number((1u << 20) + 1, 4) + Text((1u << 20) + 1, 106) + tag(106)),
               "more than 1048576 terms");
}

TEST_CASE("a term cut at any byte is refused", "[external_term]") {
  const Text full =
      term(map({{atom("a"), list({integer(300), binary("xyz")})}, {atom("b", true), tuple({atom("ok")})}}));
  for (std::size_t size = 0; size < full.size(); ++size) {
    const Text cut = full.substr(0, size);
    CHECK(test::error_of([&] { read(cut); }).kind == ErrorKind::invalid_checkpoint);
  }
}

TEST_CASE("a compressed term inflates to exactly what it announces", "[external_term]") {
  const Text body = binary(Text(5000, 'x'));
  refused_term(compressed_term(body, body.size() + 1), "fewer than the 5006 it announces");
  refused_term(compressed_term(body, body.size() - 1), "more bytes than it announces");
  const Text bomb = compressed_term(body, 0xffffffff);
  const test::CaughtError error = test::error_of([&] { read(bomb); });
  CHECK(error.kind == ErrorKind::limit_exceeded);
  CHECK(error.says("the term inflates to more than the limit"));
  refused_term(compressed_term(body, body.size()) + "x", "1 bytes follow the zlib stream");
  const Text full = compressed_term(body, body.size());
  refused_term(full.substr(0, full.size() - 1), "truncated in its zlib stream");
  refused_term(tag(131) + tag(80) + number(3, 4) + "abcdef", "damaged zlib stream");
  refused_term(tag(131) + tag(80) + number(3, 3), "truncated in its compressed size");
  Text changed = full;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  refused_term(changed, "damaged zlib stream");
}

}  // namespace exphil::core
