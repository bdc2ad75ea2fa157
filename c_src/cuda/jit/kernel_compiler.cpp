// Compiles with NVRTC; see kernel_compiler.hpp.
#include "cuda/jit/kernel_compiler.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>

#include "core/environment.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/device/settings.hpp"
#include "cuda/jit/disk_cache.hpp"

namespace exphil::cuda {
namespace {

using core::ErrorKind;
using core::fail;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    fail(ErrorKind::file_error, "", "cannot read the kernel source ", path,
         " (EXPHIL_NATIVE_KERNELS names the folder)");
  }
  return text;
}

// Adds the headers of a folder, named as kernels and host code include them: "kernels/common/formulas.cuh".
// Not std::filesystem's iterators: without memory those of libstdc++ end the process.
void read_headers(const std::string& folder, const std::string& name,
                  std::map<std::string, std::string>* headers) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  if (!entries) {
    fail(ErrorKind::file_error, "", "cannot list the kernels folder ", folder, ": ", std::strerror(errno),
         " (EXPHIL_NATIVE_KERNELS names it)");
  }
  while (const dirent* entry = readdir(entries.get())) {
    const std::string file = entry->d_name, path = folder + "/" + file, ending = ".cuh";
    if (file.front() == '.') continue;
    struct stat status {};
    if (lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {  // links to folders are not followed
      read_headers(path, name + file + "/", headers);
    } else if (file.size() > ending.size() &&
               file.compare(file.size() - ending.size(), ending.size(), ending) == 0) {
      (*headers)[name + file] = read_text(path);
    }
  }
}

void check_nvrtc(nvrtcResult result, const char* call) {
  if (result == NVRTC_SUCCESS) return;
  const ErrorKind kind =
      result == NVRTC_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::compile_failed;
  fail(kind, "", call, " failed: ", nvrtc().nvrtcGetErrorString(result), " (", static_cast<int>(result), ")");
}

std::vector<int> supported_architectures() {
  int count = 0;
  check_nvrtc(nvrtc().nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> architectures(static_cast<std::size_t>(count));
  check_nvrtc(nvrtc().nvrtcGetSupportedArchs(architectures.data()), "nvrtcGetSupportedArchs");
  return architectures;
}

// Sets --gpu-architecture: the device's own, or the newest one below it that NVRTC supports, as PTX.
void choose_architecture(int architecture, CompileInput* input) {
  int newest = 0;
  for (const int known : supported_architectures()) {
    if (known <= architecture) newest = std::max(newest, known);
  }
  if (newest == 0) {
    fail(ErrorKind::backend_unavailable, "", "NVRTC ", nvrtc().major, ".", nvrtc().minor, " (",
         nvrtc().library, ") no longer compiles for compute capability ", architecture / 10, ".",
         architecture % 10, ": install an older one");
  }
  input->ptx = newest != architecture;
  input->options.push_back(core::message("--gpu-architecture=", input->ptx ? "compute_" : "sm_", newest,
                                         compiles_warpgroups(architecture) && !input->ptx ? "a" : ""));
}

// NVRTC has destructors that run when the process ends, and a thread may compile then. What is registered
// after them runs before them: it keeps others from NVRTC, and waits for those who are inside.
class CompileGate {
 public:
  // Once the process ends, never returns.
  void enter() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !stopped_; });
    ++inside_;
  }
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  void stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.wait(lock, [&] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool stopped_ = false;
};

CompileGate& compile_gate() {
  static auto* const gate = new CompileGate;  // never destroyed
  return *gate;
}

// Around what a thread does with NVRTC, of which any part may have registered a destructor.
class InsideGate {
 public:
  InsideGate() { compile_gate().enter(); }
  ~InsideGate() {
    std::atexit([] { compile_gate().stop(); });
    compile_gate().leave();
  }
  InsideGate(const InsideGate&) = delete;
  InsideGate& operator=(const InsideGate&) = delete;
};

