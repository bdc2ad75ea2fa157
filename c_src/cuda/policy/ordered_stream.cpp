#include "cuda/policy/ordered_stream.hpp"

#include "cuda/device/quiet_context.hpp"

namespace exphil::cuda {

OrderedStream::OrderedStream(Context& context) : context_(context), doorbell_(context.armed()) {
  int lowest = 0, highest = 0;
  context.check(driver().cuCtxGetStreamPriorityRange(&lowest, &highest), "cuCtxGetStreamPriorityRange");
  context.check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, highest),
                "cuStreamCreateWithPriority");
}

OrderedStream::~OrderedStream() {
  drain();
  const QuietContext current(context_.handle());
  if (current.pushed()) driver().cuStreamDestroy(stream_);
}

void OrderedStream::drain() noexcept {
  context_.armed().cancel();
  const QuietContext current(context_.handle());
  if (current.pushed()) context_.note(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

}  // namespace exphil::cuda
