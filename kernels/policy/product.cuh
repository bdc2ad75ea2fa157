// Matrix products of the policy over many rows (agents or frames): out = X W^T with a fused epilogue, in the
// canonical order of policy/dot.cuh. `product_few` keeps latency low where the results are few,
// `product_some` (policy/product_some.cuh) and `product_many` (policy/product_many.cuh) keep the FMA units
// busy where there are more of them.
//
// X: {rows, kK} with a row stride in floats, a multiple of 4. W: groups [kK / 4][kColumns] of four
// consecutive k of one column (policy/weights.cuh), columns padded with zeros to a multiple of 64; bias is
// padded too.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/math.cuh"
#include "kernels/policy/ptx.cuh"
#include "kernels/policy/row_layout.cuh"

namespace exphil {
namespace policy {

// What a layer has whose weights are so many bytes behind those of the first one: values, and a product.
__device__ __forceinline__ const float* of_layer(const float* first, long long bytes) {
  return first == nullptr ? first : first + bytes / 4;
}
__device__ __forceinline__ ProductMatrix of_layer(const ProductMatrix& first, long long bytes) {
  return {static_cast<const char*>(first.weights) + bytes, of_layer(first.bias, bytes),
          of_layer(first.row_scale, bytes), of_layer(first.row_sums, bytes)};
}

// A product of the network, and the last operations on a completed sum before it is written.
template <int kIndex>
struct PhaseProduct {
  static constexpr Product kProduct = kNetwork.products[kIndex];
  static constexpr int kK = size_of(kProduct.in), kOutputs = kNetwork.rows(kProduct);
  // Of what it reads.
  static constexpr Norm kNorm = kProduct.norm;
  static constexpr bool kNormed = kNorm != Norm::none, kCentres = kNetwork.centres(kProduct);
  static constexpr int kValues = kNetwork.counted(kProduct), kFirst = kNetwork.counted_first(kProduct);

  // What a result is added to. All of a thread's are loaded before it writes any: behind a store, which might
  // be to the same address, each load would wait for the one before it.
  static __device__ __forceinline__ float residual(const ProductArguments& args, long long row, int column) {
    return kProduct.adds ? args.residual[row * args.residual_stride + column] : 0.0f;
  }

  static __device__ __forceinline__ float apply(float sum, float bias, float scale, float residual,
                                                int column) {
    float value = sum;
    if constexpr (kNormed) {
      value = __fmaf_rn(sum, scale, bias);
    } else if constexpr (kProduct.biased) {
      value = __fadd_rn(sum, bias);
    }
    if constexpr (kProduct.adds) {
      value = __fadd_rn(value, residual);
    }
    return activated_column<kIndex>(value, column);
  }
};

// What rows_factors() reads of arguments, where a launch has several products.
struct NormArguments {
  float epsilon;
  int first_layer;
};

// The factors of kRows rows that the product reads, by a warp, whose loads are all under way before the first
// one is added up. row(i): the values of row number i.
template <class Epilogue, int kCounted, int kRows, class Row, class Arguments>
__device__ __forceinline__ void rows_factors_of(Row row, const Arguments& args,
                                                NormFactors (&factors)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    factors[i] = norm_factors<Epilogue::kNorm, kCounted, Epilogue::kK>(row(i), args.epsilon);
  }
}
template <class Epilogue, int kRows, class Row, class Arguments>
__device__ __forceinline__ void rows_factors(Row row, const Arguments& args, NormFactors (&factors)[kRows]) {
  if constexpr (Epilogue::kFirst != Epilogue::kValues) {
    if (args.first_layer != 0) return rows_factors_of<Epilogue, Epilogue::kFirst>(row, args, factors);
  }
  rows_factors_of<Epilogue, Epilogue::kValues>(row, args, factors);
}
template <class Epilogue, class Arguments>
__device__ __forceinline__ NormFactors row_factors(const float* x, const Arguments& args) {
  NormFactors factors[1];
  rows_factors<Epilogue>([&](int) { return x; }, args, factors);
  return factors[0];
}

// A sum of stored weights, with what its column has beside them; `mean` is that of its row of X.
template <class Epilogue>
__device__ __forceinline__ float completed(float sum, const ProductMatrix& matrix, int column, float mean) {
  return centred<Epilogue::kCentres>(sum, matrix.row_scale, matrix.row_sums, column, mean);
}

// What a product has beside its weights for one of the columns of a thread: loaded once, ahead of the sums,
// because each load behind a branch would be waited for. Epilogue: the product's.
struct ProductColumn {
  float bias = 0.0f, sum = 0.0f, scale = 1.0f;

