// What every fuzz target shares: an input as a file, and bounds on what one input may cost. Built with
// clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer by `make fuzz`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace exphil::fuzz {

// The bytes as a regular file in memory, at one path for the whole process.
const std::string& as_file(const std::uint8_t* data, std::size_t size);

// Runs `check`, which may throw core::Error of a kind that bad input gives. Aborts where another exception
// comes, where a message is longer than 4 KB, not valid UTF-8 or not one line, or where the call takes more
// processor time than a generous multiple of its bytes, three times in a row.
void run_guarded(std::size_t size, const std::function<void()>& check);

}  // namespace exphil::fuzz
