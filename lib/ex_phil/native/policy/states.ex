defmodule ExPhil.Native.Policy.States do
  @moduledoc false
  # What the functions of Policy that go back in a session, or copy, export and import its state, do. Their
  # documentation is in policy/interface/states.ex.

  import ExPhil.Native.Policy.Call

  alias ExPhil.Native.{Error, NIF, Telemetry}
  alias ExPhil.Native.Policy.{Session, Snapshot}

  def rollback(%Session{ref: ref} = session, frames_back) do
    with {:ok, :ok} <- Telemetry.went_back(answer(NIF.rollback(ref, frames_back)), :rollback, frames_back),
         do: {:ok, session}
  end

  def rollback(session, _frames_back), do: not_a("session", session)

  @doc "How many frames a session can go back now."
  @spec recorded(Session.t()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def recorded(%Session{ref: ref}), do: answer(NIF.recorded_frames(ref))

  def resimulate(session, frames_back, frames),
    do: resimulate(session, frames_back, frames, &with_data/3, &NIF.resimulate/4)

  def resimulate_acts(session, frames_back, frames),
    do: resimulate(session, frames_back, frames, &with_frames/3, &NIF.resimulate_acts/4)

  defp resimulate(%Session{ref: ref}, frames_back, frames, with_them, call) do
    frames
    |> with_them.("frames", queued(&call.(ref, frames_back, &1, &2)))
    |> Telemetry.went_back(:resimulate, frames_back)
  end

  defp resimulate(session, _frames_back, _frames, _with_them, _call), do: not_a("session", session)

  def snapshot(%Session{ref: ref, policy: policy, device: device}) do
    with {:ok, snapshot} <- answer(NIF.snapshot(ref)),
         do: {:ok, %Snapshot{ref: snapshot, policy: policy, device: device}}
  end

  def snapshot(session), do: not_a("session", session)

  def restore(%Session{ref: ref} = session, %Snapshot{ref: snapshot}) do
    with {:ok, :ok} <- answer(NIF.restore(ref, snapshot)), do: {:ok, session}
  end

  def restore(%Session{}, other), do: not_a("snapshot", other)
  def restore(session, _snapshot), do: not_a("session", session)

  def export_state(%Session{ref: ref}), do: answer(NIF.export_state(ref))
  def export_state(session), do: not_a("session", session)

  def import_state(%Session{ref: ref} = session, state) when is_binary(state) do
    with {:ok, :ok} <- answer(NIF.import_state(ref, state)), do: {:ok, session}
  end

  def import_state(%Session{}, other),
    do: {:error, Error.invalid("state", "a binary of export_state/1", other)}

  def import_state(session, _state), do: not_a("session", session)
end
