#include "core/policy/gradient.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace exphil::core {

bool gives_d_states(const Network& network) {
  const std::vector<const Phase*> phases = phases_of(network);
  return std::all_of(phases.begin(), phases.end(), [](const Phase* phase) {
    return state_of(*phase) == kNone || std::holds_alternative<GatedCell>(*phase);
  });
}

void require_outputs(const Network& network, const PolicyGradOutputs& outputs) {
  if (outputs.d_states == nullptr || gives_d_states(network)) return;
  fail(ErrorKind::unsupported, ":d_initial_state",
       "the gradient of the initial state is that of policies of GRU, LSTM, minGRU and minLSTM alone");
}

}  // namespace exphil::core
