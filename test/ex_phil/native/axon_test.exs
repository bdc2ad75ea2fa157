# The layer of docs/xla.md in an Axon model, and a few steps of its training. Skipped where Axon is not available.
if Code.ensure_loaded?(Axon) do
  defmodule ExPhil.Native.AxonTest do
    use ExUnit.Case, async: true

    @moduletag :nx

    setup_all do
      Enum.each([:nx, :axon], &Application.load/1)
      guide = File.read!("docs/xla.md")
      [_, code] = Regex.run(~r/```elixir\n(defmodule ScanLayer.*?)```/s, guide)
      [{layer, _}] = Code.compile_string(code)
      %{layer: layer}
    end

    defp model(layer) do
      frames = Axon.input("frames", shape: {nil, 10, 4})
      [x, dt] = for name <- ["x", "dt"], do: Axon.dense(frames, 4, name: name)
      [b, c] = for name <- ["b", "c"], do: Axon.dense(frames, 3, name: name)
      layer.layer(x, dt, b, c, 4, 3) |> Axon.dense(1, name: "out")
    end

    test "predicts, and its loss falls when it is trained", %{layer: layer} do
      {init, predict} = Axon.build(model(layer), seed: 1)
      {frames, _key} = Nx.Random.normal(Nx.Random.key(1), shape: {4, 10, 4})
      target = Nx.cumulative_sum(frames[[.., .., 0..0]], axis: 1)
      params = init.(Nx.template({4, 10, 4}, :f32), Axon.ModelState.empty())

      loss = fn data ->
        data |> predict(params, predict, frames) |> Nx.subtract(target) |> Nx.pow(2) |> Nx.mean()
      end

      losses =
        Enum.scan(1..30, {params.data, nil}, fn _, {data, _} ->
          {value, gradient} = Nx.Defn.value_and_grad(data, loss)
          {descend(data, gradient), Nx.to_number(value)}
        end)

      values = Enum.map(losses, &elem(&1, 1))
      assert List.last(values) < 0.5 * hd(values)
      {last, _} = List.last(losses)
      # Every parameter has a gradient: those of the scan are computed by custom_grad.
      for {layer, tensors} <- last, {name, tensor} <- tensors, do: assert(tensor != params.data[layer][name])
    end

    defp predict(data, params, predict, frames), do: predict.(%{params | data: data}, %{"frames" => frames})

    defp descend(data, gradient) do
      for {layer, tensors} <- data, into: %{} do
        {layer,
         for(
           {name, t} <- tensors,
           into: %{},
           do: {name, Nx.subtract(t, Nx.multiply(0.02, gradient[layer][name]))}
         )}
      end
    end
  end
end
