defmodule ExPhil.Native.RecurrentScan.Operators do
  @moduledoc false
  # The fused recurrent operators: core/recurrent/operators.hpp has the same rows. Used by
  # ExPhil.Native.RecurrentScan, ExPhil.Native.Defn and ExPhil.Native.Edifice.

  @type t :: %{name: atom(), inputs: [atom()], states: [atom()], gates: pos_integer(), activated: boolean()}

  # gates: the last axis of the first input is so many times hidden. activated: whether the inputs have
  # activations of the operator's own.
  @rows [
    %{name: :gru_scan, inputs: [:wx, :r], states: [:h0], gates: 3, activated: false},
    %{name: :lstm_scan, inputs: [:wx, :r], states: [:h0, :c0], gates: 4, activated: false},
    %{name: :mingru, inputs: [:gates, :candidates], states: [:h0], gates: 1, activated: true},
    %{
      name: :minlstm,
      inputs: [:forget_gates, :input_gates, :candidates],
      states: [:h0],
      gates: 1,
      activated: true
    },
    %{name: :elu_gru, inputs: [:gates, :candidates], states: [:h0], gates: 1, activated: true},
    %{name: :real_gru, inputs: [:gates, :candidates], states: [:h0], gates: 1, activated: true},
    %{name: :diag_linear, inputs: [:a, :b], states: [:h0], gates: 1, activated: true},
    %{name: :liquid, inputs: [:tau, :activation], states: [:h0], gates: 1, activated: false}
  ]

  @spec all() :: [t()]
  def all, do: @rows

  @spec fetch!(atom()) :: t()
  def fetch!(name), do: Enum.find(@rows, &(&1.name == name)) || raise(KeyError, key: name, term: @rows)

  @doc "The results of the operator beside h, with `return_state: true`, and the operands of its gradient for them."
  def final(%{states: [:h0]}), do: [:final_h]
  def final(%{states: [:h0, :c0]}), do: [:final_h, :final_c]
  def d_final(row), do: Enum.map(final(row), &:"d_#{&1}")

  @doc "`{h, state}` of h and the last states: the state of an LSTM is {final_h, final_c}."
  def with_state([h]), do: h
  def with_state([h, final]), do: {h, final}
  def with_state([h, final_h, final_c]), do: {h, {final_h, final_c}}

  @doc "The inputs and their shapes, for documentation."
  @spec shapes(t()) :: String.t()
  def shapes(%{gates: 1, inputs: inputs}) do
    [last | others] = inputs |> Enum.map(&"`#{&1}`") |> Enum.reverse()
    Enum.join(Enum.reverse(others), ", ") <> " and #{last} are {batch, seq, hidden}"
  end

  def shapes(%{gates: gates, inputs: [sums, weights]}),
    do: "`#{sums}` is {batch, seq, #{gates} hidden}, `#{weights}` {hidden, #{gates} hidden}"

  @doc "The custom call of the operator; that of its gradient has _grad behind it."
  def target(%{gates: 1}), do: "exphil_diagonal_recurrence"
  def target(_row), do: "exphil_dense_recurrence"

  @doc "Its attributes; operands and results as names between spaces (c_src/xla/recurrent.cpp)."
  def attributes(row, activated, operands, results) do
    [{"op", to_string(row.name)}, {"activated", activated}, {"operands", operands}, {"results", results}]
  end
end
