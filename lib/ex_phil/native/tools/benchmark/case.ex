defmodule ExPhil.Native.Tools.Benchmark.Case do
  @moduledoc false
  # One thing to measure. The suites make these (Scans, Arrays, Policies) and ExPhil.Native.Tools.Benchmark
  # runs them.
  #
  #   inputs     seed -> input: fresh random numbers, made outside of the measured time
  #   call       input -> anything: what is measured, a public call of the library
  #   check      input -> %{ours, theirs, nanoseconds, fraction}: the library's answer and the scalar reference's,
  #              and how long the reference took for `fraction` of the work; theirs may be the beginning of ours
  #   bytes      in: read by the call from the VM; out: written to the VM; resident: read or written where the
  #              backend keeps it (weights, states)

  @enforce_keys [:suite, :name, :axes, :shape, :operations, :bytes, :inputs, :call, :check, :tolerance]
  defstruct @enforce_keys ++ [:line]

  @type tensor :: {atom(), tuple(), binary()}
  @type check :: %{ours: tensor(), theirs: tensor(), nanoseconds: pos_integer(), fraction: float()}
  @type t :: %__MODULE__{
          suite: String.t(),
          name: String.t(),
          axes: [String.t()],
          shape: [pos_integer()],
          operations: pos_integer(),
          bytes: %{in: non_neg_integer(), out: non_neg_integer(), resident: non_neg_integer()},
          inputs: (integer() -> term()),
          call: (term() -> term()),
          check: (term() -> check()),
          tolerance: float(),
          # For cases that form a line over a size: the line's name and this case's size.
          line: nil | {String.t(), pos_integer()}
        }

  @doc "Bytes of one element."
  @spec size(atom()) :: pos_integer()
  def size(:f32), do: 4
  def size(type) when type in [:f16, :bf16], do: 2

  # Both sides are f32 loops in different orders, or the same rounded to 16 bits. The tests check stricter
  # bounds against double; here it is enough to detect a wrong result.
  @doc "The largest relative error against the scalar reference at which a result counts as right."
  @spec tolerance(atom()) :: float()
  def tolerance(:f32), do: 1.0e-4
  def tolerance(:f16), do: 4.0e-3
  def tolerance(:bf16), do: 3.0e-2
end
