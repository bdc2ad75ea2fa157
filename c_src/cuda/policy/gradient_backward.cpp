// The backward half of cuda/policy/gradient_pass.hpp.
#include "core/error.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"

namespace exphil::cuda {

using core::Span;

CUstream GradientStreams::fork() {
  begin_.record(main_.handle());
  begin_.make_wait(beside_.handle());
  return beside_.handle();
}

CUstream GradientStreams::fork_ready() {
  ready_.make_wait(beside_.handle());
  return beside_.handle();
}

void GradientPass::backward(bool frames) {
  frames_ = frames;
  written_ = {gradients(n_.outs)[0].data};
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    enter(i);
    if (i + 2 < blocks_.size()) streams_.join(i % 2);  // block i + 2 had the same memory
    backward_block();
  }
  for (std::size_t i = 0; i < 2; ++i) streams_.join(i);
}

// What it leaves of gradients of rows is that of hidden, or of the frames.
void GradientPass::backward_block() {
  const bool is_last = block_ + 1 == blocks_.size();
  show_hidden(is_last ? found(n_.hidden) : left(n_.hidden));
  for (phase_ = phases_->size(); phase_-- > 0;) {
    const core::Phase& phase = (*phases_)[phase_];
    std::visit([this](const auto& p) { back(p); }, phase);
    if (block_ > 0 && core::writes(phase).vector == n_.hidden && !core::adds(phase)) replaced_hidden();
  }
  finish_weights();
  biases_.clear();
  const float* const hidden = gradients(n_.hidden)[0].data;
  const bool has_hidden = written_.count(hidden) > 0;
  written_.clear();
  if (has_hidden) written_.insert(hidden);
}

void GradientPass::show_hidden(const VectorRows& as) {
  Matrix& rows = m_.gradients[static_cast<std::size_t>(n_.hidden)][0];
  rows = Matrix(rows.data, rows.rows, as[0].columns);
}

void GradientPass::replaced_hidden() {
  written_.erase(gradients(n_.hidden)[0].data);
  show_hidden(found(n_.hidden));
}

void GradientPass::run_inputs() {
  kernels_.run(stream_, input_jobs_);
  input_jobs_.clear();
}

void GradientPass::run_weights() {
  run_inputs();
  kernels_.run(stream_, weight_jobs_);
  weight_jobs_.clear();
}

// The block's sums for weights, beside what comes next. What the products read has been there since ready().
// That changes the gradient of hidden, but not what this block's phases have written.
void GradientPass::finish_weights() {
  run_inputs();
  if (weight_jobs_.reads(gradients(n_.hidden)[0])) run_weights();
  // Hardly anything comes after the last two blocks: their products run beside the rest of the block itself.
  // Of the others they would only take the room of what is waited for.
  const bool early = block_ <= 1 && !weight_jobs_.jobs().empty();
  if (early) kernels_.run(streams_.fork_ready(), weight_jobs_);
  const CUstream beside = streams_.fork();
  if (!early) kernels_.run(beside, weight_jobs_);
  weight_jobs_.clear();
  kernels_.add_parts(beside, sums().sums());
  sums().restart();
  streams_.name(block_ % 2);
}

// ---- gradients of rows ----

bool GradientPass::is_first(core::VectorId vector, const Matrix& rows) {
  if (rows.dense()) return written_.insert(rows.data).second;
  // A part of a vector that is not cut: of all of it, zeros come first.
  const Matrix& all = gradients(vector)[0];
  if (written_.insert(all.data).second) clear(all);
  return false;
}

void GradientPass::clear(const Matrix& rows) const {
  const auto bytes = static_cast<std::size_t>(rows.size()) * sizeof(float);
  context_.check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(rows.data), 0, bytes, stream_),
                 "cuMemsetD8Async");
}

std::vector<Matrix> GradientPass::given(const Span& span) {
  std::vector<Matrix> all = rows_of(gradients(span.vector), span);
  for (const Matrix& rows : all) {
    if (is_first(span.vector, rows)) clear(rows);
  }
  return all;
}

float* GradientPass::dense_given(const Span& span) {
  given(span);
  return dense_rows_of(gradients(span.vector), span).data;
}

const Matrix& GradientPass::changed(const Matrix& rows) {
  if (weight_jobs_.reads(rows)) run_weights();
  return rows;
}

float* GradientPass::stored(core::VectorId vector, const Matrix& rows) {
  require_dense(rows.dense());
  if (is_first(vector, rows)) return rows.data;
  float* const spare = m_.spare(context_, rows.size());
  later_parts_.add(spare, rows.data, 1, rows.size());
  return spare;
}

float* GradientPass::summed(const Span& span, std::int64_t parts, PartialSums& now) {
  const Matrix to = changed(span);
  now.set_adds(!is_first(span.vector, to));
  return now.into(to.data, parts, to.size());
}

void GradientPass::settle() {
  kernels_.add_parts(stream_, later_parts_.sums());
  later_parts_.restart();
}

// ---- phases ----

void GradientPass::back(const core::Copy& p) {
  if (p.in.vector == n_.frame && !frames_) return;
  run_inputs();
  given(p.out);
  copy(dense_rows_of(gradients(p.out.vector), p.out), {stored(p.in), m_.shape.rows(), p.in.size});
  settle();
}

