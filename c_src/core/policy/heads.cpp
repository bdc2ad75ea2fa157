#include "core/policy/heads.hpp"

#include <algorithm>
#include <cstddef>

namespace exphil::core {

PolicyHead joined_heads(const std::vector<PolicyHead>& heads) {
  PolicyHead all;
  for (const PolicyHead& head : heads) {
    all.hidden.insert(all.hidden.end(), head.hidden.begin(), head.hidden.end());
    all.hidden_bias.insert(all.hidden_bias.end(), head.hidden_bias.begin(), head.hidden_bias.end());
    all.out_bias.insert(all.out_bias.end(), head.out_bias.begin(), head.out_bias.end());
  }
  const std::size_t width = all.hidden_bias.size();
  all.out.resize(all.out_bias.size() * width);
  std::size_t first_out = 0, first_hidden = 0;
  for (const PolicyHead& head : heads) {
    const std::size_t own = head.hidden_bias.size();
    for (std::size_t row = 0; row < head.out_bias.size(); ++row, ++first_out) {
      std::copy_n(head.out.data() + row * own, own, all.out.data() + first_out * width + first_hidden);
    }
    first_hidden += own;
  }
  return all;
}

std::int64_t hidden_width(const std::vector<PolicyHead>& heads) {
  std::int64_t width = 0;
  for (const PolicyHead& head : heads) width += head.width();
  return width;
}

}  // namespace exphil::core
