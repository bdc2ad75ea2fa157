defmodule ExPhil.Native.WorkflowsTest do
  # The forge's workflows, which this project's own CI (.ci/run) does not run.
  use ExUnit.Case, async: true

  @files Path.wildcard(".github/workflows/*.yml")

  test "they call targets that make help lists, and ci.yml nothing else that builds or tests" do
    assert length(@files) == 2
    targets = for [_, name] <- Regex.scan(~r/^## ([a-z_]+):/m, File.read!("Makefile")), do: name

    for file <- @files, [_, command] <- Regex.scan(~r/^ +- run: (.+)$/m, File.read!(file)) do
      case Regex.run(~r/\bmake (\w+)( [A-Z]+=\S.*)?$/, command) do
        # What a bare image lacks, and what publishes.
        _ when binary_part(command, 0, 4) in ["apt-", "pip ", "gh r"] ->
          assert file =~ "release" or command =~ ~r/ make$/

        [_, target | _] ->
          assert target in targets, "#{file}: #{command}"

        nil ->
          flunk("#{file}: #{command}")
      end
    end
  end

  test "ci.yml has every supported Elixir, from that of mix.exs on, on both platforms" do
    text = File.read!(".github/workflows/ci.yml")

    list = fn key ->
      [_, list] = Regex.run(~r/^        #{key}: \[(.*)\]$/m, text)
      String.split(list, ~r/[", ]+/, trim: true)
    end

    elixirs = list.("elixir")
    assert elixirs == for(minor <- 14..19, do: "1.#{minor}")
    assert "~> " <> hd(elixirs) == Mix.Project.config()[:elixir]
    assert list.("otp") == ~w(25 26 27 28)
    assert list.("machine") == ~w(x86_64 aarch64)

    excluded =
      for [_, elixir, otp] <- Regex.scan(~r/- {elixir: "(.*)", otp: "(.*)"}/, text), do: {elixir, otp}

    for otp <- list.("otp"), do: assert(Enum.any?(elixirs, &({&1, otp} not in excluded)))
    for elixir <- elixirs, do: assert(Enum.any?(list.("otp"), &({elixir, &1} not in excluded)))
    assert {hd(elixirs), "25"} not in excluded and {List.last(elixirs), "28"} not in excluded
  end
end
