defmodule ExPhil.Native.Json do
  @moduledoc false
  # JSON for what this library writes: reports and safetensors headers. Elixir has an encoder only from 1.18
  # on, and this library takes no dependency for one.

  @doc """
  Encodes maps, lists, strings, atoms and numbers; map keys in order, so that the same term gives the same bytes.

      iex> ExPhil.Native.Json.encode(%{b: [1, 2.5, nil, true, :host], a: "x\\n"})
      ~S({"a":"x\\u000A","b":[1,2.5,null,true,"host"]})
  """
  @spec encode(term()) :: String.t()
  def encode(map) when is_map(map) do
    members =
      map
      |> Enum.sort_by(fn {key, _} -> to_string(key) end)
      |> Enum.map_join(",", fn {key, value} -> encode(to_string(key)) <> ":" <> encode(value) end)

    "{" <> members <> "}"
  end

  def encode(list) when is_list(list), do: "[" <> Enum.map_join(list, ",", &encode/1) <> "]"
  def encode(nil), do: "null"
  def encode(value) when is_boolean(value) or is_number(value), do: to_string(value)
  def encode(value) when is_atom(value), do: encode(to_string(value))
  def encode(value) when is_binary(value), do: "\"" <> escape(value) <> "\""

  # Control characters, quotes and backslashes; everything else unchanged. A byte that is not UTF-8, which
  # JSON cannot hold, is the replacement character.
  defp escape(text), do: IO.iodata_to_binary(escaped(text))

  defp escaped(<<>>), do: []
  defp escaped(<<char::utf8, rest::binary>>), do: [escape_char(char) | escaped(rest)]
  defp escaped(<<_byte, rest::binary>>), do: ["\uFFFD" | escaped(rest)]

  defp escape_char(?"), do: ~S(\")
  defp escape_char(?\\), do: ~S(\\)

  defp escape_char(char) when char < 0x20,
    do: ["\\u", String.pad_leading(Integer.to_string(char, 16), 4, "0")]

  defp escape_char(char), do: <<char::utf8>>
end
