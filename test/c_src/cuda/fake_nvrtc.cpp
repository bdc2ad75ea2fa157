// A libnvrtc for tests without a GPU: compiles a kernel with the host's compiler, against the CUDA names of
// support/cuda_names.hpp, into a shared object with emulation/grid.cpp, which runs it
// (emulated_gpu.hpp). Opened through EXPHIL_NATIVE_LIBNVRTC. The library caches its output as it does
// NVRTC's. EXPHIL_TEST_COMPILER is the compiler with its flags and CUDA's names, EXPHIL_TEST_SOURCES the
// repository's root, EXPHIL_TEST_GRID the compiled emulation/grid.cpp; all come from the Makefile.
#include <nvrtc.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fake_cuda.hpp"

struct _nvrtcProgram {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string log, image;
};

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A hash of everything except the kernel that determines the output: the emulation itself.
int version_of_emulation() {
  const fs::path root = EXPHIL_TEST_SOURCES;
  std::string text = EXPHIL_TEST_COMPILER;
  for (const char* name : {"test/c_src/support/grid.hpp", "test/c_src/support/grid_run.hpp",
                           "test/c_src/emulation/grid.cpp", "test/c_src/support/cuda_names.hpp",
                           "test/c_src/support/associative_names.hpp", "c_src/core/half.hpp"}) {
    text += read(root / name);
  }
  return static_cast<int>(std::hash<std::string>()(text) % 1000000);
}

std::string compile(const _nvrtcProgram& program, const std::string& defines, std::string* log) {
  std::string name = (fs::temp_directory_path() / "exphil_emulated_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return "";
  const fs::path folder = name;
  for (const auto& [header, text] : program.headers) write(folder / header, text);
  write(folder / "kernel.cpp", program.source);
  const std::string command = std::string(EXPHIL_TEST_COMPILER) + " -shared -I" + name + defines + " " +
                              name + "/kernel.cpp " EXPHIL_TEST_GRID " -o " + name + "/kernel.so 2> " + name +
                              "/log";
  const bool good = std::system(command.c_str()) == 0;
  *log = good ? "" : command + "\n" + read(folder / "log");
  const std::string object = good ? read(folder / "kernel.so") : "";
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return object;
}

nvrtcResult copy(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = version_of_emulation();
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult) {
  return "as the fake NVRTC says";
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 80, architectures[1] = 90;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers,
                               const char* const* texts, const char* const* names) {
  *program = new _nvrtcProgram;
  (*program)->source = source;
  for (int i = 0; i < headers; ++i) (*program)->headers.emplace_back(names[i], texts[i]);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  std::string defines;
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], "-D", 2) == 0) defines += std::string(" ") + options[i];
  }
  const std::string object = compile(*program, defines, &program->log);
  if (object.empty()) return NVRTC_ERROR_COMPILATION;
  FakeImage header;
  std::memcpy(header.magic, kFakeImageMagic, sizeof(header.magic));
  header.bytes = object.size();
  program->image.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  program->image += object;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  *size = program->image.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* image) {
  return copy(program->image, image);
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) {
  return nvrtcGetCUBINSize(program, size);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* image) {
  return copy(program->image, image);
}

}  // extern "C"
