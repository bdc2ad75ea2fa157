// Every kernel that a device may be asked for compiles, for every supported architecture. Needs NVRTC, no
// device. Images are kept in a cache beside the test program, so that a second run compiles only what
// changed.
#include "cuda/kernel_variants.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
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
    return define.rfind("SPLIT=", 0) == 0 && define != "SPLIT=1";
  });
}

// All for sm_90. All for every architecture takes minutes on a small machine, so the others take the first
// of each file and a sixth of the rest, another sixth each: every variant is compiled for two at least.
// EXPHIL_TEST_ALL_VARIANTS=1 takes all for all.
std::vector<Job> choose_jobs() {
  std::map<std::pair<std::string, std::vector<std::string>>, std::size_t> places;
  std::vector<Job> images;
  for (const KernelSpec& spec : cuda::all_kernel_variants()) {
    const auto place = places.emplace(std::make_pair(spec.file, spec.defines), images.size());
    if (place.second) images.push_back({spec, {}, 0});
    images[place.first->second].entries.push_back(spec.entry);
  }
  const bool everything = std::getenv("EXPHIL_TEST_ALL_VARIANTS") != nullptr;
  const int others[] = {75, 80, 86, 89, 100, 120};
  std::vector<Job> jobs;
  std::set<std::string> files;
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i].architecture = 90;
    jobs.push_back(images[i]);
    const bool first = files.insert(images[i].spec.file).second;
    for (std::size_t k = 0; k < std::size(others); ++k) {
      if (!everything && !first && i % std::size(others) != k) continue;
      if (others[k] < 90 && needs_clusters(images[i].spec)) continue;
      images[i].architecture = others[k];
      // An NVRTC older than 12.8 does not know the newest: they get PTX, which has nothing of its own.
      if (others[k] > 90 && cuda::prepare_compile(images[i].spec, others[k]).ptx) continue;
      jobs.push_back(images[i]);
    }
  }
  return jobs;
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
        for (const std::string& entry : jobs[i].entries) {  // they stand in the image's symbol table
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

TEST_CASE("the list of variants names each once", "[cuda][variants]") {
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

TEST_CASE("every kernel variant compiles for every supported architecture", "[cuda][nvrtc][variants]") {
  if (!have_nvrtc()) return;
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = (program.parent_path() / "kernel_cache").string();
  const Environment cache("EXPHIL_NATIVE_CACHE", folder.c_str());
  const std::vector<Job> jobs = choose_jobs();
  const auto failures = compile_all(jobs);
  std::fprintf(stderr, "%zu kernel images compiled or found in %s, %zu failed\n", jobs.size(), folder.c_str(),
               failures.size());
  for (const std::string& failure : failures) {
    UNSCOPED_INFO(failure);
    CHECK(failure.empty());
  }
  CHECK(failures.empty());
}

}  // namespace
}  // namespace exphil::test
