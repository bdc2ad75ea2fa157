#include "core/trunk/output_groups.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"

namespace exphil::core {

namespace {

// Names become atoms of the VM where it knows them: short, and not many.
constexpr std::size_t kMostName = 64, kMostGroups = 256;
// Of one group, so that a sum of all fits.
constexpr std::int64_t kMostOfGroup = std::int64_t{1} << 48;

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(by, at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostName && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool read_group(std::string_view text, OutputGroup* group) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3 || !is_name(parts[0])) return false;
  group->name = parts[0];
  group->binary = parts.size() == 3;
  if (group->binary && parts[2] != "binary") return false;
  const char* const end = parts[1].data() + parts[1].size();
  const auto read = std::from_chars(parts[1].data(), end, group->count);
  return read.ec == std::errc() && read.ptr == end && group->count > 0;
}

}  // namespace

void name_outputs(const std::map<std::string, std::string>& metadata, bool from_option,
                  PolicyConfig* config) {
  const auto found = metadata.find(kHeadsKey);
  if (found == metadata.end() || !config->groups.empty()) return;
  const std::vector<std::string_view> texts = split(found->second, ',');
  std::vector<OutputGroup> groups(std::min(texts.size(), kMostGroups + 1));
  std::int64_t first = 0;
  bool sound = texts.size() <= kMostGroups;
  for (std::size_t i = 0; sound && i < groups.size(); ++i) {
    sound = read_group(texts[i], &groups[i]) && groups[i].count <= kMostOfGroup;
    groups[i].first = first;
    first += groups[i].count;
  }
  if (from_option && texts.size() > kMostGroups) {
    fail(ErrorKind::limit_exceeded, ":heads", ":heads are ", texts.size(), "; the limit is ", kMostGroups);
  }
  if (from_option && (!sound || first != config->d_output)) {
    fail(ErrorKind::invalid_argument, ":heads", ":heads must have the policy's ", config->d_output,
         " outputs together, got ", sound ? std::to_string(first) : "more");
  }
  if (!sound || first != config->d_output) {
    fail(ErrorKind::invalid_checkpoint, "path", "the metadata's ", kHeadsKey, " must name the ",
         config->d_output, " outputs as \"main_x:17,buttons:4:binary\", at most ", kMostGroups,
         " groups; got ", quote(found->second));
  }
  config->groups = std::move(groups);
}

}  // namespace exphil::core
