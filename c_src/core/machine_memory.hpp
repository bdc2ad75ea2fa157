// The memory of the machine. Any thread.
#pragma once

#include <cstddef>

namespace exphil::core {

// A limit of the container on memory, or what the machine has. Reads files: not for the step path.
std::size_t machine_memory();

}  // namespace exphil::core
