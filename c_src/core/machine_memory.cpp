#include "core/machine_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace exphil::core {

std::size_t machine_memory() {
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::size_t memory =
      pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : 0;
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::size_t limit = 0;
    if (std::ifstream(file) >> limit) memory = std::min(memory, limit);
  }
  return memory;
}

}  // namespace exphil::core
