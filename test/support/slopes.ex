defmodule ExPhil.Native.TestSupport.Slopes do
  @moduledoc false
  # The gradient of an initial state against what a small step of the state along it does.
  import ExPhil.Native.TestSupport.Numbers
  import ExUnit.Assertions

  alias ExPhil.Native.Policy

  @distance 0.1

  @doc """
  The loss is the sum of the outputs times `d_outs`. Each part of the state is moved along its gradient. `state`: as `Policy.forward/3` returns
  it.
  """
  def check_state_gradient(policy, frames, d_outs, state) do
    gradients = Policy.grad!(policy, frames, d_outs, initial_state: state)
    options = [initial_state: state, d_initial_state: true]
    # What else is asked for changes no other result.
    {^gradients, d_state} = Policy.grad!(policy, frames, d_outs, options)
    {^gradients, d_frames, ^d_state} = Policy.grad!(policy, frames, d_outs, [d_frames: true] ++ options)
    {_, shape, _} = frames
    assert {:f32, ^shape, _} = d_frames
    assert Map.keys(d_state) == Map.keys(state)

    for {part, {:f32, shape, values}} <- state do
      assert %{^part => {:f32, ^shape, slopes}} = d_state

      loss = fn values ->
        outs = Policy.forward!(policy, frames, initial_state: %{state | part => {:f32, shape, values}})
        Enum.zip_with(floats(outs), floats(d_outs), &(&1 * &2)) |> Enum.sum()
      end

      # The slope along the gradient is its length.
      length = :math.sqrt(for(slope <- floats(slopes), reduce: 0.0, do: (sum -> sum + slope * slope)))
      assert length > 0

      at = fn distance ->
        moved =
          Enum.zip_with(floats(values), floats(slopes), &<<&1 + distance / length * &2::float-32-little>>)

        loss.(IO.iodata_to_binary(moved))
      end

      slope = (at.(@distance) - at.(-@distance)) / (2 * @distance)
      assert abs(slope / length - 1) < 0.05, "#{part}: #{slope} for #{length}"
    end

    d_state
  end
end
