defmodule ExPhil.Native.Policy.LongStepsTest do
  # A window whose frames were replaced computes all of them in its next step, which may then take milliseconds: not on a normal
  # scheduler, whatever the steps before took. In a VM of its own, whose calls on normal schedulers are counted by processor time.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  test "the step after a restored, imported or prefilled window holds no normal scheduler" do
    code = """
    alias ExPhil.Native.{Policy, Tools.Reference}
    model = Policy.load!(#{inspect(Policies.checkpoint(d_model: 64, d_inner: 128))}, backend: :host)
    obs = :binary.copy(<<0.1::float-32-little>>, model.info.d_input)
    options = [window: 1200, pad: :none]
    frames = :binary.copy(obs, 1200)
    full = Policy.new_session!(model, options)
    Policy.prefill!(full, frames)
    snapshot = Policy.snapshot!(full)
    state = Policy.export_state!(full)
    Reference.held_calls!(2_000_000)
    for {name, replace} <- [
          restore: &Policy.restore!(&1, snapshot),
          import_state: &Policy.import_state!(&1, state),
          prefill: &Policy.prefill!(&1, frames)
        ] do
      session = Policy.new_session!(model, options)
      for _ <- 1..6, do: Policy.step!(session, obs)
      replace.(session)
      Reference.held_calls!(2_000_000)
      Policy.step!(session, obs)
      held = Reference.held_calls!(2_000_000)
      IO.puts("\#{name} \#{held.long_calls}")
    end
    """

    {output, status} = peer(code, library())
    assert {status, output} == {0, "restore 0\nimport_state 0\nprefill 0\n"}
  end
end
