// A libnvrtc for tests without a GPU: kernels are compiled with the host's compiler, against the CUDA names
// of support/cuda_names.hpp, into shared objects, which emulation/grid.cpp runs. Opened through
// EXPHIL_NATIVE_LIBNVRTC. A policy is loaded with more kernels than a test launches, so that a kernel is
// compiled when it is launched (fake_nvrtc.hpp); until then its image is the text that says how. The sources
// and the objects are kept beside what the library caches itself, in EXPHIL_NATIVE_CACHE.
// EXPHIL_TEST_COMPILER is the compiler with its flags and CUDA's names, EXPHIL_TEST_SOURCES the repository's
// root; both come from the Makefile.
#include "cuda/fake_nvrtc.hpp"

#include <nvrtc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
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

bool write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return !file.fail();
}

std::string hash_of(const std::string& text) {
  return std::to_string(std::hash<std::string>()(text));
}

// A hash of everything except the kernel that determines the output: the emulation itself.
int version_of_emulation() {
  const fs::path root = EXPHIL_TEST_SOURCES;
  std::string text = EXPHIL_TEST_COMPILER;
  for (const char* name : {"test/c_src/support/grid.hpp", "test/c_src/support/cuda_names.hpp",
                           "test/c_src/support/cuda_blocks.hpp", "test/c_src/support/associative_names.hpp",
                           "c_src/core/half.hpp"}) {
    text += read(root / name);
  }
  return static_cast<int>(std::hash<std::string>()(text) % 1000000);
}

// Unique among the threads and the processes of this host.
fs::path temporary(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.string() + "." + std::to_string(getpid()) + "." + std::to_string(counter++);
}

// Makes `path` by make(a temporary path) unless it exists. Two that make it at once make the same.
template <class Make>
bool have(const fs::path& path, const Make& make) {
  std::error_code failed;
  if (fs::exists(path)) return true;
  const fs::path made = temporary(path);
  if (make(made)) fs::rename(made, path, failed);
  fs::remove_all(made, failed);
  return fs::exists(path);
}

// The kernel's source in a folder with its headers; "" where they cannot be written.
std::string keep_sources(const _nvrtcProgram& program) {
  const char* const cache = std::getenv("EXPHIL_NATIVE_CACHE");
  if (cache == nullptr) return "";
  std::string all;
  for (const auto& [name, text] : program.headers) all += name + "\n" + text;
  const fs::path folder = fs::path(cache) / ("sources_" + hash_of(all));
  const fs::path kernel = folder / (hash_of(program.source) + ".cpp");
  const bool good = have(folder, [&](const fs::path& made) {
    for (const auto& [name, text] : program.headers) {
      if (!write(made / name, text)) return false;
    }
    return true;
  });
  return good && have(kernel, [&](const fs::path& made) { return write(made, program.source); })
             ? kernel.string()
             : "";
}

// An image is the arguments for the compiler: macros and the source.
std::string object_of(const std::string& image, std::string* log) {
  const fs::path source = image.substr(image.rfind(' ') + 1), folder = source.parent_path();
  const fs::path object =
      folder / (hash_of(image + std::to_string(version_of_emulation())) + "_" + hash_of(image + " ") + ".so");
  const bool good = have(object, [&](const fs::path& made) {
    const std::string command = EXPHIL_TEST_COMPILER " -I" + folder.string() + image + " -o " +
                                made.string() + " 2> " + made.string() + ".log";
    const bool compiled = std::system(command.c_str()) == 0;
    if (!compiled) *log = command + "\n" + read(made.string() + ".log");
    fs::remove(made.string() + ".log");
    return compiled;
  });
  return good ? object.string() : "";
}

nvrtcResult copy(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

FakeNvrtc fake_nvrtc{object_of, run_emulated_grid};

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = version_of_emulation();
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult) {
  return "as the fake NVRTC says";
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  architectures[0] = 75, architectures[1] = 80, architectures[2] = 90;
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
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], "-D", 2) == 0) text += " '" + std::string(options[i]) + "'";
  }
  const std::string source = keep_sources(*program);
  if (source.empty()) {
    program->log = "the sources cannot be kept in EXPHIL_NATIVE_CACHE";
    return NVRTC_ERROR_COMPILATION;
  }
  text += " " + source;
  FakeImage header;
  std::memcpy(header.magic, kFakeImageMagic, sizeof(header.magic));
  header.bytes = text.size();
  program->image.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  program->image += text;
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
