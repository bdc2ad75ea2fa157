defmodule ExPhil.Native.PackageTest do
  # What `make package` writes, and what takes it in place of a build (mix/package.exs). That a project compiles with it on a
  # machine without make and compiler, and plays, is in release_test.exs.
  use ExUnit.Case, async: true

  alias ExPhil.Native.Package
  alias ExPhil.Native.TestSupport.WithoutTools

  @moduletag :tmp_dir
  @version Mix.Project.config()[:version]

  setup_all do
    path = WithoutTools.package()
    {:ok, files} = :erl_tar.extract(String.to_charlist(path), [:compressed, :memory])
    %{package: path, files: Map.new(files, fn {name, bytes} -> {to_string(name), bytes} end)}
  end

  defp here, do: Package.here(@version)

  defp refused(from, priv, here \\ here(), sum \\ nil),
    do: assert_raise(Mix.Error, fn -> Package.install!(from, priv, here, sum) end).message

  # An unpacked package.
  defp unpack(files, folder) do
    for {name, bytes} <- files do
      path = Path.join(folder, name)
      File.mkdir_p!(Path.dirname(path))
      File.write!(path, bytes)
    end

    folder
  end

  # As if it had been made with another line in its manifest.
  defp with_line(files, was, line),
    do: Map.update!(files, "manifest", &String.replace(&1, ~r/^#{was} .*$/m, line))

  # The newest version of the symbols PREFIX_ that a library asks for.
  defp newest(bytes, prefix) do
    for([_, version] <- Regex.scan(~r/\0#{prefix}_(\d[\d.]*)(?=\0)/, bytes), do: version)
    |> Enum.max_by(fn version -> version |> String.split(".") |> Enum.map(&String.to_integer/1) end, fn ->
      nil
    end)
  end

  test "has the stripped libraries, what they need beside libc and libstdc++, and every kernel", context do
    %{files: files, package: path} = context
    assert Path.basename(path) == "exphil_native-nif-#{here().nif}-#{here().target}-#{@version}.tar.gz"
    kernels = Path.wildcard("priv/kernels/**/*.{cu,cuh}") |> Enum.map(&Path.relative_to(&1, "priv"))
    assert kernels != [] and kernels -- Map.keys(files) == []
    for name <- kernels, do: assert(files[name] == File.read!(Path.join("priv", name)))
    libraries = for {name, bytes} <- files, String.contains?(name, ".so"), into: %{}, do: {name, bytes}

    for start <- ~w(exphil_native.so lib/libhwy.so lib/libtbb.so lib/libz.so),
        do: assert(Enum.any?(Map.keys(libraries), &String.starts_with?(&1, start)))

    assert File.exists?("priv/exphil_native_xla.so") == is_map_key(libraries, "exphil_native_xla.so")
    for {name, bytes} <- libraries, do: refute({name, bytes =~ ".debug_info"} == {name, true})
    # What each needs is beside it, or of libc and libstdc++.
    needed =
      for {_, bytes} <- libraries, [name] <- Regex.scan(~r/(?<=\0)lib[\w+-]+\.so\.\d+(?=\0)/, bytes), do: name

    assert Enum.any?(needed, &(&1 =~ "libtbb.so"))
    beside = for "lib/" <> name <- Map.keys(libraries), do: name
    # Of every Erlang; opened at run time; opened by TBB where they are there.
    elsewhere = ~r/^lib((c|m|gcc_s|stdc\+\+)\.so|cuda|nvrtc|tbbbind|tbbmalloc|irml|tcm)/
    assert needed |> Enum.reject(&(&1 in beside or &1 =~ elsewhere)) == []
  end

  # Debian 12 has glibc 2.36 and g++ 12, whose libstdc++ has GLIBCXX_3.4.30 and CXXABI_1.3.13.
  test "says which libc and libstdc++ it needs, and needs none newer than Debian 12's where it is made there",
       context do
    manifest = context.files["manifest"]
    libraries = for {name, bytes} <- context.files, String.contains?(name, ".so"), do: bytes
    debian12? = here().glibc != nil and Version.compare(here().glibc <> ".0", "2.36.0") != :gt

    for {key, prefix, most} <- [
          {"glibc", "GLIBC", "2.36"},
          {"glibcxx", "GLIBCXX", "3.4.30"},
          {"cxxabi", "CXXABI", "1.3.13"}
        ] do
      number = fn version -> version |> String.split(".") |> Enum.map(&String.to_integer/1) end
      found = libraries |> Enum.map(&newest(&1, prefix)) |> Enum.reject(&is_nil/1) |> Enum.max_by(number)
      assert [_, ^found] = Regex.run(~r/^#{key} (\S+)$/m, manifest)

      if debian12?,
        do: assert(number.(found) <= number.(most), "#{prefix}_#{found} is newer than Debian 12's")
    end
  end

  test "the same files give the same bytes", %{package: path, tmp_dir: folder} do
    assert File.read!(WithoutTools.package(folder)) == File.read!(path)
  end

  test "is taken from its file, its folder or unpacked, and changes nothing the second time", context do
    %{package: path, tmp_dir: folder, files: files} = context
    unpacked = unpack(files, Path.join(folder, "unpacked"))

    for {from, i} <- Enum.with_index([path, Path.dirname(path), unpacked]) do
      priv = Path.join(folder, "priv#{i}")
      refute Package.installed?(priv, here())
      assert Package.install!(from, priv, here()) == :installed
      assert Package.installed?(priv, here())
      for {name, bytes} <- files, do: assert(File.read!(Path.join(priv, name)) == bytes)
      %{inode: inode} = File.stat!(Path.join(priv, "exphil_native.so"))
      assert Package.install!(from, priv, here()) == :unchanged
      assert %{inode: ^inode} = File.stat!(Path.join(priv, "exphil_native.so"))
      File.write!(Path.join(priv, "kernels/extra.cu"), "")
      assert Package.install!(from, priv, here()) == :installed
      refute File.exists?(Path.join(priv, "kernels/extra.cu"))
    end

    sum = path |> File.read!() |> then(&:crypto.hash(:sha256, &1)) |> Base.encode16()
    assert Package.install!(path, Path.join(folder, "pinned"), here(), sum) == :installed
  end

  test "what is damaged or lacks a file is refused by its name, and priv stays as it was", context do
    %{package: path, tmp_dir: folder, files: files} = context
    priv = Path.join(folder, "priv")
    File.mkdir_p!(priv)
    File.write!(Path.join(priv, "mine"), "")
    bad = Path.join(folder, Path.basename(path))
    bytes = File.read!(path)

    File.cp!(path <> ".sha256", bad <> ".sha256")
    assert refused(bad, priv) == "the package #{bad} cannot be read: no such file or directory"
    File.write!(bad, binary_part(bytes, 0, 100_000))
    assert refused(bad, priv) =~ "the package #{bad} is damaged: its SHA-256 is "
    assert refused(path, priv, here(), String.duplicate("0", 64)) =~ "the package #{path} is damaged"
    File.write!(bad, "not a tarball")
    File.write!(bad <> ".sha256", :crypto.hash(:sha256, "not a tarball") |> Base.encode16(case: :lower))
    assert refused(bad, priv) =~ "the package #{bad} is not a tarball"
    File.rm!(bad <> ".sha256")
    assert refused(bad, priv) == "the package #{bad}.sha256 cannot be read: no such file or directory"
    File.write!(bad <> ".sha256", "nothing")
    assert refused(bad, priv) == "the package #{bad}.sha256 has no SHA-256 checksum"

    cases = [
      {&Map.put(&1, "lib/libtbb.so.12", "other"),
       "is damaged: lib/libtbb.so.12 is not the file of its manifest"},
      {&Map.delete(&1, "exphil_native.so"), "lacks the file exphil_native.so of its manifest"},
      {&Map.put(&1, "kernels/other.cu", ""), "has a file that its manifest does not list: kernels/other.cu"},
      {&Map.update!(&1, "manifest", fn m -> m <> "file #{String.duplicate("0", 64)} ../out\n" end),
       "lists a file outside of it: ../out"},
      {&Map.update!(&1, "manifest", fn m -> String.replace(m, ~r/^nif .*\n/m, "") end),
       "has a manifest without nif"},
      {&Map.put(&1, "manifest", "other\n"), ~s(has a manifest of another kind: it begins with "other")}
    ]

    for {{change, why}, i} <- Enum.with_index(cases) do
      from = files |> change.() |> unpack(Path.join(folder, "bad#{i}"))
      assert refused(from, priv) == "the package #{from} #{why}"
    end

    empty = Path.join(folder, "empty")
    File.mkdir_p!(empty)

    assert refused(empty, priv) =~
             "the package #{empty} has no package for this machine, such as exphil_native-nif-"

    assert File.ls!(priv) == ["mine"]
  end

  test "what is for another machine, Erlang or commit is refused", %{files: files, tmp_dir: folder} do
    other = if here().target == "aarch64-linux-gnu", do: "x86_64-linux-gnu", else: "aarch64-linux-gnu"

    cases = [
      {"target", "target #{other}", "is for #{other}, and this machine is #{here().target}"},
      {"version", "version 9.9.9", "is of version 9.9.9, and this is version #{@version}"},
      {"interface", "interface 1", "has interface 1 to Elixir, and this project has #{here().interface}"},
      {"nif", "nif 2.99",
       "needs NIF interface 2.99, and this Erlang/OTP #{System.otp_release()} has #{here().nif}"},
      {"glibc", "glibc 2.99", "needs glibc 2.99, and this machine has #{here().glibc}"}
    ]

    for {was, line, why} <- cases do
      from = files |> with_line(was, line) |> unpack(Path.join(folder, was))
      assert refused(from, Path.join(folder, "priv")) =~ "the package #{from} #{why}"
    end

    # Libraries for an older NIF interface load in a newer VM, and numbers are not compared as text.
    older = files |> with_line("nif", "nif 2.4") |> unpack(Path.join(folder, "older"))
    assert Package.install!(older, Path.join(folder, "priv"), here()) == :installed
    assert Package.target("x86_64-pc-linux-gnu") == "x86_64-linux-gnu"
    assert Package.target("aarch64-unknown-linux-musl") == "aarch64-linux-musl"
  end

  test "is taken from a URL, once", %{package: path, tmp_dir: folder} do
    {:ok, _} = Application.ensure_all_started(:inets)
    served = Path.expand("served", folder)
    File.mkdir_p!(served)

    # Releases are built with OTP 25, and so of NIF interface 2.16.
    for ending <- ["", ".sha256"],
        name <- [path, String.replace(path, "nif-#{here().nif}-", "nif-2.16-")],
        do: File.cp!(path <> ending, Path.join(served, Path.basename(name <> ending)))

    root = String.to_charlist(served)

    options = [
      port: 0,
      bind_address: {127, 0, 0, 1},
      server_name: ~c"here",
      server_root: root,
      document_root: root
    ]

    {:ok, server} = :inets.start(:httpd, options)
    [port: port] = :httpd.info(server, [:port])
    url = "http://127.0.0.1:#{port}/"
    priv = Path.join(folder, "priv")
    assert Package.install!(url <> Path.basename(path), priv, here()) == :installed

    assert refused(url <> "none.tar.gz", Path.join(folder, "none")) =~
             "the package #{url}none.tar.gz.sha256 was not sent: 404"

    assert Package.install!(url, Path.join(folder, "of_folder"), here()) == :installed

    :ok = :inets.stop(:httpd, server)
    # What is installed is not fetched again.
    assert Package.install!(url <> Path.basename(path), priv, here()) == :unchanged
    assert refused(url, Path.join(folder, "gone")) =~ "cannot be read"
  end

  test "the checksums of published packages are those that elixir_make reads", %{
    package: path,
    tmp_dir: folder
  } do
    File.mkdir_p!(Path.join(folder, ".ci"))
    File.cp!(".ci/publish", Path.join(folder, ".ci/publish"))
    {"", 0} = System.cmd(Path.join(folder, ".ci/publish"), [Path.dirname(path), "https://example.com/v1"])
    {sums, []} = folder |> Path.join("checksum.exs") |> Code.eval_file()
    sum = :crypto.hash(:sha256, File.read!(path)) |> Base.encode16(case: :lower)
    assert sums == %{Path.basename(path) => "sha256:" <> sum}
    assert File.read!(Path.join(folder, "packages.url")) == "https://example.com/v1/@{artefact_filename}\n"
  end

  @asked ~s"""
  Mix.Project.in_project(:exphil_native, hd(System.argv()), fn _ ->
    config = Mix.Project.config()
    names = for dep <- config[:deps], do: elem(dep, 0)
    IO.inspect({config[:make_precompiler], config[:make_precompiler_url], config[:make_precompiler_nif_versions], names})
  end)
  """

  test "elixir_make and cc_precompiler are used where packages are published, and there alone", %{
    tmp_dir: folder
  } do
    library = WithoutTools.project(Path.join(folder, "exphil_native"))
    bot = Path.join(folder, "bot")
    File.mkdir_p!(bot)

    File.write!(Path.join(bot, "mix.exs"), """
    defmodule Bot.MixProject do
      use Mix.Project
      def project, do: [app: :bot, version: "1.0.0", deps: deps()]
      defp deps, do: [{:elixir_make, path: "../make"}, {:cc_precompiler, path: "../cc"}]
    end
    """)

    ask = fn ->
      arguments = ["run", "--no-compile", "--no-deps-check", "--no-start", "-e", @asked, Path.expand(library)]
      env = [{"EXPHIL_HEX", "0"}, {"MIX_BUILD_PATH", nil}]
      {output, status} = System.cmd("mix", arguments, cd: bot, env: env, stderr_to_stdout: true)
      assert {status, output} == {0, output}
      {answer, _} = Code.eval_string(output)
      answer
    end

    assert {nil, nil, nil, []} = ask.()
    File.write!(Path.join(library, "checksum.exs"), "%{}\n")
    File.write!(Path.join(library, "packages.url"), "https://example.com/v1/@{artefact_filename}\n")

    assert {{:nif, CCPrecompiler}, "https://example.com/v1/@{artefact_filename}", [versions: ["2.16"]], names} =
             ask.()

    assert names == [:elixir_make, :cc_precompiler]
  end
end
