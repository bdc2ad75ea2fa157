defmodule ExPhil.Native.SemiseparableLayerTest do
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.SemiseparableLayer

  doctest ExPhil.Native.SemiseparableLayer

  @hidden 12
  @rank 5
  @inner 7

  defp tensors(seed \\ 1) do
    shapes = %{
      "complexity_gate.0.weight" => {@inner, @hidden},
      "complexity_gate.0.bias" => {@inner},
      "complexity_gate.2.weight" => {@rank, @inner},
      "complexity_gate.2.bias" => {@rank},
      "U_proj.weight" => {@rank, @hidden},
      "V_proj.weight" => {@rank, @hidden},
      "T_conv.weight" => {@hidden, 1, 3},
      "output_proj.weight" => {@hidden, @rank},
      "output_proj.bias" => {@hidden}
    }

    shapes
    |> Enum.with_index()
    |> Map.new(fn {{name, shape}, i} -> {name, uniform(seed + i, shape, -0.7, 0.7)} end)
  end

  # A safetensors file: header length, JSON header, bytes.
  defp write_file(tensors, dir) do
    {entries, data} =
      Enum.map_reduce(tensors, "", fn {name, {:f32, shape, binary}}, data ->
        shape = shape |> Tuple.to_list() |> Enum.join(",")
        range = "#{byte_size(data)},#{byte_size(data) + byte_size(binary)}"
        {~s("#{name}":{"dtype":"F32","shape":[#{shape}],"data_offsets":[#{range}]}), data <> binary}
      end)

    header = "{" <> Enum.join(entries, ",") <> "}"
    path = Path.join(dir, "layer.safetensors")
    File.write!(path, [<<byte_size(header)::64-little>>, header, data])
    path
  end

  # ---- the formulas, in Erlang's floats --------------------------------------------------------------------

  defp matrix({:f32, {_rows, columns}, _} = tensor), do: Enum.chunk_every(floats(tensor), columns)
  defp multiply(matrix, x), do: Enum.map(matrix, fn row -> Enum.zip_with(row, x, &*/2) |> Enum.sum() end)
  defp plus(left, right), do: Enum.zip_with(left, right, &+/2)
  defp times(left, right), do: Enum.zip_with(left, right, &*/2)

  defp reference(w, x, bidirectional) do
    project = fn name, row -> multiply(matrix(w[name <> ".weight"]), row) end

    gates =
      for row <- x do
        inner =
          project.("complexity_gate.0", row)
          |> plus(floats(w["complexity_gate.0.bias"]))
          |> Enum.map(&max(&1, 0.0))

        gate = project.("complexity_gate.2", inner) |> plus(floats(w["complexity_gate.2.bias"]))
        Enum.map(gate, &(1.0 / (1.0 + :math.exp(-&1))))
      end

    u = Enum.zip_with(x, gates, &times(project.("U_proj", &1), &2))
    v = Enum.zip_with(x, gates, &times(project.("V_proj", &1), &2))
    sums = fn rows -> Enum.scan(rows, &plus/2) end
    k = sums.(u)

    k =
      if bidirectional,
        do: Enum.zip_with(k, u |> Enum.reverse() |> sums.() |> Enum.reverse(), &plus/2),
        else: k

    zero = List.duplicate(0.0, @hidden)
    taps = Enum.chunk_every(floats(w["T_conv.weight"]), 3)
    around = Enum.zip([[zero | x], x, tl(x) ++ [zero]])

    y =
      for {{before, here, later}, kv} <- Enum.zip(around, Enum.zip_with(k, v, &times/2)) do
        conv =
          Enum.zip_with([taps, before, here, later], fn [[a, b, c], p, q, r] -> a * p + b * q + c * r end)

        project.("output_proj", kv) |> plus(floats(w["output_proj.bias"])) |> plus(conv)
      end

    {List.flatten(y), List.flatten(gates)}
  end

  backend_test "forward and forward_bidirectional follow the formulas", %{backend: backend} do
    tensors = tensors()
    {:ok, layer} = SemiseparableLayer.load(tensors, backend: backend)

    assert %{hidden: @hidden, rank: @rank, gate_hidden: @inner, backend: ^backend} =
             SemiseparableLayer.info!(layer)

    for seq <- [1, 2, 40] do
      x = uniform(99, {2, seq, @hidden}, -1.0, 1.0)
      sequences = floats(x) |> Enum.chunk_every(@hidden) |> Enum.chunk_every(seq)

      for {function, bidirectional} <- [
            {&SemiseparableLayer.forward!/2, false},
            {&SemiseparableLayer.forward_bidirectional!/2, true}
          ] do
        {y, diagnostics} = function.(layer, x)
        {expected, gates} = sequences |> Enum.map(&reference(tensors, &1, bidirectional)) |> Enum.unzip()
        {expected, gates} = {List.flatten(expected), List.flatten(gates)}
        assert relative_error(y, f32(expected, {2, seq, @hidden})) <= 1.0e-5
        assert {:f32, {2, ^seq, @rank}, _} = diagnostics.gates
        assert relative_error(diagnostics.gates, f32(gates, {2, seq, @rank})) <= 1.0e-5
        assert {:f32, {2, ^seq}, _} = diagnostics.effective_rank
        ranks = gates |> Enum.chunk_every(@rank) |> Enum.map(&Enum.sum/1)
        assert relative_error(diagnostics.effective_rank, f32(ranks, {2, seq})) <= 1.0e-5
        assert_in_delta diagnostics.gate_penalty, Enum.sum(gates) / length(gates), 1.0e-5
      end
    end
  end

  @tag :tmp_dir
  backend_test "a file gives the same layer as its tensors", %{backend: backend, tmp_dir: dir} do
    tensors = tensors()
    x = uniform(5, {1, 9, @hidden}, -1.0, 1.0)
    from_file = SemiseparableLayer.load!(write_file(tensors, dir), backend: backend)
    from_map = SemiseparableLayer.load!(tensors, backend: backend)
    assert SemiseparableLayer.forward!(from_file, x) == SemiseparableLayer.forward!(from_map, x)
    assert inspect(from_file) =~ "hidden 12, rank 5"
  end

  backend_test "an empty sequence gives empty results", %{backend: backend} do
    layer = SemiseparableLayer.load!(tensors(), backend: backend)
    {y, diagnostics} = SemiseparableLayer.forward!(layer, f32([], {2, 0, @hidden}))
    assert y == {:f32, {2, 0, @hidden}, ""}

    assert diagnostics == %{
             gates: {:f32, {2, 0, @rank}, ""},
             effective_rank: {:f32, {2, 0}, ""},
             gate_penalty: 0.0
           }
  end

  # test/c_src/core/semiseparable/gradient_test.cpp compares every weight with differences.
  backend_test "grad: of the input and of each weight by its name", %{backend: backend} do
    tensors = tensors()
    layer = SemiseparableLayer.load!(tensors, backend: backend)
    x = uniform(5, {2, 4, @hidden}, -1.0, 1.0)
    dy = uniform(6, {2, 4, @hidden}, -1.0, 1.0)
    options = [bidirectional: true, d_gate_penalty: 3]
    {dx, weights} = SemiseparableLayer.grad!(layer, x, dy, options)
    shapes = fn tensors -> Map.new(tensors, fn {name, {type, shape, _}} -> {name, {type, shape}} end) end
    assert shapes.(weights) == shapes.(tensors)

    loss = fn x ->
      {y, %{gate_penalty: penalty}} = SemiseparableLayer.forward_bidirectional!(layer, x)
      (floats(y) |> Enum.zip_with(floats(dy), &(&1 * &2)) |> Enum.sum()) + 3 * penalty
    end

    moved = fn i, step -> f32(List.update_at(floats(x), i, &(&1 + step)), {2, 4, @hidden}) end
    differences = for i <- 0..(8 * @hidden - 1), do: (loss.(moved.(i, 0.01)) - loss.(moved.(i, -0.01))) / 0.02
    assert {:f32, {2, 4, @hidden}, _} = dx
    assert relative_error(dx, f32(differences, {2, 4, @hidden})) <= 1.0e-2
    refute SemiseparableLayer.grad!(layer, x, dy) == {dx, weights}
  end

  test "grad names the bad argument" do
    layer = SemiseparableLayer.load!(tensors(), backend: :host)
    x = uniform(5, {2, 4, @hidden}, -1.0, 1.0)

    for {argument, call} <- [
          {"layer", fn -> SemiseparableLayer.grad!(:none, x, x) end},
          {"x", fn -> SemiseparableLayer.grad!(layer, f32([1.0], {1}), x) end},
          {"dy", fn -> SemiseparableLayer.grad!(layer, x, uniform(5, {2, 3, @hidden}, -1.0, 1.0)) end},
          {"dy", fn -> SemiseparableLayer.grad!(layer, x, nil) end},
          {":bidirectional", fn -> SemiseparableLayer.grad!(layer, x, x, bidirectional: 1) end},
          {":d_gate_penalty", fn -> SemiseparableLayer.grad!(layer, x, x, d_gate_penalty: :one) end},
          {":reverse", fn -> SemiseparableLayer.grad!(layer, x, x, reverse: true) end}
        ] do
      assert %ExPhil.Native.Error{argument: ^argument} = assert_raise(ExPhil.Native.Error, call)
    end
  end

  backend_test "a layer is shared between processes", %{backend: backend} do
    layer = SemiseparableLayer.load!(tensors(), backend: backend)
    x = uniform(5, {1, 50, @hidden}, -1.0, 1.0)
    expected = SemiseparableLayer.forward!(layer, x)
    results = 1..16 |> Task.async_stream(fn _ -> SemiseparableLayer.forward!(layer, x) end) |> Enum.to_list()
    assert Enum.all?(results, &(&1 == {:ok, expected}))
  end

  backend_test "bad weights are named", %{backend: backend} do
    good = tensors()

    for name <- Map.keys(good) do
      for bad <- [Map.delete(good, name), Map.put(good, name, f32([1.0, 2.0], {1, 2}))] do
        assert {:error, %Error{kind: :invalid_checkpoint} = error} =
                 SemiseparableLayer.load(bad, backend: backend)

        assert error.argument == "tensors"
      end

      {:f32, shape, <<_::32, rest::binary>>} = good[name]
      nan = Map.put(good, name, {:f32, shape, <<0, 0, 192, 127>> <> rest})
      assert {:error, error} = SemiseparableLayer.load(nan, backend: backend)
      assert Exception.message(error) =~ name
      assert {:ok, _layer} = SemiseparableLayer.load(nan, backend: backend, check_finite: false)
      short = Map.put(good, name, {:f32, shape, rest})
      assert {:error, %Error{argument: ^name}} = SemiseparableLayer.load(short, backend: backend)
    end

    spare = Map.put(good, "V_proj.bias", f32([1.0], {1}))
    assert {:error, error} = SemiseparableLayer.load(spare, backend: backend)
    assert Exception.message(error) =~ "V_proj.bias"
    assert {:error, %Error{argument: "tensors"}} = SemiseparableLayer.load(%{a: 1}, backend: backend)
    assert {:error, %Error{kind: :file_error}} = SemiseparableLayer.load("/no/such/file", backend: backend)
    assert {:error, %Error{argument: "path"}} = SemiseparableLayer.load(:no_path, backend: backend)
    assert_raise Error, ~r/unknown option/, fn -> SemiseparableLayer.load!(good, precision: :f16) end
  end

  backend_test "bad input raises and leaves the layer as it was", %{backend: backend} do
    layer = SemiseparableLayer.load!(tensors(), backend: backend)
    x = uniform(5, {1, 3, @hidden}, -1.0, 1.0)
    good = SemiseparableLayer.forward!(layer, x)

    bad = [
      {uniform(1, {3, @hidden}, 0.0, 1.0), "{3, 12}"},
      {uniform(1, {1, 3, 11}, 0.0, 1.0), "{1, 3, 11}"},
      {{:f16, {1, 1, @hidden}, <<0::size(@hidden * 16)>>}, "f16"},
      {{:f32, {1, 3, @hidden}, <<0::32>>}, "4"},
      {:no_tensor, "no_tensor"}
    ]

    for {tensor, word} <- bad,
        function <- [&SemiseparableLayer.forward!/2, &SemiseparableLayer.forward_bidirectional!/2] do
      error = assert_raise Error, fn -> function.(layer, tensor) end
      assert error.argument == "x"
      assert Exception.message(error) =~ word
      assert SemiseparableLayer.forward!(layer, x) == good
    end

    assert_raise Error, ~r/layer/, fn -> SemiseparableLayer.forward!(:no_layer, x) end
  end

  test "an invalid layer" do
    for call <- [&SemiseparableLayer.info!/1, &SemiseparableLayer.forward!(&1, f32([0.0], {1, 1, 1}))] do
      error = assert_raise ExPhil.Native.Error, fn -> call.(:layer) end
      assert {error.kind, error.argument} == {:invalid_argument, "layer"}
    end
  end
end
