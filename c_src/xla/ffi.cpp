#include "xla/ffi.hpp"

#include <algorithm>
#include <new>
#include <type_traits>

#include "core/error.hpp"

namespace exphil::xla {

using core::ErrorKind;
using core::fail;

namespace {

// Whether the struct from XLA is new enough to have `field`.
#define EXPHIL_HAS_FIELD(pointer, type, field) ((pointer)->struct_size >= XLA_FFI_STRUCT_SIZE(type, field))

struct DtypePair {
  XLA_FFI_DataType xla;
  core::Dtype ours;
};
constexpr DtypePair kDtypes[] = {
    {XLA_FFI_DataType_F32, core::Dtype::f32},   {XLA_FFI_DataType_F16, core::Dtype::f16},
    {XLA_FFI_DataType_BF16, core::Dtype::bf16}, {XLA_FFI_DataType_C64, core::Dtype::c64},
    {XLA_FFI_DataType_F64, core::Dtype::f64},   {XLA_FFI_DataType_S32, core::Dtype::s32},
    {XLA_FFI_DataType_S64, core::Dtype::s64}};

core::TensorView view_of(const void* object, const std::string& name) {
  const auto* buffer = static_cast<const XLA_FFI_Buffer*>(object);
  const auto* pair = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [&](const DtypePair& p) { return p.xla == buffer->dtype; });
  if (pair == std::end(kDtypes)) {
    fail(ErrorKind::invalid_argument, name, name, " has the XLA element type ",
         static_cast<int>(buffer->dtype), ", which no operator supports");
  }
  core::TensorView view;
  view.dtype = pair->ours;
  for (std::int64_t i = 0; i < buffer->rank; ++i) view.shape.push_back(buffer->dims[i]);
  view.data = buffer->data;
  view.bytes = static_cast<std::size_t>(view.shape.elements(name)) * core::dtype_size(view.dtype);
  return view;
}

XLA_FFI_Error* make_error(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const char* message) noexcept {
  XLA_FFI_Error_Create_Args create{};
  create.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  create.message = message;
  create.errc = code;
  return api->XLA_FFI_Error_Create(&create);
}

XLA_FFI_Error_Code code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return XLA_FFI_Error_Code_INVALID_ARGUMENT;
    case ErrorKind::unsupported:
      return XLA_FFI_Error_Code_UNIMPLEMENTED;
    case ErrorKind::limit_exceeded:
      return XLA_FFI_Error_Code_OUT_OF_RANGE;
    case ErrorKind::out_of_memory:
      return XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    case ErrorKind::backend_unavailable:
    case ErrorKind::device_lost:
      return XLA_FFI_Error_Code_UNAVAILABLE;
    case ErrorKind::mismatch:
      return XLA_FFI_Error_Code_FAILED_PRECONDITION;
    default:
      return XLA_FFI_Error_Code_INTERNAL;
  }
}

// XLA calls a handler for its version and traits when it is registered. The version is the oldest with every
// field that is always used, so that every XLA from then on accepts the handler. Later fields are checked
// through the size of their structs.
bool answer_metadata(XLA_FFI_CallFrame* frame, XLA_FFI_Handler_Traits traits) {
  auto* extension = frame->extension_start;  // its type has another name from minor version 4 on
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = 1;
  metadata->traits = traits;
  return true;
}

// The type of the argument of a function of the API.
template <class Function>
struct ArgumentOf;
template <class Result, class Argument>
struct ArgumentOf<Result (*)(Argument*)> {
  using Type = Argument;
};

// Headers before that of jaxlib 0.7 have no XLA_FFI_DeviceOrdinal_Get, under the same minor version: only a
// dependent type may name it.
template <class Api, class = void>
struct Ordinal {
  static std::optional<int> get(const Api*, XLA_FFI_ExecutionContext*) { return std::nullopt; }
};
template <class Api>
struct Ordinal<Api, std::void_t<decltype(Api::XLA_FFI_DeviceOrdinal_Get)>> {
  static std::optional<int> get(const Api* api, XLA_FFI_ExecutionContext* context) {
    if (!EXPHIL_HAS_FIELD(api, Api, XLA_FFI_DeviceOrdinal_Get)) return std::nullopt;
    using Args = typename ArgumentOf<decltype(Api::XLA_FFI_DeviceOrdinal_Get)>::Type;
    Args get{};
    get.struct_size = XLA_FFI_STRUCT_SIZE(Args, device_ordinal);
    get.ctx = context;
    if (XLA_FFI_Error* error = api->XLA_FFI_DeviceOrdinal_Get(&get)) {
      take_message(api, error);
      return std::nullopt;
    }
    return get.device_ordinal;
  }
};

}  // namespace

