// Every kernel that a device may be asked for compiles, for every supported architecture. Needs NVRTC, no
// device. Images are kept in a cache beside the test program, so that a second run compiles only what
// changed.
#include "cuda/kernel_variants.hpp"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

#include "cuda/cuda_test.hpp"
#include "cuda/driver.hpp"
#include "cuda/kernel_compiler.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using cuda::KernelSpec;

struct Job {
  KernelSpec spec;
  int architecture;
};

std::string describe(const Job& job) {
  std::string text = job.spec.file + ":" + job.spec.entry + " sm_" + std::to_string(job.architecture);
  for (const std::string& define : job.spec.defines) text += " " + define;
  return text;
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
        // A kernel's name stands in its image's symbol table.
        if (!contains(image, jobs[i].spec.entry)) problem = "has no such entry";
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
  const Environment cache("EXPHIL_NATIVE_CACHE", (program.parent_path() / "kernel_cache").c_str());
  std::vector<Job> jobs;
  for (const KernelSpec& spec : cuda::all_kernel_variants()) {
    for (const int architecture : {75, 80, 86, 89, 90, 100, 120}) {
      // Older than NVRTC 12.8, it does not know the newest: they get PTX, which the run for 90 covers.
      if (architecture > 90 && cuda::prepare_compile(spec, architecture).ptx) continue;
      jobs.push_back({spec, architecture});
    }
  }
  const auto failures = compile_all(jobs);
  std::fprintf(stderr, "%zu kernels for the supported architectures, %zu failed\n", jobs.size(),
               failures.size());
  for (const std::string& failure : failures) {
    UNSCOPED_INFO(failure);
    CHECK(failure.empty());
  }
  CHECK(failures.empty());
}

}  // namespace
}  // namespace exphil::test
