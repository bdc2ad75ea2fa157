defmodule ExPhil.Native.SelectiveScan.ReplacementTest do
  # The calls of ExPhil's own module, with the shapes that they have there.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers
  alias ExPhil.Native.{Error, SelectiveScan}

  @sizes {2, 9, 6, 3}

  defp problem do
    {uniform(1, {2, 9, 6}, -1.0, 1.0), uniform(2, {2, 9, 6}, 0.1, 0.2), uniform(3, {6, 3}, -1.0, -0.1),
     uniform(4, {2, 9, 3}, -1.0, 1.0), uniform(5, {2, 9, 3}, -1.0, 1.0)}
  end

  defp binary({:f32, _shape, binary}), do: binary

  test "the calls on binaries are those on tensors" do
    {x, dt, a, b, c} = tensors = problem()
    [bx, bdt, ba, bb, bc] = tensors |> Tuple.to_list() |> Enum.map(&binary/1)
    {y, states} = SelectiveScan.scan_with_states(x, dt, a, b, c)

    assert SelectiveScan.selective_scan(bx, bdt, ba, bb, bc, @sizes) ==
             binary(SelectiveScan.scan(x, dt, a, b, c))

    assert SelectiveScan.selective_scan_forward_with_states(bx, bdt, ba, bb, bc, @sizes) ==
             binary(y) <> binary(states)
  end

  # On a GPU too where the gradient has a kernel there; the host backend is what every machine has.
  test "the gradient on binaries is dx, ddt, db and dc, one after another" do
    {x, dt, a, b, c} = problem()
    {_, states} = SelectiveScan.scan_with_states(x, dt, a, b, c)
    dy = uniform(6, {2, 9, 6}, -1.0, 1.0)
    call = fn -> SelectiveScan.backward(dy, x, states, dt, a, b, c) end
    [bdy, bx, bstates, bdt, ba, bb, bc] = Enum.map([dy, x, states, dt, a, b, c], &binary/1)

    same = fn -> SelectiveScan.selective_scan_backward(bdy, bx, bstates, bdt, ba, bb, bc, @sizes) end
    assert same.() == call.() |> Tuple.to_list() |> Enum.map_join(&binary/1)
  end

  test "a binary of another size is an error that names it" do
    {x, dt, a, b, c} = problem()
    short = binary_part(binary(b), 0, 8)

    error =
      assert_raise Error, fn ->
        SelectiveScan.selective_scan(binary(x), binary(dt), binary(a), short, binary(c), @sizes)
      end

    assert {error.kind, error.argument} == {:invalid_argument, "b"}
  end

  test "sizes that are not four integers are an error that names them" do
    for sizes <- [{2, 6, 4}, {2, 9, 6, 4.0}, [2, 9, 6, 4], nil] do
      calls = [
        fn -> SelectiveScan.selective_scan(<<>>, <<>>, <<>>, <<>>, <<>>, sizes) end,
        fn -> SelectiveScan.selective_scan_forward_with_states(<<>>, <<>>, <<>>, <<>>, <<>>, sizes) end,
        fn -> SelectiveScan.selective_scan_backward(<<>>, <<>>, <<>>, <<>>, <<>>, <<>>, <<>>, sizes) end
      ]

      for call <- calls do
        error = assert_raise Error, call
        assert {error.kind, error.argument} == {:invalid_argument, "sizes"}
        assert error.message =~ "must be {batch, seq, dim, state}, got"
      end
    end
  end

  test "what it says about itself" do
    assert SelectiveScan.ping() == "pong from selective_scan_nif"
    assert SelectiveScan.cuda_available() == SelectiveScan.cuda_available?()
    assert {:ok, text} = SelectiveScan.device_info()
    assert is_binary(text)

    if SelectiveScan.cuda_available?() do
      assert text =~ SelectiveScan.cuda_device_info()
    else
      assert_raise Error, fn -> SelectiveScan.cuda_device_info() end
    end
  end

  test "what it says about training" do
    info = SelectiveScan.training_workflow_info()

    assert Enum.sort(Map.keys(info)) == [
             :checkpoint_compatible,
             :infer_backbone,
             :reason,
             :speedup,
             :train_backbone
           ]

    assert {info.train_backbone, info.infer_backbone} == {:mamba, :mamba_nif}
    assert SelectiveScan.supports_training?() == Code.ensure_loaded?(ExPhil.Native.Defn)
    assert SelectiveScan.validate_mode!(:inference) == :ok

    if SelectiveScan.supports_training?(),
      do: assert(SelectiveScan.validate_mode!(:training) == :ok),
      else: assert_raise(ArgumentError, ~r/grad/, fn -> SelectiveScan.validate_mode!(:training) end)

    assert_raise ArgumentError, fn -> SelectiveScan.validate_mode!(:both) end
  end
end
