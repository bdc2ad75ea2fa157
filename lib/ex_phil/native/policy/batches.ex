defmodule ExPhil.Native.Policy.Batches do
  @moduledoc false
  # One frame for each of several sessions in one call: what ExPhil.Native.Policy delegates here, and documents
  # (Policy.Interface.Batches).

  import ExPhil.Native.Policy.Call

  alias ExPhil.Native.{Error, NIF}
  alias ExPhil.Native.Policy.{Group, Session}

  def group(sessions) do
    of_list(sessions, "a list of sessions", fn ->
      with {:ok, ref} <- answer(NIF.new_group(sessions)), do: {:ok, %Group{ref: ref, size: length(sessions)}}
    end)
  end

  def step_batch(sessions, obs), do: batch(sessions, obs, &with_data/3, &NIF.step_batch/3)
  def act_batch(sessions, obs), do: batch(sessions, obs, &with_frames/3, &NIF.act_batch/3)

  defp batch(%Group{ref: ref}, obs, with_obs, call), do: with_obs.(obs, "obs", queued(&call.(ref, &1, &2)))

  defp batch(sessions, obs, with_obs, call) do
    of_list(sessions, "a list of sessions, or a group of them", fn ->
      sessions = taken_apart(sessions)
      with_obs.(obs, "obs", queued(&call.(sessions, &1, &2)))
    end)
  end

  # The library takes a list apart faster, and leaves no garbage, but it holds a scheduler where the call is queued: some
  # 0.1 ms for so many sessions.
  @most_of_library 4096
  defp taken_apart(sessions) when length(sessions) <= @most_of_library, do: sessions
  defp taken_apart(sessions), do: if(sessions?(sessions), do: Enum.map(sessions, & &1.ref), else: sessions)

  # The list is looked at here only where there is an error, of which it may be the reason.
  defp of_list(sessions, expected, call) when is_list(sessions) do
    with {:error, _} = error <- call.() do
      if sessions?(sessions), do: error, else: {:error, Error.invalid("sessions", expected, sessions)}
    end
  end

  defp of_list(sessions, expected, _call), do: {:error, Error.invalid("sessions", expected, sessions)}

  defp sessions?([%Session{} | rest]), do: sessions?(rest)
  defp sessions?(rest), do: rest == []
end
