// Compiling with NVRTC and the cache on disk: needs NVRTC, no device.
#include "cuda/jit/kernel_compiler.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "cuda/cuda_test.hpp"
#include "cuda/jit/disk_cache.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using cuda::cache_key;
using cuda::DiskCache;
using cuda::KernelSpec;
using cuda::prepare_compile;

const char* const kSource =
    "#include \"kernels/factor.cuh\"\n"
    "extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= FACTOR * OFFSET; }\n";
const KernelSpec kScale = {"scale.cu", "scale", {"OFFSET=3"}};

// A separate kernels folder and cache folder, used by every compile in its scope.
struct Workshop {
  Workshop() {
    kernels.write("factor.cuh", "#pragma once\n#define FACTOR 2.0f\n");
    kernels.write("scale.cu", kSource);
  }
  std::string only_cache_file() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(cache.path())) {
      files.push_back(entry.path().string());
    }
    REQUIRE(files.size() == 1);
    return files[0];
  }
  Folder kernels, cache;
  Environment kernels_variable{"EXPHIL_NATIVE_KERNELS", kernels.path().c_str()};
  Environment cache_variable{"EXPHIL_NATIVE_CACHE", cache.path().c_str()};
};

bool is_elf(const std::string& image) {
  return image.compare(0, 4,
                       "\x7f"
                       "ELF") == 0;
}

TEST_CASE("the disk cache returns what was stored, or nothing", "[cuda][disk_cache]") {
  const Folder folder;
  const DiskCache cache(folder.file("made/when/needed"));
  CHECK_FALSE(cache.load("key"));
  const std::string image("binary\0image\n", 13);
  REQUIRE(cache.store("key", image));
  CHECK(cache.load("key") == image);
  CHECK_FALSE(cache.load("other"));

  const std::string file = read_file(cache.path("key"));
  const Folder damaged;
  const DiskCache broken(damaged.path());
  for (std::size_t length = 0; length < file.size(); ++length) {  // truncated at every length
    damaged.write("key.bin", file.substr(0, length));
    CHECK_FALSE(broken.load("key"));
  }
  for (std::size_t at = 0; at < file.size(); ++at) {  // every byte damaged
    std::string changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    damaged.write("key.bin", changed);
    CHECK_FALSE(broken.load("key"));
  }
}

TEST_CASE("a cache that cannot be written stores nothing, without an error", "[cuda][disk_cache]") {
  CHECK_FALSE(DiskCache("").store("key", "image"));
  CHECK_FALSE(DiskCache("").load("key"));
  const Folder folder;
  folder.write("file", "not a folder");
  CHECK_FALSE(DiskCache(folder.file("file")).store("key", "image"));
  CHECK_FALSE(DiskCache(folder.file("file/below")).store("key", "image"));
  CHECK_FALSE(DiskCache(folder.file("file")).load("key"));
  if (geteuid() != 0) {  // root may write anywhere
    chmod(folder.path().c_str(), 0500);
    CHECK_FALSE(DiskCache(folder.path()).store("key", "image"));
    chmod(folder.path().c_str(), 0700);
  }
}

TEST_CASE("an entry that is not a regular file of this user counts as absent", "[cuda][disk_cache]") {
  const Folder folder;
  const DiskCache cache(folder.path());
  REQUIRE(cache.store("good", "image"));
  const auto place = [&](const std::string& key) { return cache.path(key); };
  REQUIRE(::mkfifo(place("pipe").c_str(), 0600) == 0);
  REQUIRE(::mkdir(place("folder").c_str(), 0700) == 0);
  REQUIRE(::symlink("/dev/zero", place("endless").c_str()) == 0);
  REQUIRE(::symlink(place("good").c_str(), place("link").c_str()) == 0);
  for (const char* key : {"pipe", "folder", "endless", "link"}) {
    INFO(key);
    CHECK_FALSE(cache.load(key));
  }
  // Replaces a link or a pipe; the target of a link is unchanged.
  CHECK(cache.store("link", "other"));
  CHECK(cache.store("pipe", "other"));
  CHECK(cache.load("link") == "other");
  CHECK(cache.load("pipe") == "other");
  CHECK(cache.load("good") == "image");
  CHECK_FALSE(cache.store("folder", "other"));

  // Larger than any kernel; a sparse file.
  REQUIRE(::truncate(place("good").c_str(), static_cast<off_t>(DiskCache::kMaxBytes) + 1) == 0);
  CHECK_FALSE(cache.load("good"));
  REQUIRE(cache.store("good", "image"));
  CHECK(cache.load("good") == "image");
  REQUIRE(::chmod(place("good").c_str(), 0666) == 0);  // anybody may have written it
  CHECK_FALSE(cache.load("good"));
}

