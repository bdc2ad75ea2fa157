defmodule ExPhil.Native.Tools.Benchmark.Scans do
  @moduledoc false
  # The suites scan, step and discretization: the selective scan over the configurations of
  # docs/benchmarks.md.

  alias ExPhil.Native.SelectiveScan
  alias ExPhil.Native.Tools.Benchmark.{Case, Inputs}
  alias ExPhil.Native.Tools.Reference

  # batch, dim, seq, state
  @configurations [
    {"small", {1, 4, 16, 4}},
    {"medium", {4, 16, 64, 16}},
    {"large", {16, 64, 256, 64}},
    {"game window", {32, 512, 60, 16}},
    {"Mamba-130M", {1, 256, 1024, 16}},
    {"Mamba-370M", {1, 512, 1024, 16}},
    {"Mamba-790M", {1, 768, 1024, 16}}
  ]
  @quick ["small", "medium", "Mamba-130M"]
  @axes ["batch", "dim", "seq", "state"]

  # Operations for one state and step, where an exponential and a division count as one: 2 for h = Abar h +
  # ..., 2 for the sum over <C, h>, 2 for w = A dt and B times (dt x), plus those of the rule.
  @operations %{zoh: 7, foh: 9, bilinear: 11, highorder: 9, poly: 11, rk4: 13}

  # The reference runs on as much of the batch as this limit allows: about 0.2 s.
  @reference_updates 16_000_000

  @doc "The cases of one suite."
  @spec cases(String.t(), map()) :: [Case.t()]
  def cases("scan", context), do: for({name, shape} <- chosen(context), do: scan(name, shape, :zoh, context))
  def cases("step", context), do: for({name, shape} <- chosen(context), do: step(name, shape, context))

  def cases("discretization", context) do
    shape = if context.quick, do: {4, 16, 64, 16}, else: {8, 512, 1024, 16}

    for rule <- [:zoh, :foh, :bilinear, :highorder, :poly, :rk4] do
      %{scan(to_string(rule), shape, rule, context) | suite: "discretization"}
    end
  end

  defp chosen(%{quick: true}), do: Enum.filter(@configurations, fn {name, _} -> name in @quick end)
  defp chosen(_context), do: @configurations

  # ---- scan ------------------------------------------------------------------------------------------------

  defp scan(name, {batch, dim, seq, state} = shape, rule, context) do
    size = Case.size(context.dtype)
    options = [discretization: rule, backend: context.backend]
    call = fn {x, dt, a, b, c} -> SelectiveScan.scan(x, dt, a, b, c, options) end

    %Case{
      suite: "scan",
      name: name,
      axes: @axes,
      shape: Tuple.to_list(shape),
      operations: batch * seq * dim * (1 + @operations[rule] * state),
      bytes: %{
        in: size * batch * seq * 2 * (dim + state) + 4 * dim * state,
        out: size * batch * seq * dim,
        resident: 0
      },
      inputs: &scan_inputs(&1, shape, context.dtype),
      call: call,
      check: &check_scan(&1, call, shape, rule),
      tolerance: Case.tolerance(context.dtype)
    }
  end

  defp scan_inputs(seed, {batch, dim, seq, state}, type) do
    {
      Inputs.uniform(type, {batch, seq, dim}, seed, {-1.0, 1.0}),
      Inputs.uniform(type, {batch, seq, dim}, seed + 1, {1.0e-3, 1.0e-1}),
      decay(seed + 2, dim, state),
      Inputs.uniform(type, {batch, seq, state}, seed + 3, {-1.0, 1.0}),
      Inputs.uniform(type, {batch, seq, state}, seed + 4, {-1.0, 1.0})
    }
  end

  # A without a pattern that a kernel could exploit.
  defp decay(seed, dim, state), do: Inputs.uniform(:f32, {dim, state}, seed, {-16.0, -0.5})

  defp check_scan({x, dt, a, b, c} = input, call, {batch, dim, seq, state}, rule) do
    part = min(batch, max(div(@reference_updates, dim * seq * state), 1))
    [x, dt, b, c] = Enum.map([x, dt, b, c], &Inputs.first(&1, part))
    {theirs, nanoseconds} = reference({x, dt, a, b, c}, nil, rule)
    %{ours: call.(input), theirs: theirs, nanoseconds: nanoseconds, fraction: part / batch}
  end

  defp reference({x, dt, a, b, c}, initial_state, rule) do
    Reference.scan!(x, dt, a, b, c, initial_state, %{discretization: rule})
  end

  # ---- step ------------------------------------------------------------------------------------------------

  # One step of each of the batch's sequences, from a state in the VM; seq is unused.
  defp step(name, {batch, dim, _seq, state}, context) do
    size = Case.size(context.dtype)
    states = 4 * batch * dim * state

    call = fn {h, x, dt, a, b, c} -> SelectiveScan.step(h, x, dt, a, b, c, backend: context.backend) end

    %Case{
      suite: "step",
      name: name,
      axes: ["batch", "dim", "state"],
      shape: [batch, dim, state],
      operations: batch * dim * (1 + @operations.zoh * state),
      bytes: %{
        in: size * batch * 2 * (dim + state) + 4 * dim * state + states,
        out: size * batch * dim + states,
        resident: 0
      },
      inputs: &step_inputs(&1, {batch, dim, state}, context.dtype),
      call: call,
      check: &check_step(&1, call),
      tolerance: Case.tolerance(context.dtype)
    }
  end

  defp step_inputs(seed, {batch, dim, state}, type) do
    {
      Inputs.uniform(:f32, {batch, dim, state}, seed, {-1.0, 1.0}),
      Inputs.uniform(type, {batch, dim}, seed + 1, {-1.0, 1.0}),
      Inputs.uniform(type, {batch, dim}, seed + 2, {1.0e-3, 1.0e-1}),
      decay(seed + 3, dim, state),
      Inputs.uniform(type, {batch, state}, seed + 4, {-1.0, 1.0}),
      Inputs.uniform(type, {batch, state}, seed + 5, {-1.0, 1.0})
    }
  end

  defp check_step({h, x, dt, a, b, c} = input, call) do
    [x, dt, b, c] = for {type, {batch, width}, binary} <- [x, dt, b, c], do: {type, {batch, 1, width}, binary}

    {theirs, nanoseconds} = reference({x, dt, a, b, c}, h, :zoh)
    {ours, _state} = call.(input)
    %{ours: ours, theirs: theirs, nanoseconds: nanoseconds, fraction: 1.0}
  end
end
