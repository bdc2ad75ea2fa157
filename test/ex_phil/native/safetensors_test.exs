defmodule ExPhil.Native.SafetensorsTest do
  use ExUnit.Case, async: true

  import Bitwise
  alias ExPhil.Native.{Error, Safetensors}

  doctest ExPhil.Native.Safetensors

  @moduletag :tmp_dir

  test "written tensors are read back, whatever the type, the shape and the name", %{tmp_dir: folder} do
    path = Path.join(folder, "all.safetensors")

    tensors = %{
      "scalar" => {:f32, {}, <<1.5::float-32-little>>},
      "empty" => {:f32, {0, 3}, <<>>},
      "half" => {:f16, {3}, <<1, 2, 3, 4, 5, 6>>},
      "brain" => {:bf16, {1, 1}, <<7, 8>>},
      "double" => {:f64, {2}, <<1.0::float-64-little, -2.0::float-64-little>>},
      "frame" => {:s32, {2}, <<-1::32-little, 5::32-little>>},
      "long" => {:s64, {1}, <<-9::64-little>>},
      "complex" => {:c64, {1}, <<1.0::float-32-little, 2.0::float-32-little>>},
      "s16" => {:s16, {1}, <<-2::16-little>>},
      "s8" => {:s8, {3}, <<1, 2, 255>>},
      "u64" => {:u64, {1}, <<9::64-little>>},
      "u32" => {:u32, {2}, <<0::32, 42::32-little>>},
      "u16" => {:u16, {1}, <<1, 2>>},
      "u8" => {:u8, {2, 2}, <<1, 2, 3, 4>>},
      "bool" => {:bool, {2}, <<0, 1>>},
      "f8_e4m3fn" => {:f8_e4m3fn, {1}, <<1>>},
      "f8_e5m2" => {:f8_e5m2, {1}, <<2>>},
      "f8_e8m0" => {:f8_e8m0, {1}, <<3>>},
      "f8_e4m3fnuz" => {:f8_e4m3fnuz, {1}, <<4>>},
      "f8_e5m2fnuz" => {:f8_e5m2fnuz, {1}, <<5>>},
      "quote \" backslash \\ newline \n snow ☃" => {:f32, {1}, <<0::32>>}
    }

    metadata = %{"discretization" => "zoh", "a \"b\"" => "line\nbreak"}
    assert Safetensors.write(path, tensors, metadata) == :ok
    assert Safetensors.read(path) == {:ok, tensors}
    assert Safetensors.metadata(path) == {:ok, metadata}
    assert Safetensors.read!(path) == tensors
  end

  test "every tensor starts at a multiple of its element's size", %{tmp_dir: folder} do
    path = Path.join(folder, "aligned.safetensors")
    :ok = Safetensors.write(path, %{"a" => {:f16, {1}, <<1, 2>>}, "b" => {:f64, {1}, <<0::64>>}})
    <<size::64-little, header::binary-size(size), _::binary>> = File.read!(path)
    assert rem(size, 8) == 0
    assert header =~ ~s("b":{"data_offsets":[0,8],"dtype":"F64","shape":[1]})
  end

  test "tensors that disagree with their shape are not written", %{tmp_dir: folder} do
    path = Path.join(folder, "bad.safetensors")

    for bad <- [
          {:f32, {2}, <<0::32>>},
          {:u9, {1}, <<0>>},
          {:f32, {-1}, <<>>},
          {:f32, [1], <<0::32>>},
          :nothing,
          {:f32, {1}, :x}
        ] do
      assert {:error, %Error{kind: :invalid_argument, argument: "x"}} = Safetensors.write(path, %{"x" => bad})
    end

    refute File.exists?(path)
    assert {:error, %Error{kind: :file_error}} = Safetensors.write(Path.join(folder, "no/such/folder"), %{})
  end

  test "what could not be read again, or under another name, is not written", %{tmp_dir: folder} do
    path = Path.join(folder, "bad.safetensors")
    x = {:f32, {1}, <<0::32>>}

    refused = fn argument, to, tensors, metadata ->
      assert {:error, %Error{argument: ^argument, kind: kind} = error} =
               Safetensors.write(to, tensors, metadata)

      assert kind in [:invalid_argument, :limit_exceeded]
      assert Exception.message(error) =~ argument
      refute File.exists?(path)
    end

    for to <- [nil, :path, "", "a\0b"], do: refused.("path", to, %{"x" => x}, %{})

    for names <- [<<255>>, 5, :x, nil, "__metadata__", String.duplicate("n", 1025)],
        do: refused.("tensors", path, %{names => x}, %{})

    for tensors <- [nil, [{"x", x}, {"x", x}], [1, 2], MapSet.new()],
        do: refused.("tensors", path, tensors, %{})

    refused.("x", path, %{"x" => {:f32, Tuple.duplicate(1, 9), <<0::32>>}}, %{})
    # Beyond 63 bits, whatever is multiplied by zero afterwards.
    for shape <- [{0, 0x8000000000000000}, {0x4000000000000000, 0}],
        do: refused.("x", path, %{"x" => {:f32, shape, <<>>}}, %{})

    for metadata <- [
          nil,
          [a: "b"],
          %{"a" => 5},
          %{"a" => <<255>>},
          %{"a" => nil},
          %{a: "b"},
          %{<<255>> => "b"},
          %{String.duplicate("n", 1025) => "b"},
          %{"a" => String.duplicate("v", 1_048_576)},
          %{"a" => String.duplicate("\n", 200_000)},
          Map.new(0..65_536, &{Integer.to_string(&1), "b"})
        ],
        do: refused.("metadata", path, %{"x" => x}, metadata)
  end

  test "what is just within the limits is written and read", %{tmp_dir: folder} do
    path = Path.join(folder, "large.safetensors")

    tensors = %{
      String.duplicate("é", 512) => {:f32, Tuple.duplicate(1, 8), <<0::32>>},
      "" => {:u8, {0, 1 <<< 40}, <<>>}
    }

    value = String.duplicate("v", 1_048_576 - 10)
    metadata = %{String.duplicate("n", 1024) => value, "\n" => value}
    assert Safetensors.write(path, tensors, metadata) == :ok
    assert Safetensors.read(path) == {:ok, tensors}
    assert Safetensors.metadata(path) == {:ok, metadata}
  end

  test "a path in a message is one line", %{tmp_dir: folder} do
    path = Path.join([folder, "absent", "a\n\e[31m"])

    for call <- [&Safetensors.write(&1, %{}), &Safetensors.read/1] do
      assert {:error, %Error{kind: :file_error} = error} = call.(path)
      refute Exception.message(error) =~ ~r/[\n\e]/
    end
  end

  test "files that cannot be read, and malformed files", %{tmp_dir: folder} do
    assert {:error, %Error{kind: :file_error}} = Safetensors.read(Path.join(folder, "absent"))
    assert {:error, %Error{kind: kind}} = Safetensors.read(folder)
    assert kind in [:file_error, :invalid_checkpoint]
    assert {:error, %Error{kind: :invalid_argument, argument: "path"}} = Safetensors.read(:path)
    assert {:error, %Error{kind: :invalid_argument}} = Safetensors.read("")
    assert {:error, %Error{kind: :invalid_argument}} = Safetensors.read("a\0b")
    assert_raise Error, fn -> Safetensors.read!(Path.join(folder, "absent")) end
  end

  test "a file cut at any length is refused", %{tmp_dir: folder} do
    path = Path.join(folder, "full")
    :ok = Safetensors.write(path, %{"x" => {:f32, {3}, <<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>>}})
    full = File.read!(path)
    cut = Path.join(folder, "cut")

    for length <- 0..(byte_size(full) - 1) do
      File.write!(cut, binary_part(full, 0, length))
      assert {:error, %Error{kind: :invalid_checkpoint}} = Safetensors.read(cut)
    end
  end
end
