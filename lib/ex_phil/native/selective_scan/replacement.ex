defmodule ExPhil.Native.SelectiveScan.Replacement do
  @moduledoc false
  # The functions that only ExPhil's own ExPhil.Native.SelectiveScan has: its NIFs on binaries, and
  # information about itself. SelectiveScan documents them; docs/replacing-exphil-nif.md lists the
  # differences.

  alias ExPhil.Native.{Device, Error, SelectiveScan}

  def device_info do
    with {:ok, device} <- Device.fetch(), do: {:ok, "#{device.backend}: #{device.name}"}
  end

  def ping do
    case ExPhil.Native.info().nif do
      %{loaded: true} ->
        "pong from selective_scan_nif"

      %{reason: reason} ->
        raise Error.new(:backend_unavailable, "", "the native library is not loaded: #{reason}")
    end
  end

  def cuda_device_info do
    case Device.fetch(backend: :cuda) do
      {:ok, device} -> device.name
      {:error, error} -> raise error
    end
  end

  def selective_scan(x, dt, a, b, c, sizes) do
    {x, dt, a, b, c} = tensors(x, dt, a, b, c, sizes)
    {:f32, _, y} = SelectiveScan.scan(x, dt, a, b, c)
    y
  end

  def selective_scan_forward_with_states(x, dt, a, b, c, sizes) do
    {x, dt, a, b, c} = tensors(x, dt, a, b, c, sizes)
    {{:f32, _, y}, {:f32, _, states}} = SelectiveScan.scan_with_states(x, dt, a, b, c)
    y <> states
  end

  def selective_scan_backward(dy, x, states, dt, a, b, c, sizes) do
    {x, dt, a, b, c} = tensors(x, dt, a, b, c, sizes)
    {batch, seq, dim, state} = sizes
    dy = {:f32, {batch, seq, dim}, dy}
    states = {:f32, {batch, seq, dim, state}, states}
    gradients = SelectiveScan.backward(dy, x, states, dt, a, b, c)
    gradients |> Tuple.to_list() |> Enum.map(&elem(&1, 2)) |> IO.iodata_to_binary()
  end

  defp tensors(x, dt, a, b, c, {batch, seq, dim, state})
       when is_integer(batch) and is_integer(seq) and is_integer(dim) and is_integer(state) do
    rows = {batch, seq, dim}
    projection = {batch, seq, state}
    {{:f32, rows, x}, {:f32, rows, dt}, {:f32, {dim, state}, a}, {:f32, projection, b}, {:f32, projection, c}}
  end

  defp tensors(_x, _dt, _a, _b, _c, other),
    do: raise(Error.invalid("sizes", "{batch, seq, dim, state}", other))

  def training_workflow_info do
    %{
      train_backbone: :mamba,
      infer_backbone: :mamba_nif,
      checkpoint_compatible: true,
      speedup: "measured by mix exphil.bench",
      reason: """
      Layers of :mamba (pure Nx) and :mamba_nif have the same names, so checkpoints serve both. Where supports_training?/0,
      scan/6 is an operation of Nx's graph with a gradient, and :mamba_nif can be trained with Axon, too. Without Axon: grad/7
      is the scan's gradient, and ExPhil.Native.Policy.grad/4 that of a whole policy.
      """
    }
  end

  def supports_training?, do: Code.ensure_loaded?(ExPhil.Native.Defn)

  def validate_mode!(:inference), do: :ok

  def validate_mode!(:training) do
    unless supports_training?() do
      raise ArgumentError, """
      SelectiveScan cannot be trained through with Axon: exphil_native was compiled without Nx 0.12 or later, so scan/6 is not an
      operation of Nx's graph.

      Train with --backbone mamba (pure Nx) and infer with --backbone mamba_nif; checkpoints serve both. Or compute gradients
      with SelectiveScan.grad/7, or backward/7 after scan_with_states/5, and apply them without Axon.Loop.
      """
    end

    :ok
  end

  def validate_mode!(other),
    do: raise(ArgumentError, "the mode must be :training or :inference, got #{inspect(other)}")
end
