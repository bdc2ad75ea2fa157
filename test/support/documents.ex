defmodule ExPhil.Native.TestSupport.Documents do
  @moduledoc """
  Runs the Elixir blocks of a page or a notebook unchanged, in order, in a folder: a block may use the variables of earlier
  blocks. The current folder is shared by the entire VM, so that a test that does so is not async.
  """

  @doc "{file, line, code} of each block."
  def blocks(file) do
    text = File.read!(file)

    for [{start, length}] <- Regex.scan(~r/(?<=```elixir\n).*?(?=^```)/ms, text, return: :index) do
      line = text |> binary_part(0, start) |> String.split("\n") |> length()
      {Path.expand(file), line, binary_part(text, start, length)}
    end
  end

  @doc "Runs the blocks in `folder`, and returns their variables."
  def run(blocks, folder) do
    File.cd!(folder, fn ->
      Enum.reduce(blocks, {[], Code.env_for_eval([])}, fn {file, line, code}, {bindings, env} ->
        quoted = Code.string_to_quoted!(code, file: file, line: line)
        {_, bindings, env} = Code.eval_quoted_with_env(quoted, bindings, %{env | file: file})
        {bindings, env}
      end)
      |> elem(0)
    end)
  end
end
