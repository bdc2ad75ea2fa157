#include "cuda/policy/ordered_stream.hpp"

namespace exphil::cuda {

OrderedStream::OrderedStream(Context& context) : context_(context), doorbell_(context.armed()) {
  int lowest = 0, highest = 0;
  context.check(driver().cuCtxGetStreamPriorityRange(&lowest, &highest), "cuCtxGetStreamPriorityRange");
  context.check(driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, highest),
                "cuStreamCreateWithPriority");
}

OrderedStream::~OrderedStream() {
  drain();
  if (driver().cuCtxPushCurrent(context_.handle()) != CUDA_SUCCESS) return;
  driver().cuStreamDestroy(stream_);
  CUcontext previous;
  driver().cuCtxPopCurrent(&previous);
}

void OrderedStream::drain() noexcept {
  context_.armed().cancel();
  if (driver().cuCtxPushCurrent(context_.handle()) != CUDA_SUCCESS) return;
  context_.note(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  CUcontext previous;
  driver().cuCtxPopCurrent(&previous);
}

}  // namespace exphil::cuda
