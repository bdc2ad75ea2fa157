#include "xla/associative_frame.hpp"

#include "core/error.hpp"
#include "core/names.hpp"

namespace exphil::xla {

core::AssociativeOptions read_associative_options(const Frame& frame) {
  core::AssociativeOptions options;
  options.axis = frame.integer("axis", 0);
  options.direction = core::direction_named(frame.text("direction", "forward"), "direction");
  return options;
}

std::optional<core::TensorView> read_initial_state(const Frame& frame, std::int64_t index) {
  const std::string operands = frame.text("operands", "");
  if (operands.empty()) return std::nullopt;
  if (operands != "initial_state") {
    core::fail(core::ErrorKind::invalid_argument, "operands", "operands must be empty or initial_state; got ",
               operands);
  }
  return frame.argument(index, "initial_state");
}

void* read_like(const Frame& frame, std::int64_t index, const char* name, const core::TensorView& like) {
  const core::TensorView view = frame.result(index, name);
  require_result(view, name, like.dtype, like.shape);
  return const_cast<void*>(view.data);
}

void require_arguments(const Frame& frame, std::int64_t count) {
  if (frame.arguments() == count) return;
  core::fail(core::ErrorKind::invalid_argument, "", "the call has ", frame.arguments(),
             " arguments; expected ", count);
}

void require_results(const Frame& frame, std::int64_t count) {
  if (frame.results() == count) return;
  core::fail(core::ErrorKind::invalid_argument, "", "the call has ", frame.results(), " results; expected ",
             count);
}

}  // namespace exphil::xla
