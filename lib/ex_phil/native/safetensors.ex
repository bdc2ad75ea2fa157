defmodule ExPhil.Native.Safetensors do
  @moduledoc """
  Reads and writes [safetensors](https://github.com/huggingface/safetensors) files: the format of checkpoints and
  of recorded frames.

  A tensor is `{type, shape, binary}`, row-major and little-endian. Types are those of the format: `:f64 :f32 :f16 :bf16
  :c64 :s64 :s32 :s16 :s8 :u64 :u32 :u16 :u8 :bool`, and the eight-bit floats as raw bytes: `:f8_e4m3fn :f8_e5m2 :f8_e8m0
  :f8_e4m3fnuz :f8_e5m2fnuz`.
  """

  import ExPhil.Native.Raising, only: [raising: 2]

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

  @doc """
  Every tensor of the file, by name. The entire file is read and checked first: a truncated or inconsistent file is
  an error of kind `:invalid_checkpoint`, one that cannot be read of kind `:file_error`.
  """
  @spec read(Path.t()) :: {:ok, %{String.t() => tensor()}} | {:error, Error.t()}
  def read(path) do
    with {:ok, {tensors, _metadata}} <- open(path), do: {:ok, tensors}
  end

  @doc "The file's `__metadata__`: strings by name, empty where it has none."
  @spec metadata(Path.t()) :: {:ok, %{String.t() => String.t()}} | {:error, Error.t()}
  def metadata(path) do
    with {:ok, {_tensors, metadata}} <- open(path), do: {:ok, metadata}
  end

  raising read(path :: Path.t()) :: %{String.t() => tensor()}, "the tensors"

  @doc """
  Writes tensors by name, with an optional map of strings as metadata.

      iex> path = Path.join(System.tmp_dir!(), "exphil_doc_#{System.unique_integer([:positive])}.safetensors")
      iex> tensor = {:f32, {2}, <<1.0::float-32-little, 2.0::float-32-little>>}
      iex> :ok = ExPhil.Native.Safetensors.write(path, %{"x" => tensor})
      iex> {:ok, read} = ExPhil.Native.Safetensors.read(path)
      iex> File.rm!(path)
      iex> read == %{"x" => tensor}
      true
  """
  @spec write(Path.t(), %{String.t() => tensor()}, %{String.t() => String.t()}) :: :ok | {:error, Error.t()}
  def write(path, tensors, metadata \\ %{}) do
    with :ok <- check_all(tensors) do
      # By decreasing element size, like the reference writer: every tensor is then aligned to its element.
      sorted = Enum.sort_by(tensors, fn {name, {type, _, _}} -> {-element_size(type), name} end)
      data = for {_name, {_type, _shape, binary}} <- sorted, do: binary
      header = header(sorted, metadata)
      write_file(path, [<<byte_size(header)::64-little>>, header | data])
    end
  end

  @doc false
  @spec check_path(term()) :: :ok | {:error, Error.t()}
  def check_path(path) when is_binary(path) and path != "" do
    # The operating system would cut a name at a zero byte.
    if String.contains?(path, <<0>>),
      do: {:error, Error.invalid("path", "a path without zero bytes", path)},
      else: :ok
  end

  def check_path(path), do: {:error, Error.invalid("path", "a path", path)}

  defp open(path) do
    with :ok <- check_path(path) do
      case Queue.run(&NIF.read_safetensors(path, &1)) do
        {:ok, contents} -> {:ok, contents}
        {:error, reason} -> {:error, Error.from_nif(reason)}
      end
    end
  end

  defp write_file(path, contents) do
    case File.write(path, contents) do
      :ok ->
        :ok

      {:error, posix} ->
        {:error, Error.new(:file_error, "path", "#{path} cannot be written: #{:file.format_error(posix)}")}
    end
  end

  defp element_size(type), do: @types |> Map.fetch!(type) |> elem(1)

  defp check_all(tensors) do
    Enum.find_value(tensors, :ok, fn {name, tensor} ->
      if sound?(tensor),
        do: nil,
        else: {:error, Error.invalid(name, "a {type, shape, binary} that agree", tensor)}
    end)
  end

  defp sound?({type, shape, binary})
       when is_map_key(@types, type) and is_tuple(shape) and is_binary(binary) do
    dims = Tuple.to_list(shape)

    Enum.all?(dims, &(is_integer(&1) and &1 >= 0)) and
      Enum.product(dims) * element_size(type) == byte_size(binary)
  end

  defp sound?(_), do: false

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
