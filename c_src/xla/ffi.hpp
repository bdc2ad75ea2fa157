// XLA's foreign function interface for the handlers of this library: reads a call frame as typed values, and
// translates errors. Uses only the plain C header (xla/ffi/api/c_api.h): nothing links to XLA, whose
// functions are passed with each call. Part of priv/exphil_native_xla.so.
//
// Source: openxla/xla, xla/ffi/api/c_api.h (minor version 1 and later).
#pragma once

#include <xla/ffi/api/c_api.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::xla {

// One call of a handler. Views point into the frame's buffers, which are valid for the duration of the call;
// on CUDA they are device memory. Every reader throws core::Error (invalid_argument) that names the argument
// or attribute.
class Frame {
 public:
  explicit Frame(XLA_FFI_CallFrame* frame) : frame_(frame) {}

  bool executing() const { return frame_->stage == XLA_FFI_ExecutionStage_EXECUTE; }

  std::int64_t arguments() const { return frame_->args.size; }
  std::int64_t results() const { return frame_->rets.size; }
  core::TensorView argument(std::int64_t index, const std::string& name) const;
  core::TensorView result(std::int64_t index, const std::string& name) const;

  // Attributes by name; `otherwise` where absent. A number may be of any integer or floating type.
  std::string text(const char* name, const std::string& otherwise) const;
  // The words of a text, between spaces; none where it is absent.
  std::vector<std::string> words(const char* name) const;
  bool boolean(const char* name, bool otherwise) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  double number(const char* name, double otherwise) const;
  // Throws for an attribute that is not in `known`, a space-separated list.
  void require_known(std::string_view known) const;

  // XLA's stream: a CUstream on CUDA. Throws backend_unavailable where the platform has none.
  void* stream() const;
  // The device's number, where this XLA provides it (minor version 2 and later).
  std::optional<int> device_ordinal() const;

 private:
  friend class Scratch;
  const void* attribute(const char* name, XLA_FFI_AttrType type, const char* expected) const;
  const XLA_FFI_Scalar* scalar(const char* name) const;

  XLA_FFI_CallFrame* frame_;
};

// Device memory from XLA's allocator, for work queued on the call's stream. Freed at the end of the scope:
// the allocator reuses it in the stream's order.
class Scratch {
 public:
  Scratch(const Frame& frame, std::size_t bytes);  // throws out_of_memory
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  XLA_FFI_CallFrame* frame_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

// A result buffer must have exactly the dtype and shape that the call computes.
void require_result(const core::TensorView& view, const std::string& name, core::Dtype dtype,
                    const core::Shape& shape);

// The message of an error that XLA returned; destroys the error.
std::string take_message(const XLA_FFI_Api* api, XLA_FFI_Error* error);

using Body = void (*)(const Frame&);

// Runs `body` for a call of a handler, or returns the handler's version and traits where XLA asks for them.
// Null on success; otherwise an error with the message of core::Error.
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, XLA_FFI_Handler_Traits traits, Body body) noexcept;

}  // namespace exphil::xla
