defmodule ExPhil.Native.DependencyTest do
  # Projects that have this library as a dependency beside substitutes for Nx, EXLA and Edifice, which have as much of them as
  # this library looks for when it is compiled.
  use ExUnit.Case, async: true

  @moduletag :either
  @moduletag :tmp_dir

  @nx """
  defmodule Nx do
    BLOCK
  end

  defmodule Nx.Defn do
    defmacro deftransform(call, do: block), do: quote(do: def(unquote(call), do: unquote(block)))
  end
  """

  @exla """
  defprotocol EXLA.CustomCall do
    @fallback_to_any true
    def call(struct, out, args, client)
  end

  defimpl EXLA.CustomCall, for: Any do
    def call(_struct, _out, _args, _client), do: :skip
  end

  defmodule EXLA.CustomCall.Spec do
    defstruct [:call_target_name, attributes: [], operand_element_types: nil]
  end
  """

  # native_impl?/0 is Edifice's own.
  @edifice """
  defmodule Edifice.Block do
    defmodule FusedOp do
      defstruct [:op, attrs: %{}]
    end

    def native_impl?, do: EXLA.CustomCall.impl_for(%FusedOp{op: :probe}) != EXLA.CustomCall.Any
  end
  """

  @told """
  IO.inspect(
    defn: Code.ensure_loaded?(ExPhil.Native.Defn),
    training: ExPhil.Native.SelectiveScan.supports_training?(),
    block: Code.ensure_loaded?(EXLA.CustomCall) and EXLA.CustomCall.impl_for(struct(ExPhil.Native.Block)) != EXLA.CustomCall.Any,
    edifice: Code.ensure_loaded?(Edifice.Block) and Edifice.Block.native_impl?()
  )
  """

  defp application(folder, name, version, code, deps \\ "") do
    place = Path.join(folder, name)
    File.mkdir_p!(Path.join(place, "lib"))

    File.write!(Path.join(place, "mix.exs"), """
    defmodule #{Macro.camelize(name)}.MixProject do
      use Mix.Project
      def project, do: [app: :#{name}, version: "#{version}", deps: [#{deps}]]
    end
    """)

    File.write!(Path.join(place, "lib/#{name}.ex"), code)
    place
  end

  defp nx(folder, version, block), do: application(folder, "nx", version, String.replace(@nx, "BLOCK", block))
  @block "def block(_struct, _tensors, _out, _fun), do: raise(\"not called\")"

  # The library is first in the list: Mix has to find out that it wants the others before it.
  defp project(folder, deps) do
    library = "{:exphil_native, path: #{inspect(File.cwd!())}}, "
    application(folder, "bot", "1.0.0", "", library <> deps)
  end

  # Compiles and starts the project, which tells what it has.
  defp tell(place) do
    env = [{"MIX_ENV", "prod"}, {"EXPHIL_SKIP_NATIVE", "1"}, {"EXPHIL_HEX", "0"}, {"MIX_BUILD_PATH", nil}]
    System.cmd("mix", ["run", "-e", @told], cd: place, env: env, stderr_to_stdout: true)
  end

  test "the library finds the project's Nx and EXLA, whatever EXPHIL_HEX says, and leaves Edifice alone until asked",
       %{tmp_dir: folder} do
    # Two projects: Mix sees a changed configuration by the seconds of its files.
    for {name, served} <- [{"plain", false}, {"served", true}] do
      place = Path.join(folder, name)
      nx(place, "0.13.1", @block)
      application(place, "exla", "0.13.1", @exla)
      application(place, "edifice", "0.3.0", @edifice, ~s({:exla, path: "../exla"}))

      bot = project(place, ~s({:edifice, path: "../edifice"}, {:exla, path: "../exla"}, {:nx, path: "../nx"}))

      if served do
        File.mkdir_p!(Path.join(bot, "config"))

        File.write!(
          Path.join(bot, "config/config.exs"),
          "import Config\nconfig :exphil_native, edifice_blocks: true"
        )
      end

      {output, status} = tell(bot)
      assert {status, output} == {0, output}
      assert output =~ "[defn: true, training: true, block: true, edifice: #{served}]"
    end
  end

  test "an Nx without Nx.block/4 is refused with its version, and left out where the project overrides that",
       %{
         tmp_dir: folder
       } do
    [refused, overridden] = for name <- ["refused", "overridden"], do: Path.join(folder, name)
    for place <- [refused, overridden], do: nx(place, "0.11.0", "def add(a, _b), do: a")
    {output, status} = refused |> project(~s({:nx, path: "../nx"})) |> tell()
    assert status == 1
    assert output =~ "the dependency nx 0.11.0" and output =~ ~s({:nx, "~> 0.12")

    {output, status} = overridden |> project(~s({:nx, path: "../nx", override: true})) |> tell()
    assert {status, output} == {0, output}
    assert output =~ "ExPhil.Native.Defn needs Nx 0.12 or later, and is left out: this is Nx 0.11.0"
    assert output =~ "[defn: false, training: false, block: false, edifice: false]"
  end
end
