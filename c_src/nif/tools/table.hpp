// The function table of the tools, separate from the product's in nif.cpp. A library can have only one stub
// module, so the product's table has one entry for all tools: tool(name, arguments), called by
// ExPhil.Native.Tools.Reference.
#pragma once

#include "nif/codec.hpp"

namespace exphil::nif {

// tool(name, {argument, ...}): runs the tool on its dirty scheduler. Returns {:ok, value} or {:error, {kind,
// argument, message}}, as every NIF.
Term tool(ErlNifEnv* env, int argc, const Term argv[]) noexcept;

}  // namespace exphil::nif
