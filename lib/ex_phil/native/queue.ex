defmodule ExPhil.Native.Queue do
  @moduledoc false
  # Waits for large calls, which run on threads of the library's own and send their result.
  #
  # A module apart from NIF: a process that waits must not run code of the module that is loaded again.

  @doc """
  Calls the function with a new reference. Where it answers :queued the result is the message with that reference.

  The reference is made here, so that the receive looks only at messages that came after it, however many wait.
  """
  @spec run((reference() -> :queued | result)) :: result when result: term()
  def run(call) do
    ref = make_ref()

    case call.(ref) do
      :queued ->
        receive do
          {^ref, result} -> result
        end

      result ->
        result
    end
  end
end
