// Every kernel variant that a device may need compiles, and every file for every generation of
// architectures. Needs NVRTC, no device. Images are kept in a cache next to the test program, so that a
// second run compiles only changed ones.
#include "cuda/kernel_variants.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "cuda/cuda_test.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/kernel_compiler.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using cuda::KernelSpec;

// The kernels differ where 8.0 and 9.0 begin, and clusters are refused below 9.0: of the supported
// architectures these take every such branch, and the oldest and the newest are among them.
constexpr int kArchitectures[] = {75, 80, 90, 120};
// Those for which EXPHIL_TEST_ALL_VARIANTS=1 compiles.
constexpr int kEveryArchitecture[] = {75, 80, 86, 89, 90, 100, 120};

// One compilation: the entries of a file that have the same defines share their image.
struct Job {
  KernelSpec spec;
  std::vector<std::string> entries;
  int architecture;
};

std::string describe(const Job& job) {
  std::string text = job.spec.file + " sm_" + std::to_string(job.architecture);
  for (const std::string& define : job.spec.defines) text += " " + define;
  return text;
}

bool needs_clusters(const KernelSpec& spec) {
  return std::any_of(spec.defines.begin(), spec.defines.end(), [](const std::string& define) {
    return define.rfind("CLUSTER_BLOCKS=", 0) == 0 && define != "CLUSTER_BLOCKS=1";
  });
}

// One job for each image: the entries of a file that have the same defines share theirs.
std::vector<Job> images() {
  std::map<std::pair<std::string, std::vector<std::string>>, std::size_t> places;
  std::vector<Job> jobs;
  for (const KernelSpec& spec : cuda::all_kernel_variants()) {
    const auto place = places.emplace(std::make_pair(spec.file, spec.defines), jobs.size());
    if (place.second) jobs.push_back({spec, {}, 0});
    jobs[place.first->second].entries.push_back(spec.entry);
  }
  return jobs;
}

// Whether the image is compiled for the architecture. An NVRTC older than 12.8 does not support the newest
// ones: they get PTX, which is not specific to them.
bool compiles_for(const Job& image, int architecture) {
  if (architecture < 90 && needs_clusters(image.spec)) return false;
  return architecture <= 90 || !cuda::prepare_compile(image.spec, architecture).ptx;
}

// A scan of full matrices whose loops the compiler unrolls over 32 states and their products: of a gradient
// 11 s for sm_75, and 22 s for the four architectures, a quarter of what all files take. The other images of
// these files, with 5 states and every operand, take 0.1 s.
bool takes_seconds(const KernelSpec& spec) {
  const bool matrix = spec.file == "scan/matrix.cu" || spec.file == "scan/backward_matrix.cu";
  return matrix && std::count(spec.defines.begin(), spec.defines.end(), "STATE=32") != 0;
}

// Every file of the list for each of kArchitectures: the first of its images that supports the architecture
// and does not take seconds. ("every kernel variant compiles" takes those for sm_90.)
std::vector<Job> one_of_each_file(const std::vector<Job>& images) {
  std::vector<Job> jobs;
  std::set<std::pair<std::string, int>> done;
  for (const Job& image : images) {
    if (takes_seconds(image.spec)) continue;
    for (const int architecture : kArchitectures) {
      if (done.count({image.spec.file, architecture}) != 0 || !compiles_for(image, architecture)) continue;
      done.insert({image.spec.file, architecture});
      jobs.push_back({image.spec, image.entries, architecture});
    }
  }
  return jobs;
}

// Every image for every architecture.
std::vector<Job> every_image_everywhere(const std::vector<Job>& images) {
  std::vector<Job> jobs;
  for (const Job& image : images) {
    for (const int architecture : kEveryArchitecture) {
      if (compiles_for(image, architecture)) jobs.push_back({image.spec, image.entries, architecture});
    }
  }
  return jobs;
}

