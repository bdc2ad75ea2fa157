// A substitute for the XLA inside EXLA, for test_registration.py: it exports the symbol by which the library
// finds XLA's FFI, and records what is registered. Compiled with -DREFUSE it refuses every handler.
#include <xla/ffi/api/c_api.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "message_of.hpp"

namespace {

std::string& record() {
  static auto* text = new std::string;
  return *text;
}

XLA_FFI_Error* register_handler(XLA_FFI_Handler_Register_Args* args) {
#ifdef REFUSE
  static int error;
  return reinterpret_cast<XLA_FFI_Error*>(&error);
#endif
  const auto text = [](XLA_FFI_ByteSpan span) { return std::string(span.ptr, span.len); };
  record() += text(args->name) + " " + text(args->platform) + " traits=" + std::to_string(args->traits) +
              (args->bundle.initialize != nullptr ? " initialize" : "") +
              (args->bundle.execute != nullptr ? " execute" : "") + "\n";
  return nullptr;
}

void get_message(GetMessageArgs* args) {
  args->message = "the substitute refuses it";
}
void destroy(XLA_FFI_Error_Destroy_Args*) {}

const XLA_FFI_Api* api() {
  static XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  api.api_version.major_version = XLA_FFI_API_MAJOR;
  api.api_version.minor_version = XLA_FFI_API_MINOR;
  api.XLA_FFI_Handler_Register = register_handler;
  api.GET_MESSAGE = get_message;
  api.XLA_FFI_Error_Destroy = destroy;
  return &api;
}

}  // namespace

namespace xla::ffi {
#ifndef NO_API
__attribute__((visibility("default"))) const XLA_FFI_Api* GetXlaFfiApi() {
  return api();
}
#endif
}  // namespace xla::ffi

extern "C" __attribute__((visibility("default"))) const char* registered_handlers() {
  return record().c_str();
}