TEST_CASE("a folder that others can write, or of another user, is refused with the reason",
          "[cuda][disk_cache]") {
  const Folder folder;
  const DiskCache cache(folder.file("kernels"));
  CHECK(cache.refusal().empty());
  REQUIRE(cache.store("key", "image"));
  struct stat status {};
  REQUIRE(::stat(folder.file("kernels").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(cache.refusal().empty());
  for (const mode_t mode : {0720, 0702, 01777}) {
    REQUIRE(::chmod(folder.file("kernels").c_str(), mode) == 0);
    CHECK(cache.refusal().find("can be written by other users") != std::string::npos);
    CHECK_FALSE(cache.load("key"));
    CHECK_FALSE(cache.store("other", "image"));
  }
  REQUIRE(::chmod(folder.file("kernels").c_str(), 0755) == 0);
  CHECK(cache.load("key") == "image");
  CHECK(DiskCache("").refusal().empty());
  CHECK(DiskCache(folder.file("absent")).refusal().empty());
  if (::geteuid() == 0) {  // only root can give a folder away
    REQUIRE(::chown(folder.file("kernels").c_str(), 12345, static_cast<gid_t>(-1)) == 0);
    CHECK(cache.refusal().find("belongs to user 12345") != std::string::npos);
    CHECK_FALSE(cache.load("key"));
  }
}

TEST_CASE("many writers of one key leave one good file", "[cuda][disk_cache]") {
  const Folder folder;
  const DiskCache cache(folder.path());
  const std::string image(200000, 'i');
  std::vector<std::thread> threads;
  bool good[8];
  for (int i = 0; i < 8; ++i) {
    good[i] = true;
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const bool stored = cache.store("key", image);
        good[i] = good[i] && stored && cache.load("key") == image;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const bool one : good) CHECK(one);
  const auto files = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);  // no temporaries
}

TEST_CASE("a kernel compiles for a real architecture, and as PTX for a newer one", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  CHECK(is_elf(cuda::compile_to_cubin(kScale, 90)));
  const cuda::CompileInput newer = prepare_compile(kScale, 999);
  CHECK(newer.ptx);
  const std::string ptx = cuda::compile(newer);
  CHECK(contains(ptx, ".visible .entry scale"));
  CHECK(contains(ptx, ".target sm_"));
  const core::Error error = thrown_by([] { cuda::compile_to_cubin(kScale, 20); });
  CHECK(error.kind() == ErrorKind::backend_unavailable);
  CHECK(contains(error.what(), "compute capability 2.0"));
}

TEST_CASE("a kernel that does not compile gives NVRTC's log", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  workshop.kernels.write("bad.cu", "extern \"C\" __global__ void bad() { int x = undeclared_name; }\n");
  const core::Error error = thrown_by([] { cuda::cached_image({"bad.cu", "bad", {"N=4"}}, 90); });
  CHECK(error.kind() == ErrorKind::compile_failed);
  for (const char* part : {"bad.cu", "sm_90", "-DN=4", "undeclared_name", "bad.cu(1): error"}) {
    INFO(error.what());
    CHECK(contains(error.what(), part));
  }
  CHECK(std::filesystem::is_empty(workshop.cache.path()));
}

TEST_CASE("a kernel file or folder that does not exist is named", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  const core::Error error = thrown_by([] { cuda::compile_to_cubin({"absent.cu", "absent", {}}, 90); });
  CHECK(error.kind() == ErrorKind::file_error);
  CHECK(contains(error.what(), workshop.kernels.file("absent.cu")));
  CHECK(contains(error.what(), "EXPHIL_NATIVE_KERNELS"));
  const Environment nowhere("EXPHIL_NATIVE_KERNELS", "/nowhere/at/all");
  CHECK(thrown_by([] { cuda::compile_to_cubin(kScale, 90); }).kind() == ErrorKind::file_error);
}

TEST_CASE("the key covers source, headers, options and architecture", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  const std::string key = cache_key(prepare_compile(kScale, 90));
  CHECK(key.size() == 32);
  CHECK(cache_key(prepare_compile(kScale, 90)) == key);
  std::set<std::string> keys = {key};
  const auto add = [&](const KernelSpec& spec, int architecture) {
    CHECK(keys.insert(cache_key(prepare_compile(spec, architecture))).second);
  };
  add(kScale, 80);
  add(kScale, 999);
  add({"scale.cu", "scale", {"OFFSET=4"}}, 90);
  add({"scale.cu", "scale", {"OFFSET=3", "X=1"}}, 90);
  workshop.kernels.write("factor.cuh", "#pragma once\n#define FACTOR 2.5f\n");
  add(kScale, 90);
  workshop.kernels.write("another.cuh", "");
  add(kScale, 90);
  workshop.kernels.write("scale.cu", std::string(kSource) + "\n");
  add(kScale, 90);
  const Environment options("EXPHIL_NATIVE_NVRTC_OPTIONS", "-lineinfo");
  add(kScale, 90);
}

TEST_CASE("the second compile comes from disk, a damaged file is compiled again", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  const std::string image = cuda::cached_image(kScale, 90);
  CHECK(is_elf(image));
  const std::string path = workshop.only_cache_file();
  const std::string good = read_file(path);

  // Another image in the file: the result shows that it came from disk.
  const std::string name = std::filesystem::path(path).stem().string();
  REQUIRE(DiskCache(workshop.cache.path()).store(name, "planted"));
  CHECK(cuda::cached_image(kScale, 90) == "planted");

  for (const std::string& damaged : {good.substr(0, good.size() / 2), good + "x", std::string()}) {
    workshop.cache.write(name + ".bin", damaged);
    CHECK(is_elf(cuda::cached_image(kScale, 90)));
    CHECK(read_file(workshop.only_cache_file()).size() == good.size());
  }
}

TEST_CASE("without a cache folder kernels still compile", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  const Environment cache("EXPHIL_NATIVE_CACHE", "/proc/no/such/folder");
  CHECK(is_elf(cuda::cached_image(kScale, 90)));
}

TEST_CASE("threads compile different and equal kernels at the same time", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  const Workshop workshop;
  std::vector<std::string> images(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < images.size(); ++i) {
    threads.emplace_back([&images, i] {
      const std::string define = "OFFSET=" + std::to_string(i / 2);
      images[i] = cuda::cached_image({"scale.cu", "scale", {define}}, 90);
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < images.size(); i += 2) {
    CHECK(is_elf(images[i]));
    CHECK(images[i] == images[i + 1]);
  }
}

// Of the process of the next test.
TEST_CASE("a process ends while its threads compile kernels", "[.compiles_at_exit]") {
  static std::promise<void> begun;
  static std::atomic<int> compiled{0};
  for (int i = 0; i < 3; ++i) {
    std::thread([] {
      for (;;) {
        cuda::compile_to_cubin({"common/convert.cu", "convert_widen", {"ELEMENT=1"}}, 90);
        if (++compiled == 2) begun.set_value();
      }
    }).detach();
  }
  begun.get_future().wait();
  std::exit(0);
}

TEST_CASE("a process may end while kernels compile", "[cuda][nvrtc]") {
  if (!have_nvrtc()) return;
  require_passed(run_with_slow_exit("[.compiles_at_exit]"));
}

}  // namespace
}  // namespace exphil::test
