# The first calls that would have a thread help them, in a VM where the system refuses that thread: the caller computes alone. Run in
# an OS process of its own by limits_test.exs. Prints what the calls answered, how many helping threads the VM has more than before, and
# whether the states are those of the same calls without a limit.
alias ExPhil.Native.Policy
alias ExPhil.Native.TestSupport.Limits

# By their name (c_src/core/work/parallel.cpp): the VM may start threads of its own meanwhile.
threads = fn ->
  Enum.count(Path.wildcard("/proc/self/task/*/comm"), &(File.read(&1) == {:ok, "exphil_helper\n"}))
end

path = Path.join(hd(System.argv()), "policy.safetensors")

# Kept until the end: what is freed after the limit was set may be enough for the thread's stack.
made = Policy.init!(:mamba1, d_input: 4, d_output: 4, d_model: 512, layers: 2, seed: 1, backend: :host)
:ok = Policy.save(made, path)

policy = Policy.load!(path, backend: :host)
pair = fn -> for _ <- 1..2, do: Policy.new_session!(policy, window: 60) end
{alone, helped} = {pair.(), pair.()}
frames = for value <- 1..8, into: <<>>, do: <<value / 8::float-32-native>>
states = fn sessions -> Enum.map(sessions, &Policy.export_state!/1) end

# Too little for the stack of a thread.
:erlang.garbage_collect()
before = threads.()
answers = for _ <- 1..5, do: Limits.limited(1, fn -> Policy.step_batch(alone, frames) end)
more = threads.() - before
for :ok <- answers, do: {:ok, _} = Policy.step_batch(helped, frames)

IO.puts(
  "#{inspect(Enum.uniq(answers) -- [:out_of_memory])}, #{more} threads, #{states.(alone) == states.(helped)}"
)

%{backend: :host} = Policy.info!(made)
