defmodule ExPhil.Native.Queue do
  @moduledoc false
  # Waits for large calls, which run on threads of the library's own and send their result, and for gathered
  # frames.
  #
  # A module apart from NIF: a process that waits must not run code of the module that is loaded again.

  alias ExPhil.Native.NIF

  @doc """
  Calls the function with a new reference. Where it answers :queued the result is the message with that reference.

  Before the answer to a gathered frame there may be the answers to those of others, which this process delivers; one of
  them is its own.

  The reference is made here, so that the receive looks only at messages that came after it, however many wait.
  """
  @spec run((reference() -> :queued | result)) :: result when result: term()
  def run(call) do
    ref = make_ref()

    case call.(ref) do
      :queued ->
        receive do
          {^ref, {:deliver, answers}} ->
            NIF.deliver_answers(answers)

            receive do
              {^ref, result} -> result
            end

          {^ref, result} ->
            result
        end

      result ->
        result
    end
  end
end