  template <class Epilogue>
  static __device__ __forceinline__ ProductColumn of(const ProductMatrix& matrix, int column) {
    ProductColumn made;
    if (matrix.bias != nullptr) made.bias = __ldg(matrix.bias + column);
    if constexpr (Epilogue::kCentres) made.sum = __ldg(matrix.row_sums + column);
    if constexpr (kNetwork.row_scales()) made.scale = __ldg(matrix.row_scale + column);
    return made;
  }
  template <class Epilogue>
  __device__ __forceinline__ float value(float product, NormFactors norm, float residual, int column) const {
    return Epilogue::apply(centred<Epilogue::kCentres>(scaled(product, &scale, 0), sum, norm.mean), bias,
                           norm.scale, residual, column);
  }
};

// What completes the sums of a row, where a launch before has found it. Not by __ldg, which may have read
// before the launch that writes them has ended.
template <class Epilogue>
__device__ __forceinline__ NormFactors found_factors(const ProductArguments& args, long long row) {
  return {Epilogue::kNormed ? args.scale[row] : 1.0f,
          Epilogue::kCentres ? args.scale[args.rows + row] : 0.0f};
}
template <class Epilogue>
__device__ __forceinline__ void write_result(const ProductArguments& args, long long row, int column,
                                             float sum, NormFactors norm, float residual) {
  const float bias = args.bias == nullptr ? 0.0f : __ldg(args.bias + column);
  args.out[row * args.out_stride + column] =
      Epilogue::apply(completed<Epilogue>(sum, args, column, norm.mean), bias, norm.scale, residual, column);
}

// A block's tile of the results, and the thread's place in it.
class Tile {
 protected:
  __device__ __forceinline__ Tile(const ProductArguments& args, int rows, int columns)
      : args_(args),
        first_row_(static_cast<long long>(blockIdx.y) * rows),
        first_column_(static_cast<int>(blockIdx.x) * columns),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

  const ProductArguments& args_;
  const long long first_row_;
  const int first_column_, thread_, warp_, lane_;
};

// One of 32 columns whose kWarps warps share the segments: each makes all results of every kWarps-th segment,
// and of the block's results a thread has kMine, in rows that its warp alone writes.
class SplitTile : protected Tile {
 protected:
  __device__ __forceinline__ SplitTile(const ProductArguments& args, int rows) : Tile(args, rows, 32) {}

  // Adds the segments [first, first + kWarps), in order; parts[s].sums[row][column] are those of warp s.
  template <int kWarps, int kSegments, class Part, int kMine>
  __device__ __forceinline__ void add(int first, const Part* parts, float (&total)[kMine]) const {
#pragma unroll
    for (int s = 0; s < kWarps; ++s) {
      if (first + s >= kSegments) break;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        total[i] = __fadd_rn(total[i], parts[s].sums[warp_ + i * kWarps][lane_]);
      }
    }
  }

  // What completes the thread's results, besides their sums: loaded ahead of those.
  template <int kMine>
  struct Completion {
    ProductColumn column;
    NormFactors norms[kMine];
    float residuals[kMine];
  };
  // Before the launch before has ended.
  template <int kOutputs, class Epilogue, int kMine>
  __device__ __forceinline__ void load_column(Completion<kMine>& to) const {
    const int column = first_column_ + lane_;
    to.column = ProductColumn::of<Epilogue>(args_, column < kOutputs ? column : 0);
  }
  // And after it. kFindsNorms: the factors of the rows' norms, which are read otherwise.
  template <int kWarps, int kOutputs, class Epilogue, bool kFindsNorms, int kMine>
  __device__ __forceinline__ void load_rows(Completion<kMine>& to) const {
    const int column = first_column_ + lane_;
    const auto existing = [&](int i) {
      const long long row = row_of<kWarps>(i);
      return row < args_.rows ? row : args_.rows - 1;
    };
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      to.residuals[i] = column < kOutputs ? Epilogue::residual(args_, existing(i), column) : 0.0f;
    }
    if constexpr (kFindsNorms && Epilogue::kNormed) {
      rows_factors<Epilogue>([&](int i) { return args_.x + existing(i) * args_.x_stride; }, args_, to.norms);
    } else {
#pragma unroll
      for (int i = 0; i < kMine; ++i) to.norms[i] = found_factors<Epilogue>(args_, existing(i));
    }
  }
  template <int kWarps, int kOutputs, class Epilogue, int kMine>
  __device__ __forceinline__ void write(const float (&total)[kMine], const Completion<kMine>& by) const {
    const int column = first_column_ + lane_;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const long long row = row_of<kWarps>(i);
      if (row >= args_.rows || column >= kOutputs) return;
      args_.out[row * args_.out_stride + column] =
          by.column.template value<Epilogue>(total[i], by.norms[i], by.residuals[i], column);
    }
  }
  template <int kWarps>
  __device__ __forceinline__ long long row_of(int i) const {
    return first_row_ + warp_ + i * kWarps;
  }
};

