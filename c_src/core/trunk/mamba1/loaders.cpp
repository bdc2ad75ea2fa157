#include "core/trunk/mamba1/loaders.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/work/background.hpp"

namespace exphil::core::mamba1 {

namespace {

Dialect dialect_of(const TrunkOption& option) {
  const auto* const name = std::get_if<std::string>(&option);
  Dialect dialect = Dialect::state_spaces;
  if (name == nullptr || !parse_dialect(*name, &dialect)) {
    fail(ErrorKind::invalid_argument, ":dialect",
         ":dialect must be :state_spaces, :edifice_mamba or :edifice_mamba_ssd",
         name == nullptr ? "" : ", got :" + *name);
  }
  return dialect;
}

InputDt dt_of(const TrunkOption& option) {
  const auto* const name = std::get_if<std::string>(&option);
  if (name == nullptr || (*name != "mean" && *name != "per_channel")) {
    fail(ErrorKind::invalid_argument, ":dt", ":dt must be :mean or :per_channel");
  }
  return *name == "mean" ? InputDt::mean : InputDt::per_channel;
}

}  // namespace

Options read_options(const PolicyLoadOptions& options) {
  Options read;
  for (const auto& [name, value] : options.trunk) {
    if (name == "dialect") {
      read.dialect = dialect_of(value);
    } else if (name == "dt") {
      read.input_dt = dt_of(value);
    } else if (name == "chunk_size" && std::holds_alternative<std::int64_t>(value)) {
      read.chunk_size = std::get<std::int64_t>(value);
    } else {
      fail(ErrorKind::invalid_argument, ":" + name, ":", name, " is not an option of a Mamba policy");
    }
  }
  return read;
}

std::vector<std::string> identity_of(const Config& config) {
  std::vector<std::string> parts = {hex(hash64(&config.norm_epsilon, sizeof config.norm_epsilon))};
  const Spec& spec = config.spec;
  if (spec.dialect == Dialect::state_spaces) return parts;
  const bool decays = spec.window > 1 && spec.window <= spec.chunk_size;
  parts.insert(parts.end(),
               {dialect_name(spec.dialect), spec.input_dt == InputDt::mean ? "mean" : "per_channel",
                decays ? "decays_input" : ""});
  return parts;
}

TensorReader::TensorReader(CheckpointReader& reader, Weights* weights) : reader_(reader), weights_(*weights) {
  for (const Values* vector : vectors_of(*weights)) vectors_.emplace(vector, vectors_.size());
}

void TensorReader::take(const std::string& name, const Shape& shape, const char* axes, Values& to,
                        bool transposed) {
  stop_if_abandoned();
  const Values values = reader_.take(name, shape, axes);
  const std::size_t first = to.size();
  to.resize(first + values.size());
  if (transposed) {
    const auto outs = static_cast<std::size_t>(shape[shape.rank() - 1]), depth = values.size() / outs;
    for (std::size_t i = 0; i < values.size(); ++i) to[first + i % outs * depth + i / outs] = values[i];
  } else {
    std::copy(values.begin(), values.end(), to.begin() + static_cast<std::ptrdiff_t>(first));
  }
  weights_.tensors.push_back({name, shape, axes, vectors_.at(&to), first, transposed});
}

}  // namespace exphil::core::mamba1
