defmodule ExPhil.Native.Safetensors do
  @moduledoc """
  Reads and writes [safetensors](https://github.com/huggingface/safetensors) files: the format of checkpoints and
  of recorded frames.

  A tensor is `{type, shape, binary}`, row-major and little-endian. Types are those of the format: `:f64 :f32 :f16 :bf16
  :c64 :s64 :s32 :s16 :s8 :u64 :u32 :u16 :u8 :bool`, and the eight-bit floats as raw bytes: `:f8_e4m3fn :f8_e5m2 :f8_e8m0
  :f8_e4m3fnuz :f8_e5m2fnuz`.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Error, Json, NIF, Queue}

  @type tensor :: {type :: atom(), shape :: tuple(), binary()}

  # The file's name of each type, and the bytes of an element.
  @types %{
    f32: {"F32", 4},
    f16: {"F16", 2},
    bf16: {"BF16", 2},
    f64: {"F64", 8},
    c64: {"C64", 8},
    s32: {"I32", 4},
    s64: {"I64", 8},
    s16: {"I16", 2},
    s8: {"I8", 1},
    u64: {"U64", 8},
    u32: {"U32", 4},
    u16: {"U16", 2},
    u8: {"U8", 1},
    bool: {"BOOL", 1},
    f8_e4m3fn: {"F8_E4M3", 1},
    f8_e5m2: {"F8_E5M2", 1},
    f8_e8m0: {"F8_E8M0", 1},
    f8_e4m3fnuz: {"F8_E4M3FNUZ", 1},
    f8_e5m2fnuz: {"F8_E5M2FNUZ", 1}
  }

  # What core/checkpoint/safetensors_header.hpp reads; a string in its JSON has a mark before and behind it.
  @most_dimensions 8
  @most 0x8000000000000000
  @most_entries 65_536
  @most_name 1024
  @most_text 1_048_576 - 8
  @most_header 33_554_432
  @name "strings of UTF-8 of at most #{@most_name} bytes"

  @doc """
  Every tensor of the file, by name.

  Returns `{:ok, tensors}`, a map of `{type, shape, binary}` by name. The entire file is read and checked first: a truncated or
  inconsistent file is an error of kind `:invalid_checkpoint`, one that cannot be read of kind `:file_error`.
  """
  fallible read(path :: Path.t()) :: %{String.t() => tensor()}

  def read(path) do
    with {:ok, {tensors, _metadata}} <- open(path), do: {:ok, tensors}
  end

  @doc """
  The file's `__metadata__`: strings by name.

  Returns `{:ok, metadata}`, an empty map where the file has none. Errors are those of `read/1`.
  """
  fallible metadata(path :: Path.t()) :: %{String.t() => String.t()}

  def metadata(path) do
    with {:ok, {_tensors, metadata}} <- open(path), do: {:ok, metadata}
  end

  @doc """
  Writes tensors, `{type, shape, binary}` by name, with an optional map of strings as metadata.

  Returns `:ok`, or an error: of kind `:file_error` where the file cannot be written, and `:invalid_argument` for what `read/1` would
  refuse, or return under another name: names and metadata are strings of UTF-8, no tensor is called `__metadata__`, and shapes have
  at most 8 dimensions.

      iex> path = Path.join(System.tmp_dir!(), "exphil_doc_#{System.unique_integer([:positive])}.safetensors")
      iex> tensor = {:f32, {2}, <<1.0::float-32-little, 2.0::float-32-little>>}
      iex> :ok = ExPhil.Native.Safetensors.write(path, %{"x" => tensor})
      iex> {:ok, read} = ExPhil.Native.Safetensors.read(path)
      iex> File.rm!(path)
      iex> read == %{"x" => tensor}
      true
  """
  fallible write(
             path :: Path.t(),
             tensors :: %{String.t() => tensor()},
             metadata :: %{String.t() => String.t()} \\ %{}
           ) :: :ok

  def write(path, tensors, metadata \\ %{}) do
    with :ok <- check_path(path), :ok <- check_tensors(tensors), :ok <- check_metadata(metadata) do
      # By decreasing element size, like the reference writer: every tensor is then aligned to its element.
      sorted = Enum.sort_by(tensors, fn {name, {type, _, _}} -> {-element_size(type), name} end)
      data = for {_name, {_type, _shape, binary}} <- sorted, do: binary
      header = header(sorted, metadata)

      with :ok <- check_header(header),
           do: write_file(path, [<<byte_size(header)::64-little>>, header | data])
    end
  end

  @doc false
  @spec check_path(term(), String.t()) :: :ok | {:error, Error.t()}
  def check_path(path, argument \\ "path")

  def check_path(path, argument) when is_binary(path) and path != "" do
    # The operating system would cut a name at a zero byte.
    if String.contains?(path, <<0>>),
      do: {:error, Error.invalid(argument, "a path without zero bytes", path)},
      else: :ok
  end

  def check_path(path, argument), do: {:error, Error.invalid(argument, "a path", path)}

  @doc false
  # Whether it is {type, shape, binary} of one of these types, and the three agree as `read/1` requires it.
  @spec sound?(term(), [atom()]) :: boolean()
  def sound?({type, shape, binary}, types)
      when is_map_key(@types, type) and is_tuple(shape) and tuple_size(shape) <= @most_dimensions and
             is_binary(binary) do
    dims = Tuple.to_list(shape)

    type in types and Enum.all?(dims, &(is_integer(&1) and &1 >= 0)) and
      fits?(dims, element_size(type)) and Enum.product(dims) * element_size(type) == byte_size(binary)
  end

  def sound?(_, _types), do: false

  # Sizes are multiplied in 63 bits, in their order: a zero behind others does not make them small.
  defp fits?(dims, bytes) do
    Enum.all?(dims, &(&1 < @most)) and dims |> Enum.scan(bytes, &*/2) |> Enum.all?(&(&1 < @most))
  end

  defp open(path) do
    with :ok <- check_path(path) do
      case Queue.run(&NIF.read_safetensors(path, &1)) do
        {:ok, contents} -> {:ok, contents}
        {:error, reason} -> {:error, Error.from_nif(reason)}
      end
    end
  end

  defp write_file(path, contents) do
    with {:error, posix} <- File.write(path, contents) do
      {:error, Error.not_written("path", path, posix)}
    end
  end

  defp element_size(type), do: @types |> Map.fetch!(type) |> elem(1)

  defp check_tensors(tensors) when is_map(tensors) and not is_struct(tensors) do
    with :ok <- check_count(tensors, "tensors"),
         do: Enum.find_value(tensors, :ok, fn {name, tensor} -> tensor_error(name, tensor) end)
  end

  # A list may have a name twice.
  defp check_tensors(other), do: {:error, Error.invalid("tensors", "a map of tensors by name", other)}

  defp tensor_error(name, tensor) do
    cond do
      not name?(name) ->
        {:error, Error.invalid("tensors", "a map whose keys are #{@name}", name)}

      name == "__metadata__" ->
        {:error,
         Error.new(
           :invalid_argument,
           "tensors",
           "tensors must not have one called __metadata__, the name of the metadata"
         )}

      not sound?(tensor, Map.keys(@types)) ->
        {:error, Error.invalid(name, "a {type, shape, binary} that agree, of at most 8 dimensions", tensor)}

      true ->
        nil
    end
  end

  defp check_metadata(metadata) when is_map(metadata) and not is_struct(metadata) do
    with :ok <- check_count(metadata, "metadata"),
         do: Enum.find_value(metadata, :ok, fn {name, value} -> metadata_error(name, value) end)
  end

  defp check_metadata(other), do: {:error, Error.invalid("metadata", "a map of strings by name", other)}

  defp metadata_error(name, value) do
    cond do
      not name?(name) ->
        {:error, Error.invalid("metadata", "a map whose keys are #{@name}", name)}

      not (is_binary(value) and String.valid?(value)) ->
        {:error, Error.invalid("metadata", "a map whose values are strings of UTF-8", value)}

      byte_size(Json.encode(value)) > @most_text ->
        {:error, Error.invalid("metadata", "a map of strings below a megabyte in JSON", value)}

      true ->
        nil
    end
  end

  defp name?(name), do: is_binary(name) and byte_size(name) <= @most_name and String.valid?(name)

  defp check_count(map, _argument) when map_size(map) <= @most_entries, do: :ok

  defp check_count(map, argument) do
    message = "#{argument} has #{map_size(map)} entries; the limit is #{@most_entries}"
    {:error, Error.new(:limit_exceeded, argument, message)}
  end

  defp check_header(header) when byte_size(header) <= @most_header, do: :ok

  defp check_header(header) do
    message = "the header is of #{byte_size(header)} bytes; the limit is #{@most_header}"
    {:error, Error.new(:limit_exceeded, "tensors", message)}
  end

  # Padded with blanks to a multiple of 8, so that the data starts aligned.
  defp header(tensors, metadata) do
    {entries, _end} =
      Enum.map_reduce(tensors, 0, fn {name, {type, shape, binary}}, start ->
        stop = start + byte_size(binary)
        {type_name, _} = Map.fetch!(@types, type)
        {{name, %{dtype: type_name, shape: Tuple.to_list(shape), data_offsets: [start, stop]}}, stop}
      end)

    metadata = if metadata == %{}, do: [], else: [{"__metadata__", metadata}]
    json = Json.encode(Map.new(metadata ++ entries))
    json <> String.duplicate(" ", rem(8 - rem(byte_size(json), 8), 8))
  end
end
