// The optimiser's step, on the CPU.
#include <cmath>
#include <tuple>

#include "core/training/adamw.hpp"
#include "nif/functions.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

double squares_of(const core::TensorView& view) {
  const auto count = static_cast<std::int64_t>(view.bytes / core::dtype_size(view.dtype));
  return view.dtype == core::Dtype::f64 ? core::sum_of_squares(static_cast<const double*>(view.data), count)
                                        : core::sum_of_squares(static_cast<const float*>(view.data), count);
}

bool is_finite(const core::TensorView& view) {
  const auto count = static_cast<std::int64_t>(view.bytes / core::dtype_size(view.dtype));
  return view.dtype == core::Dtype::f64 ? core::all_finite(static_cast<const double*>(view.data), count)
                                        : core::all_finite(static_cast<const float*>(view.data), count);
}

// Before the step.
void require_finite(const core::TensorView& view, const char* argument, const std::string& name) {
  if (!is_finite(view)) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be finite: tensor ", core::quote(name),
         " is not");
  }
}

// Of a step whose weights, means and gradients are finite. What is too large for the type is the square of a
// gradient, or else the way that the learning rate gives.
void require_finite_step(const core::AdamW& options, const core::TensorView& weight, NewBinary& next_weight,
                         NewBinary& next_v, const std::string& name) {
  const auto finite = [&](NewBinary& binary) {
    return is_finite({weight.dtype, weight.shape, binary.data(), weight.bytes});
  };
  const char* const type = core::dtype_name(weight.dtype);
  if (!finite(next_v)) {
    fail(ErrorKind::invalid_argument, "gradients", "gradients must have squares that ", type,
         " holds: that of tensor ", core::quote(name), " has not");
  }
  if (!finite(next_weight)) {
    fail(ErrorKind::invalid_argument, ":learning_rate", ":learning_rate is too large: a step with ",
         options.learning_rate, " leaves ", type, " in tensor ", core::quote(name));
  }
}

template <class T>
void run_step(const core::AdamW& options, const AdamWInput& input, NewBinary& weight, NewBinary& m,
              NewBinary& v) {
  const auto from = [](const core::TensorView& view) { return static_cast<const T*>(view.data); };
  const auto to = [](NewBinary& binary) { return reinterpret_cast<T*>(binary.data()); };
  const auto& [name, w, gradient, old_m, old_v, decays] = input;
  core::adamw_step<T>(options, {from(w), from(gradient), from(old_m), from(old_v), to(weight), to(m), to(v)},
                      static_cast<std::int64_t>(w.bytes / sizeof(T)));
}

}  // namespace

Term adamw(Call& call, std::vector<AdamWInput> tensors, AdamWOptions given) {
  core::AdamW options;
  double decay = 0;
  std::optional<double> clip;
  std::tie(options.learning_rate, options.beta1, options.beta2, options.epsilon, decay, clip, options.step) =
      given;
  double squares = 0;
  for (const AdamWInput& input : tensors) {
    const auto& [name, weight, gradient, m, v, decays] = input;
    is_double(weight, name.c_str());
    for (const core::TensorView* other : {&gradient, &m, &v}) {
      require_tensor(*other, weight.dtype, weight.shape, name.c_str());
    }
    require_finite(weight, "weights", name);
    require_finite(m, "optimiser", name);
    require_finite(v, "optimiser", name);
    squares += squares_of(gradient);
  }
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) {
    fail(ErrorKind::invalid_argument, "gradients", "gradients must be finite: their norm is ", norm);
  }
  if (clip && norm > *clip) options.gradient_scale = *clip / norm;
  std::vector<Term> terms;
  for (const AdamWInput& input : tensors) {
    const auto& [name, w, gradient, old_m, old_v, decays] = input;
    NewBinary weight(w.bytes), m(w.bytes), v(w.bytes);
    options.weight_decay = decays ? decay : 0;
    w.dtype == core::Dtype::f64 ? run_step<double>(options, input, weight, m, v)
                                : run_step<float>(options, input, weight, m, v);
    require_finite_step(options, w, weight, v, name);
    const auto tensor = [&, &view = w](NewBinary& binary) {
      return encode_tensor(call, view.dtype, view.shape, binary.term(call));
    };
    terms.push_back(enif_make_tuple4(call.env(), encode(call, name), tensor(weight), tensor(m), tensor(v)));
  }
  return enif_make_tuple2(call.env(), encode_list(call, terms), enif_make_double(call.env(), norm));
}

}  // namespace exphil::nif
