#include "core/trunk/mamba1/spec.hpp"

namespace exphil::core::mamba1 {

namespace {

constexpr Dialect kDialects[] = {Dialect::state_spaces, Dialect::edifice_mamba, Dialect::edifice_mamba_ssd};

}  // namespace

const char* dialect_name(Dialect dialect) {
  switch (dialect) {
    case Dialect::state_spaces:
      return "state_spaces";
    case Dialect::edifice_mamba:
      return "edifice_mamba";
    case Dialect::edifice_mamba_ssd:
      return "edifice_mamba_ssd";
  }
  return "";
}

bool parse_dialect(const std::string& name, Dialect* dialect) {
  for (const Dialect candidate : kDialects) {
    if (name != dialect_name(candidate)) continue;
    *dialect = candidate;
    return true;
  }
  return false;
}

}  // namespace exphil::core::mamba1
