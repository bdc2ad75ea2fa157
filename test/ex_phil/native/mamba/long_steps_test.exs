defmodule ExPhil.Native.Mamba.LongStepsTest do
  # A window whose frames were replaced computes all of them in its next step, which may then take milliseconds: not on a normal
  # scheduler, whatever the steps before took. In a VM of its own, whose calls on normal schedulers are counted by processor time.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  @moduletag timeout: 120_000

  test "the step after a restored, imported or prefilled window holds no normal scheduler" do
    code = """
    alias ExPhil.Native.{Mamba, Tools.Reference}
    model = Mamba.load!(#{inspect(Policies.checkpoint(d_model: 64, d_inner: 128))}, backend: :host)
    obs = :binary.copy(<<0.1::float-32-little>>, model.info.d_input)
    options = [window: 1200, pad: :none]
    frames = :binary.copy(obs, 1200)
    full = Mamba.new_session!(model, options)
    Mamba.prefill!(full, frames)
    snapshot = Mamba.snapshot!(full)
    state = Mamba.export_state!(full)
    Reference.held_calls!(2_000_000)
    for {name, replace} <- [
          restore: &Mamba.restore!(&1, snapshot),
          import_state: &Mamba.import_state!(&1, state),
          prefill: &Mamba.prefill!(&1, frames)
        ] do
      session = Mamba.new_session!(model, options)
      for _ <- 1..6, do: Mamba.step!(session, obs)
      replace.(session)
      Reference.held_calls!(2_000_000)
      Mamba.step!(session, obs)
      held = Reference.held_calls!(2_000_000)
      IO.puts("\#{name} \#{held.long_calls}")
    end
    """

    {output, status} = peer(code, library())
    assert {status, output} == {0, "restore 0\nimport_state 0\nprefill 0\n"}
  end
end
