#include "core/work/own_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace exphil::core {

namespace {

// The cores of the process's first thread, which the VM binds to none. False on machines of more than 1024
// cores.
bool find_process_cores(cpu_set_t* cores) noexcept {
  return sched_getaffinity(getpid(), sizeof(*cores), cores) == 0;
}

}  // namespace

void begin_own_thread(const char* name) noexcept {
  pthread_setname_np(pthread_self(), name);
  cpu_set_t cores;
  if (find_process_cores(&cores)) sched_setaffinity(0, sizeof(cores), &cores);
}

int process_cores() noexcept {
  cpu_set_t cores;
  if (find_process_cores(&cores)) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace exphil::core
