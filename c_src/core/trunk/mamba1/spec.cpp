#include "core/trunk/mamba1/spec.hpp"

#include "core/error.hpp"

namespace exphil::core::mamba1 {

namespace {

constexpr const char* kDialects[] = {"state_spaces", "edifice_mamba", "edifice_mamba_ssd"};

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

const char* dialect_name(Dialect dialect) {
  return kDialects[static_cast<int>(dialect)];
}

bool parse_dialect(const std::string& name, Dialect* dialect) {
  for (int i = 0; i < 3; ++i) {
    if (name == kDialects[i]) return *dialect = static_cast<Dialect>(i), true;
  }
  return false;
}

const char* dt_name(InputDt dt) {
  return dt == InputDt::mean ? "mean" : "per_channel";
}

std::string value_text(Dialect dialect) {
  return std::string(":") + dialect_name(dialect);
}

std::string value_text(InputDt dt) {
  return std::string(":") + dt_name(dt);
}

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

}  // namespace exphil::core::mamba1
