#include "core/recurrent/operators.hpp"

namespace exphil::core {

namespace {

using formulas::Cell;

constexpr RecurrentRow kOperators[kRecurrentOps] = {
    {RecurrentOp::gru_scan, "gru_scan", Cell::gru, std::nullopt, {"wx", "r"}},
    {RecurrentOp::lstm_scan, "lstm_scan", Cell::lstm, std::nullopt, {"wx", "r"}},
    {RecurrentOp::mingru, "mingru", Cell::min_gru, Cell::mix, {"gates", "candidates"}},
    {RecurrentOp::minlstm,
     "minlstm",
     Cell::min_lstm,
     Cell::share,
     {"forget_gates", "input_gates", "candidates"}},
    {RecurrentOp::elu_gru, "elu_gru", Cell::elu_gru, Cell::mix, {"gates", "candidates"}},
    {RecurrentOp::real_gru, "real_gru", Cell::min_gru, Cell::mix, {"gates", "candidates"}},
    {RecurrentOp::diag_linear, "diag_linear", Cell::diag_linear, Cell::linear, {"a", "b"}},
    {RecurrentOp::liquid, "liquid", Cell::liquid, std::nullopt, {"tau", "activation"}}};

}  // namespace

const RecurrentRow& recurrent_row(RecurrentOp op) {
  return kOperators[static_cast<std::size_t>(op)];
}

}  // namespace exphil::core
