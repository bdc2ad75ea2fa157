#include "core/error.hpp"

namespace exphil::core {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid_argument";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::limit_exceeded:
      return "limit_exceeded";
    case ErrorKind::invalid_checkpoint:
      return "invalid_checkpoint";
    case ErrorKind::file_error:
      return "file_error";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::invalid_state:
      return "invalid_state";
    case ErrorKind::backend_unavailable:
      return "backend_unavailable";
    case ErrorKind::compile_failed:
      return "compile_failed";
    case ErrorKind::out_of_memory:
      return "out_of_memory";
    case ErrorKind::device_lost:
      return "device_lost";
    case ErrorKind::cuda_error:
      return "cuda_error";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

}  // namespace exphil::core