template <int kK, int kTile>
struct alignas(16) FewTile {
  float xs[kTile][kK];
  float parts[kK / kSegment][kTile][kFewColumns];
  float norms[norm_values(kNetwork)][kTile];  // scales; means where a product centres
};

// Rows of X from `first` on, zeros beyond the last one; by kThreads threads.
template <int kThreads, int kK, int kTile>
__device__ __forceinline__ void load_rows(const ProductArguments& args, long long first,
                                          float (&to)[kTile][kK]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kK / 4; i += kThreads) {
    const int row = i / (kK / 4), k = i % (kK / 4) * 4;
    float4 value = make_float4(0, 0, 0, 0);
    if (first + row < args.rows)
      value = *reinterpret_cast<const float4*>(args.x + (first + row) * args.x_stride + k);
    *reinterpret_cast<float4*>(&to[row][k]) = value;
  }
}

// A block computes kTile rows and 32 columns; its warps share the segments, each lane has a column. Calls
// load(tile.xs) once, by all threads, and sink(row, column, value) once for each result.
template <int kK, int kOutputs, class Epilogue, int kTile, int kThreads, class Load, class Sink>
__device__ __forceinline__ void product_few_tile(const ProductArguments& args, FewTile<kK, kTile>& tile,
                                                 int column_tile, long long row_tile, Load load, Sink sink) {
  constexpr int kColumns = product_columns(kOutputs), kSegs = kK / kSegment, kWarps = kThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = column_tile * kFewColumns + lane;
  const long long first = row_tile * kTile;

  const auto* weights = static_cast<const Group*>(args.weights);
  Group held[kSegment / 4];  // the first segment's weights, loaded before X
#pragma unroll
  for (int j = 0; j < kSegment / 4; ++j) {
    if (warp < kSegs) held[j] = __ldg(weights + (warp * (kSegment / 4) + j) * kColumns + column);
  }
  const auto by = ProductColumn::of<Epilogue>(args, column < kOutputs ? column : 0);
  load(tile.xs);
  const auto exists = [&](int r) { return r < kTile && first + r < args.rows && column < kOutputs; };
  float residuals[divide_up(kTile, kWarps)];
#pragma unroll
  for (int i = 0; i < divide_up(kTile, kWarps); ++i) {
    const int r = warp + i * kWarps;
    residuals[i] = exists(r) ? Epilogue::residual(args, first + r, column) : 0.0f;
  }
  __syncthreads();

  for (int s = warp; s < kSegs; s += kWarps) {
    float sum[kTile] = {};
#pragma unroll
    for (int j = 0; j < kSegment / 4; ++j) {
      const float4 weight = widen(held[j]);
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        sum[r] = dot4(weight, *reinterpret_cast<const float4*>(&tile.xs[r][s * kSegment + 4 * j]), sum[r]);
      }
      if (s + kWarps < kSegs) {
        held[j] = __ldg(weights + ((s + kWarps) * (kSegment / 4) + j) * kColumns + column);
      }
    }
#pragma unroll
    for (int r = 0; r < kTile; ++r) tile.parts[s][r][lane] = sum[r];
  }
  if constexpr (Epilogue::kNormed) {
    for (int r = warp; r < kTile; r += kWarps) {
      const NormFactors norm = row_factors<Epilogue>(tile.xs[r], args);
      if (lane != 0) continue;
      tile.norms[0][r] = norm.scale;
      if constexpr (Epilogue::kCentres) tile.norms[1][r] = norm.mean;
    }
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < divide_up(kTile, kWarps); ++i) {
    const int r = warp + i * kWarps;
    if (!exists(r)) continue;
    const NormFactors norm{Epilogue::kNormed ? tile.norms[0][r] : 1.0f,
                           Epilogue::kCentres ? tile.norms[norm_values(kNetwork) - 1][r] : 0.0f};
    const float sum = add_segments<kSegs>(&tile.parts[0][r][lane], kTile * kFewColumns);
    sink(first + r, column, by.template value<Epilogue>(sum, norm, residuals[i], column));
  }
}

template <int kK, int kOutputs, class Epilogue>
__device__ __forceinline__ void product_few(const ProductArguments& args) {
  if constexpr (few_rows(kK) > 0) {
    constexpr int kTile = few_rows(kK), kThreads = few_threads(kK);
    __shared__ FewTile<kK, kTile> tile;
    begin_launch_after();
    product_few_tile<kK, kOutputs, Epilogue, kTile, kThreads>(
        args, tile, static_cast<int>(blockIdx.x), blockIdx.y,
        [&](auto& xs) {
          await_launch_before();  // of which X may be the result
          load_rows<kThreads>(args, static_cast<long long>(blockIdx.y) * kTile, xs);
        },
        [&](long long row, int column, float value) { args.out[row * args.out_stride + column] = value; });
  }
}

}  // namespace policy
}  // namespace exphil