// Every image for sm_90: in two parts, of which the first one has an image of each file.
std::pair<std::vector<Job>, std::vector<Job>> every_image(const std::vector<Job>& images) {
  std::pair<std::vector<Job>, std::vector<Job>> parts;
  std::set<std::pair<std::string, std::vector<std::string>>> done;
  for (const Job& job : one_of_each_file(images)) {
    if (job.architecture != 90) continue;
    done.emplace(job.spec.file, job.spec.defines);
    parts.first.push_back(job);
  }
  for (const Job& image : images) {
    if (done.count({image.spec.file, image.spec.defines}) != 0) continue;
    parts.second.push_back({image.spec, image.entries, 90});
  }
  return parts;
}

// Compiles all of them on every core; returns a line for each that failed.
std::vector<std::string> compile_all(const std::vector<Job>& jobs) {
  std::vector<std::string> failures;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < jobs.size();) {
      std::string problem;
      try {
        const std::string image = cuda::cached_image(jobs[i].spec, jobs[i].architecture);
        for (const std::string& entry : jobs[i].entries) {  // they are in the image's symbol table
          if (!contains(image, ".text." + entry)) problem = "has no entry " + entry;
        }
      } catch (const std::exception& error) {
        problem = error.what();
      }
      if (problem.empty()) continue;
      std::lock_guard<std::mutex> lock(mutex);
      failures.push_back(describe(jobs[i]) + ": " + problem);
    }
  };
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (auto& thread : threads) thread = std::thread(work);
  for (auto& thread : threads) thread.join();
  return failures;
}

TEST_CASE("the list of variants names each once", "[cuda][kernel_files]") {
  const auto variants = cuda::all_kernel_variants();
  CHECK(variants.size() > 10);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const bool same = variants[i].file == variants[k].file && variants[i].entry == variants[k].entry &&
                        variants[i].defines == variants[k].defines;
      CHECK_FALSE(same);
    }
  }
}

// Compiles them all, or loads them from the cache next to this program.
void check_all(const std::vector<Job>& jobs) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = (program.parent_path() / "kernel_cache").string();
  const Environment cache("EXPHIL_NATIVE_CACHE", folder.c_str());
  const auto failures = compile_all(jobs);
  std::fprintf(stderr, "%zu kernel images compiled or found in %s, %zu failed\n", jobs.size(), folder.c_str(),
               failures.size());
  for (const std::string& failure : failures) {
    UNSCOPED_INFO(failure);
    CHECK(failure.empty());
  }
  CHECK(failures.empty());
}

TEST_CASE("every kernel file compiles for every generation of architectures", "[cuda][nvrtc][kernel_files]") {
  if (!have_nvrtc()) return;
  const std::vector<Job> all = images(), jobs = one_of_each_file(all);
  std::set<std::string> files, compiled;
  for (const Job& image : all) files.insert(image.spec.file);
  for (const Job& job : jobs) compiled.insert(job.spec.file);
  CHECK(compiled == files);
  check_all(jobs);
}

// The option with which NVRTC optimises least, or "" where this NVRTC, an older one, does not know it.
const char* least_optimisation() {
  const char* const option = "--Ofast-compile=max";
  const Environment options("EXPHIL_NATIVE_NVRTC_OPTIONS", option);
  try {
    cuda::compile_to_cubin({"common/convert.cu", "convert_widen", {"ELEMENT=1"}}, 90);
    return option;
  } catch (const core::Error&) {
    return "";
  }
}

// Takes minutes, so it is hidden from the ordinary run; `make test_variants` runs it. An image of each file
// is compiled as it is used. Of the others NVRTC's front end takes a tenth of the time: they differ in what
// is instantiated and asserted, and are optimised as little as possible, which takes half of the CPU (117 s
// instead of 234). EXPHIL_TEST_ALL_VARIANTS=1 compiles all of them as they are used, for every architecture.
TEST_CASE("every kernel variant compiles", "[cuda][nvrtc][.variants]") {
  if (!have_nvrtc()) return;
  const std::vector<Job> all = images();
  if (std::getenv("EXPHIL_TEST_ALL_VARIANTS") != nullptr) return check_all(every_image_everywhere(all));
  const auto [first, others] = every_image(all);
  CHECK(first.size() + others.size() == all.size());
  check_all(first);
  const Environment options("EXPHIL_NATIVE_NVRTC_OPTIONS", least_optimisation());
  check_all(others);
}

}  // namespace
}  // namespace exphil::test
