# What a call answers while the address space of this VM may grow by no more than so many megabytes. The limit is the soft RLIMIT_AS
# (what `ulimit -v` sets), put in place around the call by prlimit, so that building its inputs is not limited.
defmodule ExPhil.Native.TestSupport.Limits do
  alias ExPhil.Native.Error

  def limited(megabytes, call) do
    limit(to_string(address_space() + megabytes * 1_048_576))

    try do
      answer(call.())
    rescue
      error in Error -> error.kind
    after
      limit("unlimited")
    end
  end

  defp answer({:error, %Error{kind: kind}}), do: kind
  defp answer(_answer), do: :ok

  defp limit(bytes), do: {"", 0} = System.cmd("prlimit", ["--pid", System.pid(), "--as=#{bytes}:"])

  defp address_space do
    [_, kilobytes] = Regex.run(~r/VmSize:\s+(\d+) kB/, File.read!("/proc/self/status"))
    1024 * String.to_integer(kilobytes)
  end
end
