// The selective scan: scan, step, bidirectional and scan_with_states are one NIF, whose request says what to
// compute.
#include "nif/scan_request.hpp"

#include "nif/functions.hpp"

namespace exphil::nif {

// {y, y_reverse | nil, final_state | nil, states | nil}
Term scan(Call& call, BackendChoice choice, DeviceChoice devices, ScanTensor x, ScanTensor dt, ScanTensor a,
          ScanTensor b, ScanTensor c, MaybeScanTensor d, MaybeScanTensor z, MaybeScanTensor dt_bias,
          MaybeScanTensor initial_state, ScanRequest request) {
  const core::ScanInputs inputs{x, dt, a, b, c, d, z, dt_bias, initial_state};
  core::ScanCall scan = core::validate_scan(inputs, request.options, request.results);
  const std::vector<core::Backend*> backends = open_backends(choice, devices, call.device_ranges());
  scan.on_device = call.device_ranges();
  const auto table = core::describe_operands(scan.shape);

  core::ScanOperands<std::optional<Result>> results;
  for (const core::ScanOperand id : core::all_operands<core::ScanOperand>()) {
    if (!table[id].present || table[id].flow != core::Flow::out) continue;
    scan.operands[id] = results[id].emplace(call, *backends.front(), table[id].bytes()).data();
  }
  scan_on(backends, scan);

  const auto encode_result = [&](core::ScanOperand id) {
    if (!results[id]) return encode_atom(call, "nil");
    return encode_tensor(call, table[id].dtype, table[id].axes.shape(), results[id]->term());
  };
  return enif_make_tuple4(
      call.env(), encode_result(core::ScanOperand::y), encode_result(core::ScanOperand::y_reverse),
      encode_result(core::ScanOperand::final_state), encode_result(core::ScanOperand::states));
}

}  // namespace exphil::nif
