// Whether compute-sanitizer's synccheck follows mbarriers in clusters of 16 blocks: the patterns of
// kernels/common/cell_walk.cuh (walk) and kernels/policy/step.cu (step), alone. bench/results/sanitizers.md
// has what it said of them. Not part of any build.
//
//   nvcc -std=c++17 -O3 -arch=sm_90a -lineinfo -o clusters test/sanitizers/clusters.cu
//   compute-sanitizer --tool synccheck clusters walk|walkb|step CLUSTER CLUSTERS SHARED_BYTES ROUNDS LAUNCHES
//   [pdl] [split] [early]
//
// - walk: two mbarriers of a block take turns; each round has one expect_tx of the block itself, and
//   st.async from all blocks of the cluster
// - walkb: the same by st.shared::cluster and a barrier of the cluster
// - step: some mbarriers, each with one cp.async.bulk of its own block; st.shared::cluster and barriers of
//   the cluster
// - pdl: programmatic stream serialization, as policy_cell_walk and policy_step_armed are launched
// - split: other barriers between barrier.cluster.arrive and barrier.cluster.wait
// - early: the first wait for an mbarrier comes before the first barrier of the cluster
//
// Exits with 0 after "ok" where every value is right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                           \
  do {                                                        \
    cudaError_t e_ = (call);                                  \
    if (e_ != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(e_)); \
      std::exit(2);                                           \
    }                                                         \
  } while (0)

constexpr int kBarriers = 5;  // of a step: input, output, three layers
constexpr int kCopy = 1024;   // bytes of each copy
extern __shared__ __align__(128) float shared_memory[];

__device__ __forceinline__ unsigned address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init(unsigned long long* b) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(b)) : "memory");
}
__device__ __forceinline__ void publish() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(unsigned long long* b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void await(const unsigned long long* b, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(address(b)), "r"(parity)
        : "memory");
  }
}
__device__ __forceinline__ unsigned in_block(const void* p, int rank) {
  unsigned remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address(p)), "r"(rank));
  return remote;
}
__device__ __forceinline__ void send(float4* to, int rank, float4 v, unsigned long long* b) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          in_block(to, rank)),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(in_block(b, rank))
      : "memory");
}
__device__ __forceinline__ void store(float4* to, int rank, float4 v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(in_block(to, rank)), "f"(v.x),
               "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
__device__ __forceinline__ void store(float* to, int rank, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(in_block(to, rank)), "f"(v) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void await_launch_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__host__ __device__ inline float next(float own, float other) {
  return 0.5f * own + 0.25f * other + 0.125f;
}

// A warp a block; a block has 4 units for each of 8 sequences, as a GRU of 64 units in 16 blocks has.
template <int C, bool kCounts>
__global__ void __cluster_dims__(C, 1, 1) __launch_bounds__(32, 1) walk(float* out, int rounds) {
  constexpr int kUnits = 4 * C, kSequences = 8;
  float* const states = shared_memory;  // {2, kSequences, kUnits}
  auto* const arrivals = reinterpret_cast<unsigned long long*>(states + 2 * kSequences * kUnits);
  const int rank = static_cast<int>(blockIdx.x) % C, lane = static_cast<int>(threadIdx.x);
  if (lane == 0 && kCounts) init(&arrivals[0]), init(&arrivals[1]), publish();
  await_launch_before();
  const int sequence = lane / 4, unit = rank * 4 + lane % 4;
  for (int i = lane; i < kSequences * kUnits; i += 32) states[i] = static_cast<float>(i % 7);
  cluster_sync();
  int buffer = 0;
  unsigned parity = 0;
  float value = 0;
  for (int left = rounds; left > 0; --left) {
    const float* from = states + (buffer * kSequences + sequence) * kUnits;
    value = next(from[unit], from[(unit + 5) % kUnits]);
    __syncthreads();
    if (left > 1) {
      const int first = lane / 4 * 4;
      float4 four;
      four.x = __shfl_sync(0xffffffffu, value, first), four.y = __shfl_sync(0xffffffffu, value, first + 1);
      four.z = __shfl_sync(0xffffffffu, value, first + 2),
      four.w = __shfl_sync(0xffffffffu, value, first + 3);
      auto* to =
          reinterpret_cast<float4*>(states + ((1 - buffer) * kSequences + sequence) * kUnits + rank * 4);
      for (int other = lane % 4; other < C; other += 4) {
        if constexpr (kCounts) {
          send(to, other, four, &arrivals[1 - buffer]);
        } else {
          store(to, other, four);
        }
      }
      buffer = 1 - buffer;
      if constexpr (kCounts) {
        if (lane == 0) expect(&arrivals[buffer], kSequences * kUnits * 4);
        await(&arrivals[buffer], parity >> buffer & 1u);
        parity ^= 1u << buffer;
      } else {
        cluster_sync();
      }
    }
  }
  out[(blockIdx.x / C * kSequences + sequence) * kUnits + unit] = value;
}

// 128 threads a block. Its copies' sums, of which each block has one value a round.
template <int C, bool kSplit, bool kEarly>
__global__ void __cluster_dims__(C, 1, 1) __launch_bounds__(128, 1)
    step(float* out, const char* weights, int rounds) {
  char* const staged = reinterpret_cast<char*>(shared_memory);
  float* const board = reinterpret_cast<float*>(staged + kBarriers * kCopy);  // {2, C}
  auto* const arrived = reinterpret_cast<unsigned long long*>(board + 2 * C);
  const int rank = static_cast<int>(blockIdx.x) % C, thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int i = 0; i < kBarriers; ++i) init(arrived + i);
    publish();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int i = 0; i < kBarriers; ++i) {
      expect(arrived + i, kCopy);
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              address(staged + i * kCopy)),
          "l"(__cvta_generic_to_global(weights + (rank * kBarriers + i) * kCopy)), "r"(kCopy),
          "r"(address(arrived + i))
          : "memory");
    }
  }
  __syncthreads();
  if (kEarly) await(arrived + 2, 0);
  cluster_sync();  // every block runs
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const int section = round % kBarriers;
    await(arrived + section, 0);
    const float mine = reinterpret_cast<const float*>(staged + section * kCopy)[thread];
    float* const here = board + round % 2 * C;
    if (thread < C)
      store(here + rank, thread, reinterpret_cast<const float*>(staged + section * kCopy)[round % 128]);
    if (kSplit) {
      cluster_arrive();
      __syncthreads();
      await(arrived + (section + 1) % kBarriers, 0);
      __syncthreads();
      cluster_wait();
    } else {
      cluster_sync();
    }
    float all = 0;
    for (int i = 0; i < C; ++i) all += here[i];
    sum += all + mine;
    if (kSplit) cluster_sync();
  }
  for (int i = 0; i < kBarriers; ++i) await(arrived + i, 0);
  out[blockIdx.x * 128 + thread] = sum;
}

