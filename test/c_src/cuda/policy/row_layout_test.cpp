// Where the kernels over many rows keep a network's vectors, and which phases share a launch
// (kernels/policy/row_layout.cuh).
#include "kernels/policy/row_layout.cuh"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "cuda/policy/dims.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/rows.hpp"
#include "kernels/policy/batch_frame_layout.cuh"
#include "kernels/policy/cell_batch_layout.cuh"
#include "support/catch.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"

namespace exphil::cuda {
namespace {

using policy::Kind;
using policy::kNoPhase;

policy::Network network(core::mamba1::InputDt input_dt) {
  core::mamba1::Config config;
  config.d_model = 67, config.d_inner = 131, config.d_state = 17, config.d_conv = 3;
  config.dt_rank = 5, config.d_input = 31, config.d_output = 9, config.n_layer = 3;
  config.spec.input_dt = input_dt;
  return lower(test::config_of(config)).network;
}

TEST_CASE("outputs of one product lie beside each other in an array of many rows", "[cuda][policy]") {
  const policy::Network n = network(core::mamba1::InputDt::per_channel);
  const policy::Scan& scan = n.scans[0];
  const policy::RowPlace x = policy::row_place(n, n.convolutions[0].in), z = policy::row_place(n, scan.z);
  CHECK(x.owner == z.owner);
  CHECK(x.at == 0);
  CHECK(z.at == 160);
  CHECK(x.stride == 2 * 160);
  const policy::RowPlace b = policy::row_place(n, scan.b), c = policy::row_place(n, scan.c);
  CHECK(b.owner == c.owner);
  CHECK(b.at == 8);
  CHECK(c.at == 8 + 32);
  CHECK(c.stride == 8 + 2 * 32);
  const policy::RowPlace u = policy::row_place(n, scan.x), outs = policy::row_place(n, n.outs);
  CHECK(u.owner == scan.x);
  CHECK(u.stride == 160);
  CHECK(outs.stride == 9);
}

TEST_CASE("a short product is computed in the launch of the phase that reads it", "[cuda][policy]") {
  const policy::Network plain = network(core::mamba1::InputDt::per_channel),
                        mean = network(core::mamba1::InputDt::mean);
  const int in_scan = policy::fused_product(plain, Kind::scan, 0);
  REQUIRE(in_scan != kNoPhase);
  CHECK(plain.products[in_scan].out[0].vector == plain.scans[0].dt);
  CHECK(policy::fused_into(plain, in_scan).kind == Kind::scan);
  const int in_mean = policy::fused_product(mean, Kind::mean, 0);
  REQUIRE(in_mean != kNoPhase);
  CHECK(mean.products[in_mean].out[0].vector == mean.means[0].in);
  CHECK(policy::fused_product(mean, Kind::scan, 0) == kNoPhase);
  CHECK(policy::fused_into(mean, in_mean).kind == Kind::mean);
}

TEST_CASE("only the convolution of a scan's input is kept by the scan", "[cuda][policy]") {
  policy::Network n = network(core::mamba1::InputDt::per_channel);
  CHECK(policy::kept_convolution(n, 0) == 0);
  CHECK(policy::kept_by_scan(n, 0));
  CHECK(policy::joined_convolutions(n, 0).first == 0);
  CHECK(policy::joined_convolutions(n, 0).count == 1);
  n.convolutions[0].out = n.scans[0].z;
  CHECK(policy::kept_convolution(n, 0) == kNoPhase);
  CHECK_FALSE(policy::kept_by_scan(n, 0));
}

TEST_CASE("many frames are padded as few are", "[cuda][policy]") {
  for (const std::int64_t width : {1, 3, 4, 31, 32, 287}) {
    CAPTURE(width);
    core::mamba1::Config config;
    config.d_model = 8, config.d_inner = 8, config.d_state = 4, config.d_conv = 2, config.dt_rank = 2;
    config.d_input = width, config.d_output = 2, config.n_layer = 1;
    const PolicyDims dims(test::config_of(config));
    constexpr std::int64_t kFrames = 5;
    const std::vector<float> frames =
        test::Random(3).vector(static_cast<std::size_t>(kFrames * width) + 1, -1, 1);
    struct alignas(64) Line {
      float values[16] = {7, 7, 7, 7};
    };
    std::vector<Line> few(static_cast<std::size_t>(kFrames * dims.frame_size()) / 16), many = few;
    // Frames that are not aligned.
    dims.pad_frames(frames.data() + 1, kFrames, few[0].values);
    CHECK(dims.stream_frames(frames.data() + 1, kFrames, many[0].values));
    CHECK(std::memcmp(few.data(), many.data(), few.size() * sizeof(Line)) == 0);
    CHECK(few[0].values[0] == frames[1]);
    // Any value of any frame that is not finite is found, and none beside them.
    std::vector<float> spoiled = frames;
    int unseen = 0, false_finds = 0;
    for (std::size_t at = 0; at < spoiled.size(); ++at) {
      for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u}) {
        std::memcpy(&spoiled[at], &bits, 4);
        const bool finite = dims.stream_frames(spoiled.data() + 1, kFrames, many[0].values);
        (at == 0 ? false_finds : unseen) += finite == (at != 0);
      }
      spoiled[at] = 3e38f;
      false_finds += !dims.stream_frames(spoiled.data() + 1, kFrames, many[0].values);
      spoiled[at] = frames[at];
    }
    CHECK(unseen == 0);
    CHECK(false_finds == 0);
  }
}

