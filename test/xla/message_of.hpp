// The function of XLA's table by which the message of an error is read: its name depends on the minor version
// of the header. Used by caller.cpp and substitute.cpp.
#pragma once

#include <xla/ffi/api/c_api.h>

#if XLA_FFI_API_MINOR >= 4
#define GET_MESSAGE XLA_FFI_Error_GetDetails
using GetMessageArgs = XLA_FFI_Error_GetDetails_Args;
#else
#define GET_MESSAGE XLA_FFI_Error_GetMessage
using GetMessageArgs = XLA_FFI_Error_GetMessage_Args;
#endif
