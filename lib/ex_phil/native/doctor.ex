defmodule ExPhil.Native.Doctor do
  @moduledoc """
  What this machine has for this library: the build tools, the settings that calls refuse, the loaded library, the backends, and for
  each missing part its cost and how to get it, on one page.

  `mix exphil.doctor` prints it in a Mix project, and `run/0` anywhere, such as in a release, where nothing is built and the page
  says nothing about a build:

      bin/bot eval ExPhil.Native.Doctor.run
  """

  alias ExPhil.Native.Tools.Machine

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

  @doc """
  Prints the page. `:refused` where an environment variable or a config key has a value that calls refuse, and else `:ok`: a
  machine without a GPU is not an error.
  """
  @spec run() :: :ok | :refused
  def run, do: report(&IO.puts/1)

  @doc false
  # Gives the page to `print`.
  def report(print) do
    # `bin/bot eval` loads modules before applications.
    Application.load(:exphil_native)
    facts = Machine.facts()
    facts |> page() |> print.()
    if facts.refused == [], do: :ok, else: :refused
  end

  @doc false
  # From the facts of `ExPhil.Native.Tools.Machine.facts/0`.
  def page(facts) do
    [
      build(facts),
      settings(facts.refused),
      library(facts),
      host(facts),
      cuda(facts),
      nx(facts.info),
      default(facts),
      schedulers(facts.schedulers)
    ]
    |> List.flatten()
    |> Enum.map_join("\n", &line/1)
    |> String.trim_leading()
  end

  # ---- sections: a line is {:ok, what, found} or {:missing | :wrong, what, found, cost, remedy} -----------------

  defp build(%{packages: nil} = facts), do: [{:title, "Machine"}, {:ok, "system", facts.system}]

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

  defp settings([]), do: []

  defp settings(errors) do
    [
      {:title, "Settings"}
      | for(%{argument: name, message: message} <- errors) do
          {:wrong, name, String.replace_prefix(message, name <> " ", ""),
           "calls that depend on it return this error",
           "change or remove #{where(name)}; docs/reference.md lists every setting"}
        end
    ]
  end

  defp where("EXPHIL_" <> _ = name), do: "the environment variable #{name}"

  defp where(":" <> _ = key), do: "config :exphil_native, #{key}"
  defp where(config), do: config

  defp library(%{info: %{version: version, nif: nif}} = facts) do
    [{:title, "Library"}, {:ok, "version", version}, nif(nif, refused_by_library?(facts))]
  end

  defp nif(%{loaded: loaded?, path: path}, refused?) when loaded? or refused?, do: {:ok, "NIF", path}

  defp nif(%{reason: reason}, _refused?) do
    {:missing, "NIF", to_string(reason), "nothing native works: every call returns an error",
     "build it with `make native`, and read its first error, or take a package (docs/reference.md#packages)"}
  end

  # The library is loaded, and answers every call with the error of a setting.
  defp refused_by_library?(%{refused: refused, info: info}),
    do: Enum.any?(refused, &(&1.message == info.nif.reason))

  defp host(%{info: %{backends: %{host: %{available: true} = host}, threads: threads}}) do
    [{:title, "Backends"}, {:ok, "host", "#{host.name}, threads: #{threads}"}]
  end

  defp host(facts), do: [{:title, "Backends"}, no_backend("host", facts)]

  defp no_backend(what, facts) do
    {why, where} =
      if refused_by_library?(facts),
        do: {"a setting is refused", "Settings"},
        else: {"the NIF is not loaded", "Library"}

    {:missing, what, "not known: #{why}", "there is no backend at all", "see #{where}"}
  end

  defp cuda(%{info: %{nif: %{loaded: false}}} = facts), do: no_backend("CUDA", facts)

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
       "add {:nx, \"~> 0.12\"} to your own dependencies"}
    ]
  end

  defp nx(%{nx: nx} = info), do: [{:title, "Elixir"}, {:ok, "Nx", to_string(nx)}, xla(info)]

  defp xla(%{xla: %{registered: true}}), do: {:ok, "XLA", "the custom calls are registered with EXLA"}

  defp xla(%{xla: %{reason: reason}}) do
    {:missing, "XLA", reason, "ExPhil.Native.Defn copies tensors through host memory inside EXLA",
     "docs/xla.md says what to build and to call"}
  end

  defp default(%{refused: []} = facts), do: {:ok, "default backend", inspect(facts.info.default_backend)}
  defp default(_facts), do: []

  # Where schedulers are many, two of them rarely share a core.
  @few 4

  defp schedulers({count, :unbound, true}) when count in 2..@few do
    {:missing, "schedulers", "#{count}, not bound to cores",
     "frames wait for milliseconds where Linux keeps two schedulers on one core",
     "start the VM with +sbt db: ELIXIR_ERL_OPTIONS=\"+sbt db\", or in vm.args (docs/reference.md)"}
  end

  defp schedulers({count, :unbound, false}),
    do: {:ok, "schedulers", "#{count}, unbound: this VM knows no CPU topology, and cannot bind them"}

  defp schedulers({count, bind_type, _}), do: {:ok, "schedulers", "#{count}, #{bind_type}"}

  # ---- layout ----------------------------------------------------------------------------------------------

  defp line({:title, title}), do: "\n#{title}"
  defp line({:ok, what, found}), do: "  [ok] #{String.pad_trailing(what, 16)} #{found}"

  defp line({:missing, what, found, cost, remedy}), do: line("[--]", what, found, cost, "get it: #{remedy}")
  defp line({:wrong, what, found, cost, remedy}), do: line("[!!]", what, found, cost, "mend it: #{remedy}")

  defp line(mark, what, found, cost, remedy) do
    indent = "\n" <> String.duplicate(" ", 24)
    # A reason may have several lines, such as the paths where a library was looked for.
    found = found |> String.split("\n") |> Enum.map_join(indent, &String.trim/1)
    "  #{mark} #{String.pad_trailing(what, 16)} #{found}#{indent}costs: #{cost}#{indent}#{remedy}"
  end
end
