// See functions.hpp.
#include "nif/held.hpp"
#include "nif/tools/functions.hpp"

namespace exphil::nif {

Term held_calls(Call& call, std::int64_t limit) {
  const HeldCalls held = take_held_calls(limit);
  return encode(call, Map{{{"calls"}, encode_integer(call, held.calls)},
                          {{"long_calls"}, encode_integer(call, held.long_calls)},
                          {{"longest_processor_time"}, encode_integer(call, held.longest_processor_time)},
                          {{"longest_time"}, encode_integer(call, held.longest_time)}});
}

}  // namespace exphil::nif
