// The function table of the tools, apart from the product's in nif.cpp. A library can have one stub module,
// so the product's table has one entry for all of them: tool(name, arguments), which
// ExPhil.Native.Tools.Reference calls.
#pragma once

#include "nif/codec.hpp"

namespace exphil::nif {

// tool(name, {argument, ...}): moves to the dirty scheduler that the tool asks for, and runs it there. What
// comes back is {:ok, value} or {:error, {kind, argument, message}}, as from every NIF.
Term tool(ErlNifEnv* env, int argc, const Term argv[]) noexcept;

}  // namespace exphil::nif
