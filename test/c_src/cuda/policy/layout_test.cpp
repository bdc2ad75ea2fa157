// The host's and the kernels' ideas of a policy's sizes and of a team's share of the weights agree. The
// kernels' headers are compiled here for one awkward policy.
#define __host__
#define __device__
#define D_MODEL 67
#define D_INNER 131
#define D_STATE 17
#define D_CONV 3
#define DT_RANK 5
#define D_INPUT 31
#define D_OUTPUT 9
#define N_LAYER 3
#define TEAM 4
#define THREADS 128
#define AGENTS 2
#define CLUSTER 1
#define STAGED 1
#include "kernels/policy/team_layout.cuh"
#undef TEAM
#undef THREADS
#undef AGENTS

#include "core/error.hpp"
#include "cuda/policy/dims.hpp"
#include "support/catch.hpp"

namespace exphil {

namespace {

core::PolicyConfig config() {
  core::PolicyConfig config;
  config.d_model = D_MODEL, config.d_inner = D_INNER, config.d_state = D_STATE, config.d_conv = D_CONV;
  config.dt_rank = DT_RANK, config.d_input = D_INPUT, config.d_output = D_OUTPUT, config.n_layer = N_LAYER;
  return config;
}

}  // namespace

TEST_CASE("padded sizes are those of the kernels", "[cuda][policy]") {
  const cuda::PolicyDims dims(config());
  CHECK(dims.model == policy::kModel);
  CHECK(dims.inner == policy::kInner);
  CHECK(dims.input == policy::kInput);
  CHECK(dims.output == policy::kOutput);
  CHECK(dims.lanes == policy::kLanes);
  CHECK(dims.per_lane == policy::kPerLane);
  CHECK(dims.state == policy::kState);
  CHECK(dims.rank == policy::kRank);
  CHECK(dims.projection == policy::kProjection);
  CHECK(dims.history == policy::kHistory);
  CHECK(dims.layer_state_floats() == policy::kLayerStateFloats);
}

TEST_CASE("a team's share of the weights is laid out as its kernel reads it", "[cuda][policy]") {
  const cuda::PolicyDims dims(config());
  cuda::TeamShape shape;
  shape.team = 4, shape.threads = 128, shape.agents = 2, shape.cluster = shape.staged = true;
  const cuda::TeamLayout layout(dims, shape.team);
  CHECK(layout.own == policy::kOwn);
  CHECK(layout.rows == policy::kRows);
  CHECK(layout.heads == policy::kHeads);
  CHECK(layout.input_bias == policy::InputSection::bias);
  CHECK(layout.head_bias == policy::HeadSection::bias);
  CHECK(layout.conv == policy::LayerSection::conv);
  CHECK(layout.conv_bias == policy::LayerSection::conv_bias);
  CHECK(layout.x_proj == policy::LayerSection::x_proj);
  CHECK(layout.dt_proj == policy::LayerSection::dt_proj);
  CHECK(layout.dt_bias == policy::LayerSection::dt_bias);
  CHECK(layout.a == policy::LayerSection::a);
  CHECK(layout.d == policy::LayerSection::d);
  CHECK(layout.out_proj == policy::LayerSection::out_proj);
  CHECK(layout.out_bias == policy::LayerSection::out_bias);
  CHECK(layout.head_section == policy::Slice::head);
  CHECK(layout.layers_section == policy::Slice::layers);
  CHECK(layout.in_proj_section == policy::Slice::in_proj);
  CHECK(layout.slice_floats == policy::Slice::floats);
  CHECK(cuda::board_floats(dims, shape) == policy::kBoardFloats);
  CHECK(cuda::shared_bytes(dims, shape) == policy::kSharedBytes);
}

TEST_CASE("a policy beyond the kernels' sizes is refused by name", "[cuda][policy]") {
  core::PolicyConfig large = config();
  large.d_state = 5000;
  try {
    cuda::PolicyDims dims(large);
    FAIL("accepted");
  } catch (const core::Error& error) {
    CHECK(error.kind() == core::ErrorKind::limit_exceeded);
    CHECK(std::string(error.what()).find("d_state") != std::string::npos);
  }
}

}  // namespace exphil
