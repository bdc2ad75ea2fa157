defmodule ExPhil.Native.TestSupport.Shared do
  @moduledoc false
  # The shared data: a real policy with recorded matches, and the operator's goldens. Tests that use it have @tag
  # :shared.

  alias ExPhil.Native.Safetensors

  @doc "The folder, or nil where it is missing."
  def path do
    folder = System.get_env("EXPHIL_SHARED") || Path.expand("../../../shared", __DIR__)
    if File.dir?(Path.join(folder, "melee")), do: folder
  end

  def file(name), do: Path.join(path(), name)
  def read(name), do: name |> file() |> Safetensors.read!()
  def policy, do: file("melee/policy.safetensors")

  @doc "The names of the operator's goldens, read at compile time where the data is available."
  def goldens do
    case path() do
      nil ->
        []

      folder ->
        folder
        |> Path.join("goldens/selective_scan/*.safetensors")
        |> Path.wildcard()
        |> Enum.map(&Path.basename(&1, ".safetensors"))
    end
  end

  @doc "A golden's tensors and its metadata; `_re` and `_im` pairs of inputs joined into c64."
  def golden(name) do
    path = file("goldens/selective_scan/#{name}.safetensors")
    {:ok, metadata} = Safetensors.metadata(path)
    {join_complex(Safetensors.read!(path)), metadata}
  end

  defp join_complex(tensors) do
    Enum.reduce(tensors, %{}, fn {name, {type, shape, real} = tensor}, joined ->
      cond do
        String.ends_with?(name, "_im") ->
          joined

        String.ends_with?(name, "_re") ->
          base = String.replace_suffix(name, "_re", "")
          {_, _, imaginary} = tensors[base <> "_im"]
          Map.put(joined, base, {complex(type), shape, interleave(type, real, imaginary)})

        true ->
          Map.put(joined, name, tensor)
      end
    end)
  end

  # A float64 pair has no type here; it is only compared.
  defp complex(:f32), do: :c64
  defp complex(:f64), do: :f64

  defp interleave(type, real, imaginary) do
    bytes = if type == :f32, do: 4, else: 8
    parts = fn binary -> for <<part::binary-size(bytes) <- binary>>, do: part end
    Enum.zip_with(parts.(real), parts.(imaginary), &(&1 <> &2)) |> IO.iodata_to_binary()
  end
end
