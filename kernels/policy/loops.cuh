// Loops over phases at compile time. Compiled by the host compiler and by NVRTC.
#pragma once

namespace exphil {
namespace policy {

// A number as a type: the body of such a loop is compiled for each.
template <int kNumber>
struct Number {
  static constexpr int value = kNumber;
};

// Calls call(Number<i>) for i = kFirst ... kEnd - 1.
template <int kFirst, int kEnd, class Call>
constexpr void for_each_number(Call call) {
  if constexpr (kFirst < kEnd) {
    call(Number<kFirst>{});
    for_each_number<kFirst + 1, kEnd>(call);
  }
}

}  // namespace policy
}  // namespace exphil