std::string take_message(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  // Minor version 4 gave the function another name and its arguments one field more, in the same place.
#if XLA_FFI_API_MINOR >= 4
  XLA_FFI_Error_GetDetails_Args get{};
  get.struct_size = XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE;
  get.error = error;
  api->XLA_FFI_Error_GetDetails(&get);
#else
  XLA_FFI_Error_GetMessage_Args get{};
  get.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  get.error = error;
  api->XLA_FFI_Error_GetMessage(&get);
#endif
  const std::string words = get.message == nullptr ? "" : get.message;
  XLA_FFI_Error_Destroy_Args destroy{};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return words;
}

core::TensorView Frame::argument(std::int64_t index, const std::string& name) const {
  if (index >= arguments() || frame_->args.types[index] != XLA_FFI_ArgType_BUFFER) {
    fail(ErrorKind::invalid_argument, name, "the call has no argument ", index, " for ", name);
  }
  return view_of(frame_->args.args[index], name);
}

core::TensorView Frame::result(std::int64_t index, const std::string& name) const {
  if (index >= results() || frame_->rets.types[index] != XLA_FFI_RetType_BUFFER) {
    fail(ErrorKind::invalid_argument, name, "the call has no result ", index, " for ", name);
  }
  return view_of(frame_->rets.rets[index], name);
}

void* Frame::stream() const {
  XLA_FFI_Stream_Get_Args get{};
  get.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  get.ctx = frame_->ctx;
  if (XLA_FFI_Error* error = frame_->api->XLA_FFI_Stream_Get(&get)) {
    fail(ErrorKind::backend_unavailable, "",
         "XLA has no stream for this call: ", take_message(frame_->api, error));
  }
  return get.stream;
}

std::optional<int> Frame::device_ordinal() const {
  return Ordinal<XLA_FFI_Api>::get(frame_->api, frame_->ctx);
}

Scratch::Scratch(const Frame& frame, std::size_t bytes) : frame_(frame.frame_), bytes_(bytes) {
  if (bytes == 0) return;
  XLA_FFI_DeviceMemory_Allocate_Args allocate{};
  allocate.struct_size = XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE;
  allocate.ctx = frame_->ctx;
  allocate.size = bytes;
  allocate.alignment = 1;  // XLA's allocators align to 256 bytes and refuse a larger request
  if (XLA_FFI_Error* error = frame_->api->XLA_FFI_DeviceMemory_Allocate(&allocate)) {
    fail(ErrorKind::out_of_memory, "", "XLA has no device memory for ", bytes,
         " bytes of scratch: ", take_message(frame_->api, error));
  }
  data_ = allocate.data;
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  XLA_FFI_DeviceMemory_Free_Args free{};
  free.struct_size = XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE;
  free.ctx = frame_->ctx;
  free.size = bytes_;
  free.data = data_;
  if (XLA_FFI_Error* error = frame_->api->XLA_FFI_DeviceMemory_Free(&free)) take_message(frame_->api, error);
}

void require_result(const core::TensorView& view, const std::string& name, core::Dtype dtype,
                    const core::Shape& shape) {
  if (view.dtype == dtype && view.shape == shape) return;
  fail(ErrorKind::invalid_argument, name, "the result ", name, " must be ", core::dtype_name(dtype), " ",
       shape.to_string(), "; got ", core::dtype_name(view.dtype), " ", view.shape.to_string());
}

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, XLA_FFI_Handler_Traits traits, Body body) noexcept {
  if (answer_metadata(frame, traits)) return nullptr;
  try {
    body(Frame(frame));
    return nullptr;
  } catch (const core::Error& error) {
    return make_error(frame->api, code_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return make_error(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                      "the host has no memory left for this call");
  } catch (const std::exception& error) {
    return make_error(frame->api, XLA_FFI_Error_Code_INTERNAL, error.what());
  } catch (...) {
    return make_error(frame->api, XLA_FFI_Error_Code_INTERNAL, "an exception of an unknown type");
  }
}

}  // namespace exphil::xla
