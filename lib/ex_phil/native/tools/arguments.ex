defmodule ExPhil.Native.Tools.Arguments do
  @moduledoc false
  # The command lines of the Mix tasks, and errors in their words.

  @doc "The options of `args`, or a `Mix.Error` that names the problem and the help to read."
  @spec parse!([String.t()], keyword, String.t()) :: keyword
  def parse!(args, switches, task), do: args |> parse_paths!(switches, task, []) |> elem(0)

  @doc "The same for a command line that has a path for each of `names` too: `{options, paths}`."
  @spec parse_paths!([String.t()], keyword, String.t(), [String.t()]) :: {keyword, [String.t()]}
  def parse_paths!(args, switches, task, names) do
    case OptionParser.parse(args, strict: switches) do
      {options, paths, []} when length(paths) == length(names) ->
        {options, paths}

      {_, [extra | _], _} when names == [] ->
        Mix.raise("unexpected argument #{inspect(extra)}; see mix help #{task}")

      {_, paths, []} ->
        Mix.raise("#{Enum.join(names, " and ")} are needed, got #{length(paths)} paths; see mix help #{task}")

      {_, _, [{name, nil} | _]} ->
        Mix.raise("#{name} is not an option, or lacks its value; see mix help #{task}")

      {_, _, [{name, value} | _]} ->
        Mix.raise("#{name} does not take #{inspect(value)}; see mix help #{task}")
    end
  end

  @doc "The message of a file that lacks an option, for a task that has not that option either."
  @spec convert_first(String.t()) :: String.t()
  def convert_first(message) do
    Regex.replace(~r/pass dialect: :(\w+) if it is that/, message, fn _, dialect ->
      "if it is that, `mix exphil.convert FILE NEW.safetensors --dialect #{dialect}` writes one that says so"
    end)
  end

  @doc "The message with `:chunk_size`, `chunk_size: 8` and `:mean` as a shell has them: `--chunk-size`, `--chunk-size 8`, `mean`."
  @spec in_shell_words(String.t(), [atom()], [String.t()]) :: String.t()
  def in_shell_words(message, options, values) do
    names = Enum.map_join(options, "|", &Atom.to_string/1)
    switch = &("--" <> String.replace(&1, "_", "-"))

    # Not between quotation marks: what is there is a path or a value.
    ~r/"(?:[^"\\]|\\.)*"/
    |> Regex.split(message, include_captures: true)
    |> Enum.map_join(fn
      "\"" <> _ = quoted ->
        quoted

      text ->
        text =
          Regex.replace(~r/\b(#{names}): :?(\w+)/, text, fn _, name, value ->
            switch.(name) <> " " <> value
          end)

        text = Regex.replace(~r/:(#{names})\b/, text, fn _, name -> switch.(name) end)
        Regex.replace(~r/:(#{Enum.join(values, "|")})\b/, text, "\\1")
    end)
  end
end