// 16 units of a GRU of 256 fit beside each other, 8 of an LSTM; of one with twice as many units none.
TEST_CASE("blocks of warpgroups keep what fits", "[cuda][policy]") {
  CHECK(policy::wide_columns(256) == 64);
  CHECK(policy::wide_columns(512) == 32);
  CHECK(policy::wide_columns(1536) == 16);
  CHECK(policy::wide_columns(2048) == 0);
  const auto units = [](const test::GatedSpec& spec) {
    core::PolicyConfig config = test::make_gated(spec)->config;
    config.precision = core::Precision::tf32x3;
    const PolicyDims dims(config);
    const policy::Network& n = dims.network();
    const policy::WideCell cell = policy::wide_cell(n, n.cells[0]);
    CHECK(cell.shared <= policy::kWideShared);
    CHECK((cell.units > 0) == (policy::cell_products(n, n.cells[0]).x != policy::kNoPhase));
    return cell.units;
  };
  CHECK(units(test::spec_of("gru", 287, 256)) == 16);
  CHECK(units(test::spec_of("lstm", 287, 256)) == 8);
  CHECK(units(test::spec_of("lstm", 287, 512)) == 0);
}

TEST_CASE("the kernels over many rows are those of the phases", "[cuda][policy]") {
  core::mamba1::Config config;
  config.d_model = 67, config.d_inner = 131, config.d_state = 17, config.d_conv = 3;
  config.dt_rank = 5, config.d_input = 31, config.d_output = 9, config.n_layer = 3;
  const PolicyDims dims(test::config_of(config));
  // Input, in_proj, x_proj, out_proj, head; a convolution; a scan. dt's product is in the scan. And the rows
  // that sessions keep.
  const std::vector<KernelSpec> modules = row_modules(DeviceProperties(), dims, PolicyTuning()),
                                kernels = row_kernels(dims);
  CHECK(modules.size() == 7 + 1);
  std::set<std::pair<std::string, std::vector<std::string>>> images;
  for (const KernelSpec& spec : kernels) images.emplace(spec.file, spec.defines);
  CHECK(images.size() + 1 == modules.size());
  // Two shapes of each product, the factors of two norms, and two kinds of rows for the other phases.
  CHECK(kernels.size() == 5 * 3 + 2 + 2 * 2);
}

TEST_CASE("the tiles of a batch have all of its rows and the first ones more", "[policy][layout]") {
  for (const std::int64_t rows : {1, 2, 15, 49, 64, 256, 285, 1024}) {
    for (const int tiles : {1, 2, 3, 15, 33}) {
      if (tiles > rows) continue;
      for (const int spread : {0, 1, 4}) {
        CAPTURE(rows, tiles, spread);
        CHECK(policy::first_of_tile(rows, tiles, spread, 0) == 0);
        CHECK(policy::first_of_tile(rows, tiles, spread, tiles) == rows);
        const auto count = [&](int tile) {
          return policy::first_of_tile(rows, tiles, spread, tile + 1) -
                 policy::first_of_tile(rows, tiles, spread, tile);
        };
        for (int tile = 0; tile < tiles; ++tile) {
          // Half of the spread more than the mean, or less, and what is rounded.
          CHECK(std::abs(static_cast<double>(count(tile)) - static_cast<double>(rows) / tiles) <
                spread / 2.0 + 1.001);
          if (tile > 0) CHECK(count(tile) <= count(tile - 1) + 1);
        }
        if (tiles > 1) CHECK(std::abs(static_cast<int>(count(0) - count(tiles - 1)) - spread) <= 1);
      }
    }
  }
}

}  // namespace
}  // namespace exphil::cuda
