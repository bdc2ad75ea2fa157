defmodule ExPhil.Native.LimitsTest do
  # Memory that runs out, in VMs of their own, because a defect here ends the VM.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Peer
  alias ExPhil.Native.TestSupport.Shared

  @moduletag :tmp_dir

  # Megabytes by which the address space may grow: hardly any, enough for some calls, enough for all.
  @steps [1, 16, 100_000]

  # Relocations of thread-local data that is there from a thread's start, and of data that glibc allocates at its first use.
  # readelf shortens their names.
  @from_the_start ~r/ R_[A-Z0-9_]+_(GOTTPOFF|TLSIE)/
  @at_first_use ~r/ R_[A-Z0-9_]+_(TLSGD|TLSLD|TLSDE|GOTPC32_TLSD)/

  # The project's own objects: a compiler that links libstdc++ statically brings data of the other kind into the library.
  test "thread-local data is there from a thread's start, and allocates nothing later" do
    relocations = for object <- objects(), do: {object, elem(System.cmd("readelf", ["-rW", object]), 0)}
    assert for({object, text} <- relocations, text =~ @at_first_use, do: object) == []
    assert Enum.any?(relocations, fn {_object, text} -> text =~ @from_the_start end)
  end

  # Of every source that is built, which the compiler's list of what an object depends on tells: what differs with and without CUDA
  # is in BUILD_CUDA, other objects are in BUILD.
  defp objects do
    build = System.get_env("BUILD", "build")
    folders = Enum.uniq([build, System.get_env("BUILD_CUDA", build)])

    sources_of =
      for folder <- folders,
          list <- Path.wildcard("#{folder}/c_src/**/*.d"),
          object = Path.rootname(list) <> ".o",
          File.exists?(object) do
        {object, list |> File.read!() |> String.split() |> Enum.filter(&(&1 =~ ~r"^c_src/.*\.cpp$"))}
      end

    compiled = for {_object, sources} <- sources_of, source <- sources, into: MapSet.new(), do: source

    for source <- Path.wildcard("c_src/**/*.cpp"), not (source =~ ~r"^c_src/(cuda|xla)/") do
      assert source in compiled, "#{source} was not compiled"
    end

    for {object, [_ | _]} <- sources_of, do: object
  end

  @tag :prlimit
  test "a call that finds no memory says so, and the VM goes on", %{tmp_dir: folder} do
    controller = if Shared.path(), do: Shared.file("exphil/exphil_policy/policy_old_term.bin"), else: ""
    arguments = [folder, controller | Enum.map(@steps, &to_string/1)]
    {output, status} = peer_script("test/support/limits.exs", arguments, library())

    assert {status, output} == {0, output}
    assert output =~ ~r/^done$/m

    answers =
      for [_, call, step, answer] <- Regex.scan(~r/^answer (.+): (\d+) (\S+)$/m, output),
          do: {call, String.to_integer(step), answer}

    assert length(answers) >= 32 * length(@steps)

    for {call, step, answer} <- answers,
        do: assert({call, step, answer in ["ok", "out_of_memory"]} == {call, step, true})

    refused = fn step -> for({call, ^step, "out_of_memory"} <- answers, do: call) end
    assert "SelectiveScan.scan_with_states" in refused.(1) and length(refused.(1)) >= 3
    # Four terabytes are too many with any limit.
    assert refused.(100_000) == ["random_binary"]
  end

  @tag :prlimit
  test "a call whose helping thread the system refuses is computed by its caller, with the same bits", %{
    tmp_dir: folder
  } do
    run = fn -> peer_script("test/support/refused_thread.exs", [folder], library()) end
    # Where the VM frees memory of its own in that moment, the thread has room and is not refused.
    had_room? = fn {output, status} -> status == 0 and output =~ ~r/^\[:ok\], [1-9]\d* threads, true\n$/ end

    assert run |> Stream.repeatedly() |> Stream.take(5) |> Enum.find(&(not had_room?.(&1))) ==
             {"[:ok], 0 threads, true\n", 0}
  end
end
