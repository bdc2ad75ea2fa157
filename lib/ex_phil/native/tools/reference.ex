defmodule ExPhil.Native.Tools.Reference do
  @moduledoc false
  # The scalar references and the measurements for the benchmark: stubs of the functions of c_src/nif/tools.
  # No other module of the tools calls the library's functions (.ci/layers checks it). A library can have only
  # one stub module, ExPhil.Native.NIF, so these go through its entry for tools.

  alias ExPhil.Native.{Device, Error, NIF}

  @type tensor :: {atom(), tuple(), binary()}
  @type timed :: {tensor(), nanoseconds :: non_neg_integer()}

  @doc "Numbers uniform in [min, max) as a binary of f32, f16 or bf16, determined by the seed."
  @spec random_binary!(atom(), non_neg_integer(), integer(), {float(), float()}) :: binary()
  def random_binary!(type, count, seed, range), do: call!(:random_binary, {type, count, seed, range})

  @doc "The scan by the scalar loop, and its time. `request` is that of ScanRequest in c_src/nif/scan_request.hpp."
  @spec scan!(tensor(), tensor(), tensor(), tensor(), tensor(), nil | tensor(), map()) :: timed()
  def scan!(x, dt, a, b, c, initial_state, request),
    do: call!(:reference_scan, {x, dt, a, b, c, initial_state, request})

  @doc "The associative scan along `axis` by the scalar loop, in f32, and its time."
  @spec associative!(atom(), nil | tensor(), tensor(), integer()) :: timed()
  def associative!(op, a, x, axis), do: call!(:reference_associative, {op, a, x, axis})

  @doc "The answers of the checkpoint's policy to f32 frames {count, d_input}, computed in double, and the time."
  @spec policy!(Path.t(), tensor()) :: timed()
  def policy!(path, frames), do: call!(:reference_policy, {path, frames})

  @doc """
  `Policy.forward/3` and `Policy.grad/4` by the scalar reference, in f64: the dimensions are the model's, the weights these,
  f64 by name. `{outs, gradients}`; without d_outs no gradients.
  """
  @spec policy_grad!(ExPhil.Native.Policy.t(), %{String.t() => tensor()}, tensor(), nil | tensor()) ::
          {tensor(), %{String.t() => tensor()}}
  def policy_grad!(%{ref: ref}, weights, frames, d_outs) do
    {outs, gradients} = call!(:reference_policy_grad, {ref, Map.to_list(weights), frames, d_outs})
    {outs, Map.new(gradients)}
  end

  @doc """
  Bytes a second of large copies to the device, from it, and within its memory. Takes some tenths of a second and
  meanwhile some hundred MB.
  """
  @spec copy_rates(Device.t()) ::
          {:ok, %{to_device: float(), from_device: float(), memory: float()}} | {:error, Error.t()}
  def copy_rates(%Device{backend: backend, index: index}), do: call(:copy_rates, {backend, index})

  @doc """
  What the library's calls held of normal schedulers since the last call of this, which switches the measurement on:
  how many calls, how many with at least `limit` of processor time, and the longest by processor time and by time. All
  times in nanoseconds.
  """
  @spec held_calls!(pos_integer()) :: %{atom() => non_neg_integer()}
  def held_calls!(limit), do: call!(:held_calls, {limit})

  @doc """
  From now on the library takes the machine for one where so many threads run or want to; nil: what the system says. For
  tests of what happens only where cores are idle, or only where they are not.
  """
  @spec runnable_threads!(nil | non_neg_integer()) :: :ok
  def runnable_threads!(count), do: call!(:runnable_threads, {count})

  @doc "The bytes that the process has from malloc now, once the library has freed everything dropped so far. For tests."
  @spec allocated_bytes!() :: non_neg_integer()
  def allocated_bytes!, do: call!(:allocated_bytes, {})

  defp call(tool, arguments) do
    case NIF.tool(tool, arguments) do
      {:ok, value} -> {:ok, value}
      {:error, reason} -> {:error, Error.from_nif(reason)}
    end
  end

  defp call!(tool, arguments) do
    case call(tool, arguments) do
      {:ok, value} -> value
      {:error, error} -> raise error
    end
  end
end
