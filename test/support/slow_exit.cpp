// Loaded into a VM or a test program before everything else (LD_PRELOAD), so that its destructor is the last
// one to run: the process then takes a while to end, in which threads that still compute meet whatever was
// destroyed before.
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace {

constexpr useconds_t kWhile = 200 * 1000;
const char* const kPrograms[] = {"beam.smp", "c_src_tests"};

__attribute__((destructor)) void take_a_while() {
  for (const char* const program : kPrograms) {
    if (std::strcmp(program_invocation_short_name, program) == 0) usleep(kWhile);
  }
}

}  // namespace
