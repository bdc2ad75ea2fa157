#include "cuda/scan/copied_part.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

using core::ScanCall;
using core::ScanOperand;
using core::ScanShape;

// Devices for each sequence.
std::size_t devices_per_sequence(std::size_t devices, const ScanShape& shape, std::int64_t least_steps) {
  if (shape.full_matrix || shape.options.direction == core::Direction::both) return 1;
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, shape.seq / least_steps));
  return std::clamp<std::size_t>(devices / static_cast<std::size_t>(shape.batch), 1, most);
}

ScanCall steps_of(const ScanCall& call, std::int64_t begin, std::int64_t steps) {
  ScanCall part = call;
  part.operands = from_step(call.shape, call.operands, begin);
  part.shape = part_shape(call.shape, steps);
  return part;
}

}  // namespace

void require_host_tensors(const ScanCall& call) {
  if (call.on_device.empty()) return;
  const std::string& argument = call.on_device.front().argument;
  core::fail(core::ErrorKind::unsupported, argument, argument,
             " is in the memory of one device, and the call runs on several");
}

void split_batch(const std::vector<std::shared_ptr<Context>>& contexts, const ScanShape& shape,
                 std::int64_t least_steps,
                 const std::function<void(const std::vector<Context*>& own, std::int64_t begin,
                                          std::int64_t sequences)>& part) {
  const std::size_t each = devices_per_sequence(contexts.size(), shape, least_steps);
  const std::size_t parts = std::min(contexts.size() / each, static_cast<std::size_t>(shape.batch));
  side_by_side(parts, [&](std::size_t number) {
    std::vector<Context*> own;
    for (std::size_t i = 0; i < each; ++i) own.push_back(contexts[number * each + i].get());
    const std::int64_t begin = part_begin(shape.batch, number, parts);
    part(own, begin, part_begin(shape.batch, number + 1, parts) - begin);
  });
}

StateFloats given_state(const ScanCall& call, ScanOperand id) {
  const auto floats = static_cast<std::size_t>(call.shape.state_floats());
  const auto* const given = static_cast<const float*>(call.operands[id]);
  if (!call.shape.has(id) || given == nullptr) return StateFloats(floats);
  return StateFloats(given, given + floats);
}

CopiedPart::CopiedPart(Context& context, const ScanCall& call, std::int64_t begin, std::int64_t steps)
    : call_(steps_of(call, begin, steps)),
      table_(core::describe_operands(call_.shape)),
      image_(table_, call_.operands, 1, 1),
      memory_(context.device_pool().allocate(image_.bytes())),
      download_(context),
      stream_(context) {
  upload_ = std::make_unique<Upload>(
      context, stream_.handle(), memory_.address(), image_.segments(), image_.ends(), [](std::size_t) {},
      call.on_device);
  upload_->run();
}

void CopiedPart::finish() {
  const auto device = operands();
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (!table_[id].present || table_[id].flow != core::Flow::out) continue;
    download_.add(stream_.handle(), call_.operands[id], device[id], table_[id].bytes());
  }
  stream_.synchronize();
  download_.finish();
}

}  // namespace exphil::cuda
