defmodule ExPhil.Native.Tools.Machine do
  @moduledoc false
  # What this machine has for the build and for calls. Called by ExPhil.Native.Doctor and the tests.

  alias ExPhil.Native.{Device, Error}

  @doc "Everything that the page reports. Outside of Mix, as in a release, there is nothing to build: packages is nil."
  @spec facts() :: map()
  def facts do
    root = source_folder()

    %{
      info: ExPhil.Native.info(),
      refused: refused(),
      packages: root && packages(root),
      compiler: root && compiler(System.get_env("CXX") || "g++"),
      make: root && first_line(System.get_env("MAKE") || "make", ["--version"]),
      gnuplot: root && first_line("gnuplot", ["--version"]),
      cuda_headers: root && cuda_headers(root),
      schedulers: {System.schedulers_online(), :erlang.system_info(:scheduler_bind_type), can_bind?()},
      system:
        "Elixir #{System.version()}, Erlang/OTP #{System.otp_release()}, #{:erlang.system_info(:system_architecture)}"
    }
  end

  @doc """
  Whether this VM can bind its schedulers to cores. Without a CPU topology, as where there is no /sys, `erl +sbt db` does
  not start.
  """
  @spec can_bind?() :: boolean()
  def can_bind?, do: :erlang.system_info(:cpu_topology) != :undefined

  @doc "The errors that calls return because of a value in the environment or the config."
  @spec refused() :: [Error.t()]
  def refused do
    for {:error, %Error{kind: :invalid_argument} = error} <- Enum.uniq([backend(), Device.configured()]),
        do: error
  end

  # A backend that is chosen by name and unavailable is an error, too.
  defp backend do
    with {:ok, {:cuda, _index}} <- Device.choose(nil, nil), false <- ExPhil.Native.cuda_available?() do
      name =
        if System.get_env("EXPHIL_NATIVE_BACKEND") in [nil, ""],
          do: "config :exphil_native, :backend",
          else: "EXPHIL_NATIVE_BACKEND"

      {:error, Error.invalid(name, "a backend that is available here", "cuda")}
    end
  end

  # This project, or its folder as a dependency; nil where Mix does not run.
  defp source_folder do
    cond do
      not List.keymember?(Application.started_applications(), :mix, 0) -> nil
      Mix.Project.config()[:app] == :exphil_native -> File.cwd!()
      true -> Mix.Project.deps_paths()[:exphil_native]
    end
  end

  defp packages(root) do
    case command(Path.join(root, ".ci/setup"), ["--list"]) do
      {:ok, output} ->
        for line <- String.split(output, "\n", trim: true), [package, state] = String.split(line) do
          {package, state == "here"}
        end

      :error ->
        []
    end
  end

  defp cuda_headers(root) do
    case command(System.get_env("MAKE") || "make", ["-s", "-C", root, "cuda_headers"]) do
      {:ok, output} -> String.split(output)
      :error -> []
    end
  end

  # CXX may be several words, such as "ccache g++".
  defp compiler(command) do
    [program | args] = String.split(command)
    first_line(program, args ++ ["--version"])
  end

  defp first_line(program, args) do
    case command(program, args) do
      {:ok, output} -> output |> String.split("\n") |> hd()
      :error -> nil
    end
  end

  defp command(program, args) do
    case System.cmd(program, args, stderr_to_stdout: true, env: [{"MAKEFLAGS", nil}]) do
      {output, 0} -> {:ok, output}
      {_, _} -> :error
    end
  rescue
    ErlangError -> :error
  end
end