template <class... Args>
void launch(void (*kernel)(Args...), int blocks, int threads, int shared, bool pdl, Args... args) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cudaLaunchConfig_t config{};
  config.gridDim = blocks, config.blockDim = threads, config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute, config.numAttrs = pdl ? 1 : 0;
  CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

template <int C>
int run(const std::string& kind, int clusters, int shared, int rounds, int launches, bool pdl, bool split,
        bool early) {
  const int blocks = C * clusters, units = 4 * C;
  std::vector<float> weights(C * kBarriers * kCopy / 4), found;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i * 37 % 101);
  float *out = nullptr, *on_device = nullptr;
  CHECK(cudaMalloc(&out, blocks * 128 * 4));
  CHECK(cudaMalloc(&on_device, weights.size() * 4));
  CHECK(cudaMemcpy(on_device, weights.data(), weights.size() * 4, cudaMemcpyHostToDevice));
  const char* bytes = reinterpret_cast<const char*>(on_device);
  for (int i = 0; i < launches; ++i) {
    if (kind == "walk") launch(&walk<C, true>, blocks, 32, shared, pdl, out, rounds);
    if (kind == "walkb") launch(&walk<C, false>, blocks, 32, shared, pdl, out, rounds);
    if (kind == "step") {
      auto* kernel = split ? (early ? &step<C, true, true> : &step<C, true, false>)
                           : (early ? &step<C, false, true> : &step<C, false, false>);
      launch(kernel, blocks, 128, shared, pdl, out, bytes, rounds);
    }
  }
  CHECK(cudaDeviceSynchronize());
  bool good = true;
  if (kind == "step") {
    found.resize(blocks * 128);
    CHECK(cudaMemcpy(found.data(), out, found.size() * 4, cudaMemcpyDeviceToHost));
    for (int b = 0; b < blocks; ++b) {
      for (int t = 0; t < 128; ++t) {
        float sum = 0;
        for (int r = 0; r < rounds; ++r) {
          const auto at = [&](int rank, int k) {
            return weights[(rank * kBarriers + r % kBarriers) * kCopy / 4 + k];
          };
          float all = 0;
          for (int i = 0; i < C; ++i) all += at(i, r % 128);
          sum += all + at(b % C, t);
        }
        good = good && sum == found[b * 128 + t];
      }
    }
  } else {
    found.resize(clusters * 8 * units);
    CHECK(cudaMemcpy(found.data(), out, found.size() * 4, cudaMemcpyDeviceToHost));
    for (int s = 0; s < 8; ++s) {
      std::vector<float> h(units), then(units);
      for (int u = 0; u < units; ++u) h[u] = static_cast<float>((s * units + u) % 7);
      for (int r = 0; r < rounds; ++r, h = then)
        for (int u = 0; u < units; ++u) then[u] = next(h[u], h[(u + 5) % units]);
      for (int c = 0; c < clusters; ++c)
        for (int u = 0; u < units; ++u)
          good = good && std::abs(found[(c * 8 + s) * units + u] - h[u]) < 1e-4f;
    }
  }
  std::puts(good ? "ok" : "WRONG VALUES");
  return good ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 7) return std::puts("see the file"), 1;
  const std::string kind = argv[1];
  const int c = std::atoi(argv[2]), n = std::atoi(argv[3]), rounds = std::atoi(argv[5]),
            launches = std::atoi(argv[6]);
  int shared = std::atoi(argv[4]);
  bool pdl = false, split = false, early = false;
  for (int i = 7; i < argc; ++i) {
    pdl = pdl || !std::strcmp(argv[i], "pdl"), split = split || !std::strcmp(argv[i], "split");
    early = early || !std::strcmp(argv[i], "early");
  }
  const int least = kind == "step" ? kBarriers * kCopy + 8 * c + 8 * kBarriers : 2 * 8 * 4 * c * 4 + 16;
  if (shared < least) shared = least;
  switch (c) {
    case 2:
      return run<2>(kind, n, shared, rounds, launches, pdl, split, early);
    case 8:
      return run<8>(kind, n, shared, rounds, launches, pdl, split, early);
    case 16:
      return run<16>(kind, n, shared, rounds, launches, pdl, split, early);
  }
  return 1;
}