void GradientPass::back(const core::Norm& p) {
  run_inputs();
  policy::NormArguments a = norm_arguments(p);
  const std::int64_t blocks = norm_blocks(a.rows);
  a.dy = dense_given(p.out);
  const Matrix dx = changed(p.in);
  a.dx = dx.data, a.adds = is_first(p.in.vector, dx) ? 0 : 1;
  a.weight_parts = sums().into(gradient(p.weight), blocks * p.repeats, p.in.size / p.repeats);
  if (a.bias != nullptr) a.bias_parts = sums().into(gradient(p.bias), blocks, p.in.size);
  kernels_.norm_back(stream_, a);
}

void GradientPass::back(const core::Convolution& p) {
  run_inputs();
  const std::vector<Matrix> ds = given(p.out);
  std::vector<Matrix> dx;
  for (const Matrix& rows : rows_of(gradients(p.in.vector), p.in)) {
    dx.emplace_back(stored(p.in.vector, changed(rows)), rows.rows, rows.columns);
  }
  const std::int64_t parts = m_.shape.sequences * convolve_segments(m_.shape.seq);
  float* const weights = sums().into(gradient(p.weight), parts, p.in.size * p.taps);
  float* const biases = sums().into(gradient(p.bias), parts, p.in.size);
  std::vector<policy::ConvolveArguments> runs = convolution(p);
  std::size_t next = 0;
  for (const ColumnRun& run : common_columns(dx, ds)) {
    policy::ConvolveArguments& a = runs[next++];
    a.dx = run.from.data, a.ds = run.to.data;
    a.weight_parts = weights + run.first * p.taps, a.bias_parts = advanced(biases, run.first);
    kernels_.convolve_back(stream_, p.taps, a);
  }
  settle();
}

void GradientPass::back(const core::Product& p) {
  const std::vector<Matrix> d = given(p.out);
  weight_back(p, d);
  if (is_walked(*phases_, p)) return;
  // The gradient of an input that several products read is one sum, with the first of them.
  if (same_input(*phases_, phase_).front() == &p) input_back(p);
}

// ---- products ----

void GradientPass::weight_back(const core::Product& p, const std::vector<Matrix>& given) {
  const std::int64_t depth = p.in.size;
  std::int64_t row = p.first_row;
  for (const Matrix& dy : given) {
    float* const parts =
        sums().into(gradient(p.weight) + row * depth, parts_of_rows(dy.rows), dy.columns * depth);
    float* biases = bias_parts(p, row, dy);
    std::int64_t column = 0;
    for (const Matrix& x : inputs(p)) {
      weight_jobs_.weight(dy, x, depth, parts + column, biases);
      biases = nullptr, column += x.columns;
    }
    row += dy.columns;
  }
  streams_.ready();  // nothing changes what the jobs read before they run: see changed()
}

// The product's own bias, and those that later phases add to what it writes.
float* GradientPass::bias_parts(const core::Product& p, std::int64_t row, const Matrix& given) {
  std::vector<float*> to;
  if (p.bias != core::kNone) to.push_back(gradient(p.bias) + row);
  for (const Bias& bias : biases_) {
    if (bias.d == given.data) to.push_back(bias.to);
  }
  if (to.empty()) return nullptr;
  float* const parts = sums().into(to[0], parts_of_rows(given.rows), given.columns);
  for (std::size_t i = 1; i < to.size(); ++i) sums().also_into(to[i], nullptr);
  return parts;
}

void GradientPass::bias_back(core::WeightId bias, const Span& span, const float* d) {
  if (bias == core::kNone) return;
  const auto* const by_product = writer_of<core::Product>(*phases_, span);
  if (by_product != nullptr && span.vector != n_.hidden && readers_of(*phases_, span) == 1) {
    biases_.push_back({d, gradient(bias)});  // a part of the launch that sums the product's weight
    return;
  }
  PartialSums now;
  now.set_adds(sums().adds());
  now.add(d, gradient(bias), m_.shape.rows(), span.size);
  kernels_.add_parts(stream_, now.sums());
}

void GradientPass::input_back(const core::Product& p) {
  if (p.in.vector == n_.frame && !frames_) return;
  const std::vector<Matrix> to = rows_of(gradients(p.in.vector), p.in);
  const std::vector<Matrix> x = rows_of(found(p.in.vector), p.in);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    policy::ProductJob* job = nullptr;
    for (const core::Product* product : same_input(*phases_, phase_)) {
      std::int64_t row = 0;
      for (const Matrix& dy : rows_of(gradients(product->out.vector), product->out)) {
        if (input_jobs_.writes(dy)) run_inputs(), job = nullptr;
        if (job == nullptr || job->piece_count == policy::kMostPieces) job = &input_job(p.in, to[i], x[i]);
        Products::through(*job, dy, weight(*product).rows_of(row, dy.columns).part(column, to[i].columns));
        row += dy.columns;
      }
    }
    column += to[i].columns;
  }
}

// A sum of products into rows of the gradient of `span`, whose values are `x`.
policy::ProductJob& GradientPass::input_job(const Span& span, const Matrix& to, const Matrix& x) {
  if (input_jobs_.writes(to) || input_jobs_.reads(to)) run_inputs();
  if (weight_jobs_.reads(to)) run_weights();
  policy::ProductJob& job = input_jobs_.back(to);
  const bool first = is_first(span.vector, to);
  if (!first) job.after = policy::kAdd, job.other = to.data, job.other_row = to.stride;
  if (!is_relu(*phases_, span)) return job;
  if (!first) {
    core::fail(core::ErrorKind::unsupported, "", "the gradient on a GPU needs that at most ",
               policy::kMostPieces, " parts of products read a relu's output");
  }
  job.after = policy::kMask, job.other = x.data, job.other_row = x.stride;
  return job;
}

}  // namespace exphil::cuda
