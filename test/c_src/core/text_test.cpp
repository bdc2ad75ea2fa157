#include "core/text.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

namespace exphil::core {

TEST_CASE("quoted text is escaped where a terminal or a reader could be misled", "[text]") {
  CHECK(quote("layers.0") == "\"layers.0\"");
  CHECK(quote("") == "\"\"");
  CHECK(quote("snow \xe2\x98\x83 and \xf0\x9f\x8e\xae") == "\"snow \xe2\x98\x83 and \xf0\x9f\x8e\xae\"");
  CHECK(quote("a\"b\\c\nd\te\x1b[31m\x7f") == R"("a\"b\\c\nd\x09e\x1b[31m\x7f")");
  CHECK(quote(std::string_view("a\0b", 3)) == R"("a\x00b")");
  CHECK(quote("\xc2\x9b and \xc2\xa0") == "\"\\xc2\\x9b and \xc2\xa0\"");
}

TEST_CASE("bytes that are not UTF-8 are escaped one by one", "[text]") {
  CHECK(quote("\xff") == R"("\xff")");
  CHECK(quote("\xc3") == R"("\xc3")");          // cut in the middle
  CHECK(quote("\xc0\xaf") == R"("\xc0\xaf")");  // an overlong form
  CHECK(quote("\xe0\x9f\xbf") == R"("\xe0\x9f\xbf")");
  CHECK(quote("\xed\xa0\x80") == R"("\xed\xa0\x80")");          // a surrogate
  CHECK(quote("\xf4\x90\x80\x80") == R"("\xf4\x90\x80\x80")");  // beyond U+10FFFF
  CHECK(quote("\xe2\x98x") == R"("\xe2\x98x")");
  CHECK(valid_text("line\nline \"\\\" \xfe", 100) == "line\nline \"\\\" \\xfe");
}

TEST_CASE("text is cut between characters, within its limit", "[text]") {
  CHECK(valid_text("12345", 5) == "12345");
  CHECK(valid_text("123456", 5) == "12...");
  CHECK(valid_text("1\xe2\x98\x83\xe2\x98\x83", 6) == "1...");
  CHECK(valid_text("\xff\xff", 7) == "\\xff...");
  for (std::size_t most = 0; most < 40; ++most) {
    const std::string cut = valid_text("a\xc3\xa9\xff\xe2\x98\x83 and \xf0\x9f\x8e\xae then some more", most);
    CHECK(cut.size() <= most);
    CHECK(valid_text(cut, 100) == cut);
  }
}

TEST_CASE("an error's texts are bounded and valid, whatever their source", "[text]") {
  const std::string file_content(90'000'000, '\xe9');
  try {
    fail(ErrorKind::invalid_checkpoint, file_content, "unknown: ", file_content);
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(message.size() <= Error::kMaxMessage);
    CHECK(error.argument().size() <= Error::kMaxArgument);
    CHECK(message.substr(0, 17) == "unknown: \\xe9\\xe9");
    CHECK(message.substr(message.size() - 3) == "...");
    return;
  }
  FAIL("nothing was thrown");
}

}  // namespace exphil::core