// NVRTC's program, destroyed on every exit path.
class Program {
 public:
  explicit Program(const CompileInput& input) {
    std::vector<const char*> names, texts;
    for (const auto& [name, text] : input.headers) {
      names.push_back(name.c_str());
      texts.push_back(text.c_str());
    }
    check_nvrtc(nvrtc().nvrtcCreateProgram(&program_, input.source.c_str(), input.file.c_str(),
                                           static_cast<int>(names.size()), texts.data(), names.data()),
                "nvrtcCreateProgram");
  }
  ~Program() { nvrtc().nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram handle() const { return program_; }

  std::string log() const {
    std::size_t size = 0;
    if (nvrtc().nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS || size == 0) return "";
    std::string text(size, '\0');
    if (nvrtc().nvrtcGetProgramLog(program_, text.data()) != NVRTC_SUCCESS) return "";
    text.resize(size - 1);  // NVRTC counts the terminator
    return text;
  }

  std::string image(bool ptx) const {
    std::size_t size = 0;
    check_nvrtc(ptx ? nvrtc().nvrtcGetPTXSize(program_, &size) : nvrtc().nvrtcGetCUBINSize(program_, &size),
                "nvrtcGetCUBINSize");
    std::string bytes(size, '\0');
    check_nvrtc(
        ptx ? nvrtc().nvrtcGetPTX(program_, bytes.data()) : nvrtc().nvrtcGetCUBIN(program_, bytes.data()),
        "nvrtcGetCUBIN");
    return bytes;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

}  // namespace

bool compiles_warpgroups(int architecture) {
  return architecture == 90 && nvrtc().major >= 12;
}

CompileInput prepare_compile(const KernelSpec& spec, int architecture) {
  const std::string directory = settings().kernels_directory;
  CompileInput input;
  input.file = spec.file;
  input.source = read_text(directory + "/" + spec.file);
  read_headers(directory, "kernels/", &input.headers);
  choose_architecture(architecture, &input);
  // No --use_fast_math: each kernel uses the fast intrinsics that its error bound allows.
  input.options.insert(input.options.end(), {"-std=c++17", "-default-device"});
  for (const std::string& define : spec.defines) input.options.push_back("-D" + define);
  // For profiling: EXPHIL_NATIVE_NVRTC_OPTIONS=-lineinfo lets ncu show source lines.
  std::istringstream words(core::environment("EXPHIL_NATIVE_NVRTC_OPTIONS"));
  for (std::string word; words >> word;) input.options.push_back(word);
  return input;
}

std::string cache_key(const CompileInput& input) {
  core::HashedParts parts;
  parts.add(core::message("nvrtc ", nvrtc().major, ".", nvrtc().minor, input.ptx ? " ptx" : " cubin"));
  parts.add(input.file);
  parts.add(input.source);
  parts.add(core::message(input.headers.size()));
  for (const auto& [name, header] : input.headers) parts.add(name), parts.add(header);
  for (const std::string& option : input.options) parts.add(option);
  return parts.hash128_hex();
}

std::string compile_inside(const CompileInput& input) {
  const InsideGate inside;
  const Program program(input);
  std::vector<const char*> options;
  for (const std::string& option : input.options) options.push_back(option.c_str());
  const nvrtcResult result =
      nvrtc().nvrtcCompileProgram(program.handle(), static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    std::string all;
    for (const std::string& option : input.options) all += " " + option;
    fail(ErrorKind::compile_failed, "", "NVRTC ", nvrtc().major, ".", nvrtc().minor, " refused ", input.file,
         " with", all, ": ", nvrtc().nvrtcGetErrorString(result), "\n", program.log());
  }
  return program.image(input.ptx);
}

// Most of NVRTC's destructors are registered by what is compiled first. A small kernel is sooner done.
void compile_small_kernel(const CompileInput& input) noexcept {
  try {
    CompileInput small;
    small.file = "small.cu", small.source = "extern \"C\" __global__ void small(float* p) { *p = expf(*p); }";
    small.options = {input.options.front()}, small.ptx = input.ptx;  // the architecture
    compile_inside(small);
  } catch (...) {  // what is wrong concerns the kernel behind it too
  }
}

std::string compile(const CompileInput& input) {
  // Not by std::call_once, whose thread-local data of libstdc++ would have to be static here: where JAX is
  // loaded there is no room for it.
  static const bool begun = (compile_small_kernel(input), true);
  (void)begun;
  return compile_inside(input);
}

std::string compile_to_cubin(const KernelSpec& spec, int architecture) {
  return compile(prepare_compile(spec, architecture));
}

std::string cached_image(const KernelSpec& spec, int architecture) {
  const CompileInput input = prepare_compile(spec, architecture);
  const DiskCache disk(settings().cache_directory);
  const std::string key = cache_key(input);
  if (std::optional<std::string> image = disk.load(key)) return *image;
  std::string image = compile(input);
  disk.store(key, image);
  return image;
}

}  // namespace exphil::cuda
