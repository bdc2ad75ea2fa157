// Calls handlers as an XLA of any minor version does, for test_calls.py: JAX itself has one version. The
// functions table that it passes ends after the last function of that version.
#include <xla/ffi/api/c_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "message_of.hpp"

struct XLA_FFI_Error {
  std::string message;
  XLA_FFI_Error_Code code;
};

namespace {

XLA_FFI_Error* create(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message, args->errc};
}
void destroy(XLA_FFI_Error_Destroy_Args* args) {
  delete args->error;
}

void get_message(GetMessageArgs* args) {
  args->message = args->error->message.c_str();
}

// The platform's stream; without one, and always without memory of its own, it is as the CPU.
void* the_stream = nullptr;

XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  if (the_stream == nullptr) {
    return new XLA_FFI_Error{"there is no stream", XLA_FFI_Error_Code_UNIMPLEMENTED};
  }
  args->stream = the_stream;
  return nullptr;
}
XLA_FFI_Error* no_memory(XLA_FFI_DeviceMemory_Allocate_Args*) {
  return new XLA_FFI_Error{"there is no memory", XLA_FFI_Error_Code_UNIMPLEMENTED};
}
XLA_FFI_Error* device_ordinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = 0;
  return nullptr;
}

// The table of minor version `minor`: version 1 ends before XLA_FFI_DeviceOrdinal_Get.
XLA_FFI_Api table_of(int minor) {
  XLA_FFI_Api api{};
  api.struct_size = minor >= 2 ? XLA_FFI_Api_STRUCT_SIZE : offsetof(XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
  api.api_version.major_version = XLA_FFI_API_MAJOR;
  api.api_version.minor_version = minor;
  api.XLA_FFI_Error_Create = create;
  api.GET_MESSAGE = get_message;
  api.XLA_FFI_Error_Destroy = destroy;
  api.XLA_FFI_Stream_Get = get_stream;
  api.XLA_FFI_DeviceMemory_Allocate = no_memory;
  // Beyond the end of an older table is other memory: a handler that reads it crashes.
  api.XLA_FFI_DeviceOrdinal_Get =
      minor >= 2 ? device_ordinal : reinterpret_cast<decltype(&device_ordinal)>(std::uintptr_t{1});
  return api;
}

std::string last_message;

}  // namespace

extern "C" {

// The stream of later calls.
__attribute__((visibility("default"))) void caller_stream(void* stream) {
  the_stream = stream;
}

// The handler's minor version and traits as XLA asks for them: 1000 minor + traits; -1 where it does not
// answer.
__attribute__((visibility("default"))) int caller_metadata(XLA_FFI_Handler* handler, int minor) {
  const XLA_FFI_Api api = table_of(minor);
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  frame.api = &api;
  if (handler(&frame) != nullptr) return -1;
  return 1000 * metadata.api_version.minor_version + static_cast<int>(metadata.traits);
}

// Calls exphil_scan_cumulative's handler on `count` floats in the execute stage (0: initialise). Null where
// it succeeds, else its message, valid until the next call.
__attribute__((visibility("default"))) const char* caller_cumsum(XLA_FFI_Handler* handler, int minor,
                                                                 int execute, float* x, float* y,
                                                                 std::int64_t count) {
  const XLA_FFI_Api api = table_of(minor);
  XLA_FFI_Buffer in{}, out{};
  in.struct_size = out.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
  in.dtype = out.dtype = XLA_FFI_DataType_F32;
  in.rank = out.rank = 1;
  in.dims = out.dims = &count;
  in.data = x, out.data = y;
  void* arguments[] = {&in};
  void* results[] = {&out};
  XLA_FFI_ArgType argument_types[] = {XLA_FFI_ArgType_BUFFER};
  XLA_FFI_RetType result_types[] = {XLA_FFI_RetType_BUFFER};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.stage = execute != 0 ? XLA_FFI_ExecutionStage_EXECUTE : XLA_FFI_ExecutionStage_INITIALIZE;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.args.size = 1;
  frame.args.types = argument_types;
  frame.args.args = arguments;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.rets.size = 1;
  frame.rets.types = result_types;
  frame.rets.rets = results;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  XLA_FFI_Error* error = handler(&frame);
  if (error == nullptr) return nullptr;
  last_message = error->message;
  delete error;
  return last_message.c_str();
}
}
