defmodule ExPhil.Native.Mamba.States do
  @moduledoc false
  # What the functions of Mamba that go back in a session, or copy, export and import its state, do: rollback/2, resimulate/3,
  # snapshot/1, restore/2, export_state/1 and import_state/2. Their documentation is there.

  import ExPhil.Native.Mamba.Call

  alias ExPhil.Native.{Error, NIF, Telemetry}
  alias ExPhil.Native.Mamba.{Session, Snapshot}

  def rollback(%Session{ref: ref} = session, frames_back) do
    with {:ok, :ok} <- Telemetry.went_back(answer(NIF.rollback(ref, frames_back)), :rollback, frames_back),
         do: {:ok, session}
  end

  def rollback(other, _frames_back), do: not_a("session", other)

  def resimulate(%Session{ref: ref}, frames_back, frames) do
    frames
    |> with_data("frames", queued(&NIF.resimulate(ref, frames_back, &1, &2)))
    |> Telemetry.went_back(:resimulate, frames_back)
  end

  def resimulate(other, _frames_back, _frames), do: not_a("session", other)

  def snapshot(%Session{ref: ref, model: model}) do
    with {:ok, snapshot} <- answer(NIF.snapshot(ref)), do: {:ok, %Snapshot{ref: snapshot, model: model}}
  end

  def snapshot(other), do: not_a("session", other)

  def restore(%Session{ref: ref} = session, %Snapshot{ref: snapshot}) do
    with {:ok, :ok} <- answer(NIF.restore(ref, snapshot)), do: {:ok, session}
  end

  def restore(%Session{}, other), do: not_a("snapshot", other)
  def restore(other, _snapshot), do: not_a("session", other)

  def export_state(%Session{ref: ref}), do: answer(NIF.export_state(ref))
  def export_state(other), do: not_a("session", other)

  def import_state(%Session{ref: ref} = session, state) when is_binary(state) do
    with {:ok, :ok} <- answer(NIF.import_state(ref, state)), do: {:ok, session}
  end

  def import_state(%Session{}, other),
    do: {:error, Error.invalid("state", "a binary of export_state/1", other)}

  def import_state(other, _state), do: not_a("session", other)
end
