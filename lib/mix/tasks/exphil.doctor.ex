defmodule Mix.Tasks.Exphil.Doctor do
  @shortdoc "Reports what this machine has for ExPhil.Native, and the cost of each missing part"
  @moduledoc """
  Prints one page: the build tools, the loaded library, the backends, and for each missing part its cost and how to
  get it.

      mix exphil.doctor

  If the build itself fails, `EXPHIL_SKIP_NATIVE=1 mix exphil.doctor` skips it. The exit status is 0 whenever the page
  was written: a machine without a GPU is not an error.
  """

  use Mix.Task

  @requirements ["app.config"]

  # The use of each package. .ci/setup does the checks.
  @uses %{
    "g++" => "the build: nothing can be built without a C++17 compiler",
    "make" => "the build: nothing can be built without it",
    "elixir" => "the build",
    "erlang-dev" => "the build: erl_nif.h, the VM's interface to native code",
    "libhwy-dev" => "the build: the CPU backend's SIMD",
    "libtbb-dev" => "the build: the CPU backend's threads",
    "nlohmann-json3-dev" => "the build: reads checkpoint headers",
    "libxxhash-dev" => "the build: checksums, and the keys of compiled kernels",
    "zlib1g-dev" => "the build: reads compressed checkpoints",
    "erlang-proper" => "the tests: the property tests are left out",
    "catch2" => "the tests: the C++ tests cannot be built",
    "clang-format" => "make lint and make format",
    "python3-venv" => "make test_xla, which runs JAX",
    "clang" => "make fuzz: libFuzzer, which g++ does not have"
  }

  @impl true
  def run(_args), do: facts() |> page() |> Mix.shell().info()

  @doc false
  # The facts for `page/1`, as found on this machine.
  def facts do
    root = source_folder()

    %{
      info: ExPhil.Native.info(),
      packages: packages(root),
      compiler: compiler(System.get_env("CXX") || "g++"),
      make: first_line(System.get_env("MAKE") || "make", ["--version"]),
      gnuplot: first_line("gnuplot", ["--version"]),
      cuda_headers: cuda_headers(root),
      schedulers: {System.schedulers_online(), :erlang.system_info(:scheduler_bind_type)},
      system:
        "Elixir #{System.version()}, Erlang/OTP #{System.otp_release()}, #{:erlang.system_info(:system_architecture)}"
    }
  end

  @doc false
  def page(facts) do
    [
      build(facts),
      library(facts.info),
      host(facts.info),
      cuda(facts),
      nx(facts.info),
      default(facts.info),
      schedulers(facts.schedulers)
    ]
    |> List.flatten()
    |> Enum.map_join("\n", &line/1)
    |> String.trim_leading()
  end

  # ---- sections: a line is {:ok | :missing | :note, what, found} or {:missing, what, found, cost, remedy} ------

  defp build(facts) do
    {here, missing} = Enum.split_with(facts.packages, fn {_, here?} -> here? end)

    [
      {:title, "Build"},
      {:ok, "system", facts.system},
      tool("compiler", facts.compiler),
      tool("make", facts.make),
      if(here != [], do: {:ok, "packages", Enum.map_join(here, " ", &elem(&1, 0))}, else: []),
      for({package, _} <- missing, do: missing_package(package)),
      cuda_header_line(facts.cuda_headers),
      gnuplot(facts[:gnuplot])
    ]
  end

  defp tool(what, nil) do
    {:missing, what, "not found", "the library cannot be built",
     "make setup, or install it with the system's packages"}
  end

  defp tool(what, version), do: {:ok, what, version}

  defp missing_package(package) do
    {:missing, package, "not found", "needed for #{@uses[package] || "the build"}",
     "make setup (apt-get install --no-install-recommends #{package})"}
  end

  defp cuda_header_line([]) do
    {:missing, "CUDA headers", "cuda.h and nvrtc.h not found", "only the CPU backend is built",
     "install a CUDA toolkit 12 or 13, or name one with CUDA_HOME; then `mix compile`"}
  end

  defp cuda_header_line(folders), do: {:ok, "CUDA headers", Enum.join(folders, ", ")}

  defp gnuplot(nil) do
    {:missing, "gnuplot", "not found", "mix exphil.bench draws no page; its tables and JSON need nothing",
     "apt-get install gnuplot-nox"}
  end

  defp gnuplot(version), do: {:ok, "gnuplot", version}

  defp library(%{version: version, nif: %{loaded: true} = nif}) do
    [{:title, "Library"}, {:ok, "version", version}, {:ok, "NIF", nif.path}]
  end

  defp library(%{version: version, nif: nif}) do
    [
      {:title, "Library"},
      {:ok, "version", version},
      {:missing, "NIF", to_string(nif.reason), "nothing native works: every call returns an error",
       "build it with `make native`, and read its first error"}
    ]
  end

  defp host(%{backends: %{host: %{available: true} = host}, threads: threads}) do
    [{:title, "Backends"}, {:ok, "host", "#{host.name}, threads: #{threads}"}]
  end

  defp host(_info) do
    [
      {:title, "Backends"},
      {:missing, "host", "not available: the NIF is not loaded", "there is no backend at all", "see Library"}
    ]
  end

  defp cuda(%{info: %{nif: %{loaded: false}}}) do
    {:missing, "CUDA", "not known: the NIF is not loaded", "there is no backend at all", "see Library"}
  end

  defp cuda(%{info: %{backends: %{cuda: %{devices: [_ | _] = devices} = cuda}}}) do
    [%{details: details} | _] = devices

    [
      {:ok, "CUDA driver", "CUDA #{details[:driver_version]} (#{details[:driver]})"},
      nvrtc(details, cuda),
      for(device <- devices, do: {:ok, "GPU #{device.index}", gpu(device)})
    ]
  end

  defp cuda(%{info: %{backends: %{cuda: cuda}}}) do
    {:missing, "CUDA", to_string(cuda.reason), "everything runs on the CPU",
     "needs an NVIDIA GPU of compute capability 7.5 or later, its driver, and libnvrtc of CUDA 12 or 13"}
  end

  defp nvrtc(%{nvrtc_version: version} = details, _cuda),
    do: {:ok, "NVRTC", "#{version} (#{details[:nvrtc]})"}

  defp nvrtc(_details, cuda) do
    {:missing, "NVRTC", to_string(cuda.reason), "no kernel can be compiled: everything runs on the CPU",
     "install libnvrtc of the driver's CUDA version (Debian: libnvrtc12 from non-free; pip: nvidia-cuda-nvrtc), or " <>
       "name the file with EXPHIL_NATIVE_LIBNVRTC"}
  end

  defp gpu(%{name: name, details: details}) do
    memory = details[:total_memory]
    gib = if is_binary(memory), do: ", #{div(String.to_integer(memory), 1024 * 1024 * 1024)} GiB", else: ""
    "#{name}, compute capability #{details[:compute_capability]}#{gib}"
  end

  defp nx(%{nx: nx}) when nx in [nil, false] do
    [
      {:title, "Elixir"},
      {:missing, "Nx", "not loaded", "tensors are {type, shape, binary}; everything else works",
       "add {:nx, \"~> 0.7\"} to your own dependencies"}
    ]
  end

  defp nx(%{nx: nx} = info), do: [{:title, "Elixir"}, {:ok, "Nx", to_string(nx)}, xla(info)]

  defp xla(%{xla: %{registered: true}}), do: {:ok, "XLA", "the custom calls are registered with EXLA"}

  defp xla(%{xla: %{reason: reason}}) do
    {:missing, "XLA", reason, "ExPhil.Native.Defn copies tensors through host memory inside EXLA",
     "docs/xla.md says what to build and to call"}
  end

  defp default(info), do: {:ok, "default backend", inspect(info.default_backend)}

  # Where schedulers are many, two of them rarely share a core.
  @few 4

  defp schedulers({count, :unbound}) when count in 2..@few do
    {:missing, "schedulers", "#{count}, not bound to cores",
     "frames wait for milliseconds where Linux keeps two schedulers on one core",
     "start the VM with +sbt db: ELIXIR_ERL_OPTIONS=\"+sbt db\", or in vm.args (docs/reference.md)"}
  end

  defp schedulers({count, bind_type}), do: {:ok, "schedulers", "#{count}, #{bind_type}"}

  # ---- layout ----------------------------------------------------------------------------------------------

  defp line({:title, title}), do: "\n#{title}"
  defp line({:ok, what, found}), do: "  [ok] #{String.pad_trailing(what, 16)} #{found}"

  defp line({:missing, what, found, cost, remedy}) do
    indent = "\n" <> String.duplicate(" ", 24)
    # A reason may have several lines, such as the paths where a library was looked for.
    found = found |> String.split("\n") |> Enum.map_join(indent, &String.trim/1)
    "  [--] #{String.pad_trailing(what, 16)} #{found}#{indent}costs: #{cost}#{indent}get it: #{remedy}"
  end

  # ---- looking ---------------------------------------------------------------------------------------------

  # This project, or its folder as a dependency.
  defp source_folder do
    if Mix.Project.config()[:app] == :exphil_native,
      do: File.cwd!(),
      else: Mix.Project.deps_paths()[:exphil_native]
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
