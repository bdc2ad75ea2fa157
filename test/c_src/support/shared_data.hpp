// The folder of the shared goldens and matches: EXPHIL_SHARED, else ../shared next to the project's root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exphil::test {

// Empty where the folder is missing.
std::string shared_folder();

// False, after a line on stderr with the reason, where `relative` is not in the shared folder. Use: if
// (!have_shared("melee/match.safetensors")) return;
bool have_shared(const std::string& relative);
std::string shared_path(const std::string& relative);

// One tensor of a safetensors file, copied.
std::vector<float> read_f32(const std::string& path, const std::string& tensor);
std::vector<double> read_f64(const std::string& path, const std::string& tensor);
std::vector<std::uint8_t> read_u8(const std::string& path, const std::string& tensor);
std::vector<std::int32_t> read_s32(const std::string& path, const std::string& tensor);

}  // namespace exphil::test
