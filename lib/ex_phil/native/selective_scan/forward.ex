defmodule ExPhil.Native.SelectiveScan.Forward do
  @moduledoc false
  # The call of a scan: its tensors and options as the library takes them. Callers:
  # ExPhil.Native.SelectiveScan.

  alias ExPhil.Native.{Error, NIF, Queue}
  alias ExPhil.Native.SelectiveScan.Operands

  # The options for the library; ScanRequest in c_src/nif/scan_request.hpp.
  @request [:discretization, :dt_softplus, :dt_range, :direction, :algorithm]

  @doc """
  {form of the results, {y, y_reverse, final_state, states}}. results: %{final_state: boolean, states: boolean}, those beside y.
  """
  def run!({x, dt, a, b, c}, options, results) do
    {x, a, form, pack} = Operands.pack!(x, a, Operands.memory_place(options.place))
    run_packed!({x, pack.(dt, "dt"), a, pack.(b, "b"), pack.(c, "c")}, form, pack, options, results)
  end

  @doc "As `run!/3`, of packed tensors."
  def run_packed!({x, dt, a, b, c}, form, pack, options, results) do
    {backend, device} = options.place
    request = options |> Map.take(@request) |> Map.merge(results)

    d = pack.(options.d, ":d")
    z = pack.(options.z, ":z")
    bias = pack.(options.dt_bias, ":dt_bias")
    state = pack.(options.initial_state, ":initial_state")

    case Queue.run(&NIF.scan(backend, device, x, dt, a, b, c, d, z, bias, state, request, &1)) do
      {:ok, results} -> {form, results}
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end
end
