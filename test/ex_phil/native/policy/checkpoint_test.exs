defmodule ExPhil.Native.Policy.CheckpointTest do
  # Malformed checkpoints: each is refused with an error that names the problem, and a model that was loaded before
  # still gives the same bits.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  setup context do
    backend = context[:backend] || :host
    model = Policy.load!(Policies.checkpoint(), backend: backend)
    frames = Policies.frames(8)
    expected = Policy.prefill!(Policy.new_session!(model), frames)

    check = fn -> assert Policy.prefill!(Policy.new_session!(model), frames) == expected end
    {:ok, check: check}
  end

  defp assert_refused(backend, path, kind, words, options \\ []) do
    assert {:error, %Error{kind: ^kind} = error} = Policy.load(path, [backend: backend] ++ options)
    for word <- words, do: assert(Exception.message(error) =~ word)
  end

  # A safetensors file of this header and data.
  defp file(name, header, data),
    do: Policies.checkpoint_bytes(name, <<byte_size(header)::64-little, header::binary, data::binary>>)

  backend_test "files that cannot be read", %{backend: backend, check: check} do
    assert_refused(backend, "/no/such/policy.safetensors", :file_error, ["/no/such/policy.safetensors"])
    assert {:error, %Error{}} = Policy.load(System.tmp_dir!(), backend: backend)
    assert_refused(backend, "", :invalid_argument, ["path"])
    assert_refused(backend, :policy, :invalid_argument, [":policy"])
    assert_refused(backend, Policies.checkpoint() <> <<0>>, :invalid_argument, ["zero bytes"])
    check.()
  end

  backend_test "a file cut short at any length", %{backend: backend, check: check} do
    full = File.read!(Policies.checkpoint())
    <<header::64-little, _::binary>> = full
    size = byte_size(full)
    # Every length around the start, the end of the header, and the end; a sample of the others.
    lengths =
      Enum.to_list(0..40) ++
        Enum.to_list((header - 4)..(header + 24)) ++
        Enum.to_list((size - 40)..(size - 1)) ++ Enum.take_every(40..size, 997)

    for length <- Enum.uniq(lengths) do
      path = Policies.checkpoint_bytes("cut_#{backend}", binary_part(full, 0, length))
      assert {:error, %Error{kind: :invalid_checkpoint}} = Policy.load(path, backend: backend)
    end

    check.()
  end

  backend_test "headers with wrong values", %{backend: backend, check: check} do
    name = &"lie_#{&1}_#{backend}"
    refused = fn path, words -> assert_refused(backend, path, :invalid_checkpoint, words) end
    refused.(Policies.checkpoint_bytes(name.(1), <<1_000_000::64-little, "{}">>), [])
    refused.(Policies.checkpoint_bytes(name.(2), <<0xFFFFFFFFFFFFFFFF::64-little, "{}">>), [])
    refused.(file(name.(3), "not json", <<>>), [])
    refused.(file(name.(4), ~s([1, 2]), <<>>), [])

    tensor = fn dtype, shape, from, to ->
      ~s({"dtype":"#{dtype}","shape":#{shape},"data_offsets":[#{from},#{to}]})
    end

    one = fn entry -> ~s({"input_proj.weight":#{entry}}) end
    refused.(file(name.(5), one.(tensor.("F32", "[2]", 0, 80)), <<0::64>>), [])
    refused.(file(name.(6), one.(tensor.("F32", "[3]", 0, 8)), <<0::64>>), [])
    refused.(file(name.(7), one.(tensor.("F32", "[2]", 8, 0)), <<0::64>>), [])
    refused.(file(name.(8), one.(tensor.("F32", "[2]", -8, 0)), <<0::64>>), [])
    refused.(file(name.(9), one.(tensor.("Q4", "[2]", 0, 8)), <<0::64>>), [])
    refused.(file(name.(10), one.(tensor.("F32", "[4294967296,4294967296]", 0, 8)), <<0::64>>), [])
    overlap = ~s({"a":#{tensor.("F32", "[2]", 0, 8)},"b":#{tensor.("F32", "[2]", 4, 12)}})
    refused.(file(name.(11), overlap, <<0::96>>), [])
    twice = ~s({"a":#{tensor.("F32", "[1]", 0, 4)},"a":#{tensor.("F32", "[1]", 4, 8)}})
    refused.(file(name.(12), twice, <<0::64>>), ["a"])
    check.()
  end

  backend_test "missing, unexpected and misshapen tensors are named", %{backend: backend, check: check} do
    tensors = Policies.tensors()

    required =
      ~w(input_proj.weight head.weight backbone.norm_f.weight backbone.layers.0.norm.weight backbone.layers.1.mixer.in_proj.weight
         backbone.layers.0.mixer.conv1d.weight backbone.layers.1.mixer.x_proj.weight backbone.layers.0.mixer.dt_proj.weight
         backbone.layers.1.mixer.A_log backbone.layers.0.mixer.D backbone.layers.1.mixer.out_proj.weight)

    for name <- required do
      path = Policies.checkpoint_of("missing_#{backend}", Map.delete(tensors, name))
      assert_refused(backend, path, :invalid_checkpoint, [name])
      {:f32, shape, binary} = tensors[name]
      longer = put_elem(shape, 0, elem(shape, 0) + 1)
      row = div(byte_size(binary), elem(shape, 0))
      misshapen = {:f32, longer, binary <> binary_part(binary, 0, row)}
      path = Policies.checkpoint_of("misshapen_#{backend}", Map.put(tensors, name, misshapen))
      assert {:error, %Error{kind: :invalid_checkpoint}} = Policy.load(path, backend: backend)
      path = Policies.checkpoint_of("typed_#{backend}", Map.put(tensors, name, {:s32, shape, binary}))
      assert_refused(backend, path, :invalid_checkpoint, [name])
    end

    spare = Map.put(tensors, "backbone.layers.0.mixer.extra", f32([1.0], {1}))

    assert_refused(backend, Policies.checkpoint_of("spare_#{backend}", spare), :invalid_checkpoint, [
      "mixer.extra"
    ])

    third = Map.put(tensors, "backbone.layers.7.norm.weight", tensors["backbone.layers.0.norm.weight"])
    assert_refused(backend, Policies.checkpoint_of("gap_#{backend}", third), :invalid_checkpoint, ["layers."])
    check.()
  end

  backend_test "weights that are not finite are refused, unless allowed", %{backend: backend, check: check} do
    name = "backbone.layers.1.mixer.D"
    {:f32, shape, <<_::32, rest::binary>>} = Policies.tensors()[name]

    for bits <- [0x7FC00000, 0x7F800000, 0xFF800000] do
      tensors = Map.put(Policies.tensors(), name, {:f32, shape, <<bits::32-little, rest::binary>>})
      path = Policies.checkpoint_of("nan_#{backend}", tensors)
      assert_refused(backend, path, :invalid_checkpoint, [name])
      assert {:ok, _} = Policy.load(path, backend: backend, check_finite: false)
    end

    check.()
  end

  backend_test "other sizes load, down to 1", %{backend: backend} do
    for sizes <- [
          [d_input: 1, d_model: 1, n_layer: 1, d_inner: 1, d_state: 1, d_conv: 2, dt_rank: 1, d_output: 1],
          [
            d_input: 287,
            d_model: 64,
            n_layer: 1,
            d_inner: 128,
            d_state: 16,
            d_conv: 4,
            dt_rank: 4,
            d_output: 64
          ],
          [d_input: 3, d_model: 17, n_layer: 4, d_inner: 33, d_state: 7, d_conv: 3, dt_rank: 2, d_output: 5]
        ] do
      model = Policy.load!(Policies.checkpoint(sizes), backend: backend)
      frames = Policies.frames(5, 7, sizes[:d_input])
      session = Policy.new_session!(model)
      outs = for i <- 0..4, do: Policy.step!(session, row(frames, i))
      {:f32, _, prefilled} = Policy.prefill!(Policy.new_session!(model), frames)
      assert relative_error(prefilled, IO.iodata_to_binary(outs)) <= 1.0e-5

      if backend == :cuda do
        on_host = Policy.load!(Policies.checkpoint(sizes), backend: :host)
        {:f32, _, host} = Policy.prefill!(Policy.new_session!(on_host), frames)
        assert relative_error(prefilled, host) <= 1.0e-5
      end
    end
  end
end
