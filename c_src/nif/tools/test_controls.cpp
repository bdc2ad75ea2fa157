// What tests set or ask of the library where time would decide otherwise; see functions.hpp.
#include <malloc.h>

#include <algorithm>
#include <atomic>

#include "core/work/polling.hpp"
#include "core/work/reaper.hpp"
#include "nif/tools/functions.hpp"

namespace exphil::nif {

namespace {

std::atomic<int> runnable{0};

int runnable_now() {
  return runnable.load(std::memory_order_relaxed);
}

}  // namespace

Term runnable_threads(Call& call, std::optional<std::int64_t> count) {
  if (count) runnable = static_cast<int>(std::clamp<std::int64_t>(*count, 0, 1'000'000));
  core::set_runnable_threads(count ? runnable_now : nullptr);
  return encode_atom(call, "ok");
}

Term allocated_bytes(Call& call) {
  core::drain_reaper();
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return encode_integer(call, static_cast<std::int64_t>(info.uordblks + info.hblkhd));
#else
  core::fail(core::ErrorKind::unsupported, "", "the C library does not count its allocated bytes in 64 bits");
#endif
}

}  // namespace exphil::nif
