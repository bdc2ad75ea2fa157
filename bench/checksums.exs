# Checksums of results, one line each, to compare two builds of this library bit by bit:
#
#   mix run bench/checksums.exs host > before.txt        (or cuda)
#
# Goldens of the scan, the recorded match and its rollbacks, windows, batches, exported states, scans of many sizes
# and types, associative scans and the AR-SSM layer. Needs the shared data (EXPHIL_SHARED, else ../shared). Equal
# lines mean equal bits on the same device; on another device or SIMD target they may differ.
alias ExPhil.Native.{AssociativeScan, Policy, Safetensors, SelectiveScan, SemiseparableLayer}

defmodule Checksums do
  @shared System.get_env("EXPHIL_SHARED", "../shared")

  def file(name), do: Path.join(@shared, name)
  def read(name), do: Safetensors.read!(file(name))

  def line(name, result) do
    hash = :crypto.hash(:sha256, :erlang.term_to_binary(result)) |> Base.encode16(case: :lower)
    IO.puts("#{binary_part(hash, 0, 24)}  #{name}")
  end

  # ---- inputs ----

  def uniform(seed, shape, type, min, max) do
    {bytes, _} = :crypto.hash(:sha256, "#{seed}") |> stream(Tuple.product(shape))

    {type, shape,
     for(<<word::32 <- bytes>>, into: <<>>, do: encode(type, min + (max - min) * word / 4_294_967_296))}
  end

  # Four bytes for each number, by SHA-256 in counter mode.
  defp stream(key, count) do
    blocks = div(count + 7, 8)
    bytes = for i <- 1..max(blocks, 1), into: <<>>, do: :crypto.hash(:sha256, [key, <<i::64>>])
    {binary_part(bytes, 0, 4 * count), key}
  end

  defp encode(:f32, value), do: <<value::float-32-little>>
  defp encode(:f16, value), do: <<value::float-16-little>>
  defp encode(:bf16, value), do: binary_part(<<value::float-32-little>>, 2, 2)
  defp encode(:c64, value), do: <<value::float-32-little, -0.5 * value::float-32-little>>
  defp encode(:s64, value), do: <<trunc(1000 * value)::64-signed-little>>

  # ---- the selective scan ----

  def goldens(backend) do
    for path <- file("goldens/selective_scan/*.safetensors") |> Path.wildcard() |> Enum.sort() do
      {:ok, metadata} = Safetensors.metadata(path)
      tensors = join(Safetensors.read!(path))
      [x, dt, a, b, c] = Enum.map(~w(x dt a b c), &Map.fetch!(tensors, &1))
      given = for name <- [:d, :z, :dt_bias, :initial_state], t = tensors[to_string(name)], do: {name, t}

      options =
        given ++
          [
            backend: backend,
            discretization: String.to_atom(metadata["discretization"]),
            dt_softplus: metadata["dt_softplus"] == "true",
            reverse: metadata["reverse"] == "true"
          ]

      name = Path.basename(path, ".safetensors")
      line("golden #{name}", SelectiveScan.scan(x, dt, a, b, c, [return_state: true] ++ options))
      line("golden #{name} states", SelectiveScan.scan_with_states(x, dt, a, b, c, options))
    end
  end

  defp join(tensors) do
    Enum.reduce(tensors, %{}, fn {name, {type, shape, real} = tensor}, joined ->
      cond do
        String.ends_with?(name, "_im") ->
          joined

        String.ends_with?(name, "_re") and type == :f32 ->
          base = String.replace_suffix(name, "_re", "")
          {_, _, imaginary} = tensors[base <> "_im"]
          parts = fn binary -> for <<part::binary-size(4) <- binary>>, do: part end
          pairs = Enum.zip_with(parts.(real), parts.(imaginary), &(&1 <> &2))
          Map.put(joined, base, {:c64, shape, IO.iodata_to_binary(pairs)})

        true ->
          Map.put(joined, name, tensor)
      end
    end)
  end

  @sizes [
    {1, 1, 1, 1},
    {2, 60, 64, 16},
    {3, 59, 33, 7},
    {2, 65, 48, 16},
    {1, 257, 30, 5},
    {2, 300, 512, 16},
    {1, 1024, 256, 16},
    {5, 61, 96, 128},
    {1, 700, 40, 64},
    {2, 63, 24, 256}
  ]

  def scans(backend) do
    for {batch, seq, dim, state} = size <- @sizes,
        type <- [:f32, :f16, :bf16],
        rule <- [:zoh, :foh, :bilinear] do
      x = uniform("x#{inspect(size)}", {batch, seq, dim}, type, -1.0, 1.0)
      dt = uniform("dt#{inspect(size)}", {batch, seq, dim}, type, 0.01, 0.2)
      z = uniform("z#{inspect(size)}", {batch, seq, dim}, type, -2.0, 2.0)
      a = uniform("a#{inspect(size)}", {dim, state}, :f32, -4.0, -0.1)
      b = uniform("b#{inspect(size)}", {batch, seq, state}, type, -1.0, 1.0)
      c = uniform("c#{inspect(size)}", {batch, seq, state}, type, -1.0, 1.0)
      d = uniform("d#{inspect(size)}", {dim}, :f32, -1.0, 1.0)
      name = "scan #{inspect(size)} #{type} #{rule}"
      common = [backend: backend, discretization: rule]
      line(name, SelectiveScan.scan(x, dt, a, b, c, common))
      full = [d: d, z: z, dt_bias: d, dt_softplus: true, dt_range: {0.001, 0.5}] ++ common
      line("#{name} full", SelectiveScan.scan(x, dt, a, b, c, [return_state: true, reverse: true] ++ full))
      line("#{name} both", SelectiveScan.bidirectional(x, dt, a, b, c, full))

      for algorithm <- [:sequential, :chunked] do
        line("#{name} #{algorithm}", SelectiveScan.scan(x, dt, a, b, c, [algorithm: algorithm] ++ common))
      end
    end
  end

  # ---- the policy ----

  def policy(backend) do
    match = read("melee/match.safetensors")
    {:f32, {count, width}, obs} = match["obs"]
    row = fn i -> binary_part(obs, 4 * width * rem(i, count), 4 * width) end
    model = Policy.load!(file("melee/policy.safetensors"), backend: backend)

    session = Policy.new_session!(model)
    line("match steps", for(i <- 0..(count - 1), do: Policy.step!(session, row.(i))))
    line("match state", Policy.export_state!(session))
    line("match prefill", Policy.prefill!(Policy.new_session!(model), match["obs"]))
    rollback(model)

    for agents <- [1, 2, 5, 8, 9, 17, 64, 300, 1100] do
      sessions = for _ <- 1..agents, do: Policy.new_session!(model)
      rows = fn frame -> for(i <- 0..(agents - 1), into: <<>>, do: row.(31 * i + frame)) end
      line("batch #{agents}", for(frame <- 0..3, do: Policy.step_batch!(sessions, rows.(frame))))
      line("batch #{agents} states", Policy.export_state!(List.last(sessions)))
    end

    for {windows, seq} <- [{1, 60}, {3, 60}, {64, 60}, {2, 1}, {200, 17}, {1, 3600}] do
      binary = for i <- 0..(windows - 1), f <- 0..(seq - 1), into: <<>>, do: row.(i * 13 + f)
      line("windows #{windows}x#{seq}", Policy.window!(model, {:f32, {windows, seq, width}, binary}))
    end
  end

  defp rollback(model) do
    trace = read("melee/rollback.safetensors")
    {:s32, {count}, numbers} = trace["frame"]
    {:f32, {^count, width}, obs} = trace["obs"]
    session = Policy.new_session!(model)

    {outs, _} =
      for(<<number::32-signed-little <- numbers>>, do: number)
      |> Enum.with_index()
      |> Enum.map_reduce(%{}, fn {number, i}, before ->
        before =
          case before do
            %{^number => snapshot} ->
              Policy.restore!(session, snapshot)
              before

            _ ->
              Map.put(before, number, Policy.snapshot!(session))
          end

        {Policy.step!(session, binary_part(obs, 4 * width * i, 4 * width)), Map.delete(before, number - 9)}
      end)

    line("rollback", outs)
  end

  # ---- the others ----

  def associative(backend) do
    for {shape, axis} <- [
          {{3, 7}, 1},
          {{2, 1000, 5}, 1},
          {{4, 4097, 16}, 1},
          {{2, 20_000}, 1},
          {{33, 65, 3}, 0}
        ],
        type <- [:f32, :c64, :s64] do
      x = uniform("sum#{inspect(shape)}", shape, type, -1.0, 1.0)
      a = uniform("a#{inspect(shape)}", shape, type, 0.2, 0.99)
      name = "#{inspect(shape)} #{axis} #{type}"
      options = [axis: axis, backend: backend]
      line("cumsum #{name}", AssociativeScan.cumsum(x, options))
      line("cumsum reverse #{name}", AssociativeScan.cumsum(x, [reverse: true] ++ options))

      if type == :f32 do
        line("cumsum compensated #{name}", AssociativeScan.cumsum(x, [compensated: true] ++ options))
        line("cumprod #{name}", AssociativeScan.cumprod(a, options))
        line("cummax #{name}", AssociativeScan.cummax(x, options))
        line("bidirectional #{name}", AssociativeScan.bidirectional(x, [op: :cummin] ++ options))
      end

      if type != :s64, do: line("recurrence #{name}", AssociativeScan.linear_recurrence(a, x, options))
    end
  end

  def layer(backend) do
    for {hidden, rank, gate, seq} <- [{4, 2, 3, 8}, {64, 16, 16, 60}, {96, 24, 33, 201}] do
      tensor = fn name, shape -> {name, uniform("#{name}#{hidden}", shape, :f32, -0.5, 0.5)} end

      weights =
        Map.new([
          tensor.("complexity_gate.0.weight", {gate, hidden}),
          tensor.("complexity_gate.0.bias", {gate}),
          tensor.("complexity_gate.2.weight", {rank, gate}),
          tensor.("complexity_gate.2.bias", {rank}),
          tensor.("U_proj.weight", {rank, hidden}),
          tensor.("V_proj.weight", {rank, hidden}),
          tensor.("T_conv.weight", {hidden, 1, 3}),
          tensor.("output_proj.weight", {hidden, rank}),
          tensor.("output_proj.bias", {hidden})
        ])

      {:ok, layer} = SemiseparableLayer.load(weights, backend: backend)
      x = uniform("layer#{hidden}", {3, seq, hidden}, :f32, -1.0, 1.0)
      line("layer #{hidden} #{rank}", SemiseparableLayer.forward!(layer, x))
      line("layer #{hidden} #{rank} both", SemiseparableLayer.forward_bidirectional!(layer, x))
    end
  end
end

backend = System.argv() |> Enum.at(0, "host") |> String.to_atom()
Checksums.goldens(backend)
Checksums.scans(backend)
Checksums.policy(backend)
Checksums.associative(backend)
Checksums.layer(backend)
