defmodule ExPhil.Native.Policy.Batches do
  @moduledoc false
  # One frame for each of several sessions in one call: what ExPhil.Native.Policy delegates here, and documents
  # (Policy.Interface.Batches).

  import ExPhil.Native.Policy.Call

  alias ExPhil.Native.{Error, NIF}
  alias ExPhil.Native.Policy.{Group, Session}

  def group(sessions) do
    refs = refs(sessions)
    with {:ok, ref} <- answer(NIF.new_group(refs)), do: {:ok, %Group{ref: ref, size: length(refs)}}
  catch
    :not_sessions -> {:error, Error.invalid("sessions", "a list of sessions", sessions)}
  end

  def step_batch(sessions, obs), do: batch(sessions, obs, &with_data/3, &NIF.step_batch/3)
  def act_batch(sessions, obs), do: batch(sessions, obs, &with_frames/3, &NIF.act_batch/3)

  defp batch(%Group{ref: ref}, obs, with_obs, call), do: with_obs.(obs, "obs", queued(&call.(ref, &1, &2)))

  defp batch(sessions, obs, with_obs, call) do
    with_obs.(obs, "obs", queued(&call.(refs(sessions), &1, &2)))
  catch
    :not_sessions -> {:error, Error.invalid("sessions", "a list of sessions, or a group of them", sessions)}
  end

  # The library's references.
  defp refs([%Session{ref: ref} | rest]), do: [ref | refs(rest)]
  defp refs([]), do: []
  defp refs(_), do: throw(:not_sessions)
end
