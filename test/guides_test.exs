defmodule ExPhil.Native.GuidesTest do
  # Every block of every notebook in docs/guides runs unchanged, in an empty folder, but for the first one, which installs. Not
  # async: the current folder is shared by the entire VM.
  use ExUnit.Case
  import ExUnit.CaptureIO
  import ExPhil.Native.TestSupport.Documents

  @compile {:no_warn_undefined, Nx}
  @moduletag :tmp_dir

  @setup """
  # The checkout that this notebook is in, and else the package on Hex. Where nothing can be compiled, EXPHIL_NATIVE_PRECOMPILED names one.
  checkout = Path.expand("../..", __DIR__)
  native = if File.exists?(Path.join(checkout, "lib/ex_phil/native.ex")), do: [path: checkout], else: "~> 0.1"
  Mix.install([{:exphil_native, native}, DEPENDENCIES{:kino, "~> 0.14"}])
  """

  # The variables after the guide, and what it printed.
  defp guide(name, folder, dependencies \\ "") do
    [{file, _, setup} | blocks] = blocks("docs/guides/#{name}.livemd")
    assert {file, setup} == {file, String.replace(@setup, "DEPENDENCIES", dependencies)}
    assert blocks != []
    {bindings, output} = with_io(fn -> run(blocks, folder) end)
    {Map.new(bindings), output}
  end

  defp svg?(folder, name), do: File.read!(Path.join(folder, name)) =~ ~r/\A<svg.*polyline.*<\/svg>\n\z/s

  test "first policy", %{tmp_dir: folder} do
    {found, output} = guide("first_policy", folder)
    assert output =~ "[ok] NIF"
    assert found.correct > 0.95
    assert found.held == List.duplicate(:right, 21)
    assert svg?(folder, "loss.svg")
  end

  test "a bot at 60 FPS", %{tmp_dir: folder} do
    {found, _} = guide("bot_at_60_fps", folder)
    assert length(found.times) == 120 and found.same_bits?
    assert svg?(folder, "steps.svg")
  end

  test "rollback", %{tmp_dir: folder} do
    {found, _} = guide("rollback", folder)
    assert %{same_bits?: true, next: true, same_again?: true} = found
    assert length(found.times) == 8 and svg?(folder, "rollback.svg")
  end

  test "a bot that must remember", %{tmp_dir: folder} do
    {found, _} = guide("remember", folder)
    assert [{0, fresh} | _] = found.with_memory
    {100, last} = List.last(found.with_memory)
    assert fresh <= 75 and last >= 95 and found.score_of_file == last
    assert Enum.all?(found.without, fn {_step, score} -> score <= 75 end)
    assert svg?(folder, "corridor.svg")
  end

  test "from ExPhil's agent", %{tmp_dir: folder} do
    {found, _} = guide("from_exphil", folder)
    assert found.same?
    assert %{buttons: _, main_stick: {x, y}, c_stick: _, shoulder: _} = found.answer
    assert x >= 0 and x <= 1 and y >= 0 and y <= 1
    assert svg?(folder, "stick.svg")
  end

  test "a fleet", %{tmp_dir: folder} do
    {found, _} = guide("fleet", folder)
    assert length(found.matches) == 16 and found.same_bits? and found.asked_again?
    assert found.missing.kind == :missing_frames
  end

  @tag :axon
  test "the scan from Nx and Axon", %{tmp_dir: folder} do
    Enum.each([:nx, :polaris, :axon], &Application.ensure_all_started/1)
    {found, _} = guide("nx_and_axon", folder, ~s({:nx, "~> 0.12"}, {:axon, "~> 0.8"}, ))
    assert found.difference < 1.0e-4
    assert Nx.shape(found.slope) == {4, 60, 32}
    # What answering 0 would cost.
    spread = found.distances |> Nx.pow(2) |> Nx.mean() |> Nx.to_number()
    assert found.error < 0.5 * spread
    assert svg?(folder, "axon.svg")
  end

  # In a copy, because it is for the address that mix.exs declares.
  test "make badges links each guide to Livebook where this project has an address, and is idempotent", %{
    tmp_dir: folder
  } do
    for path <- ["mix.exs", "README.md", ".ci/badges" | Path.wildcard("docs/guides/*.livemd")] do
      File.mkdir_p!(Path.dirname(Path.join(folder, path)))
      File.cp!(path, Path.join(folder, path))
    end

    badges = fn url ->
      mix = Path.join(folder, "mix.exs")

      File.write!(
        mix,
        String.replace(File.read!(mix), ~r/@source_url (nil|".*")$/m, "@source_url #{inspect(url)}")
      )

      assert {"", 0} = System.cmd(Path.join(folder, ".ci/badges"), [], stderr_to_stdout: true)

      for path <- ["README.md" | Path.wildcard("docs/guides/*.livemd")],
          into: %{},
          do: {path, File.read!(Path.join(folder, path))}
    end

    declared = Mix.Project.config()[:source_url]

    here =
      for path <- ["README.md" | Path.wildcard("docs/guides/*.livemd")],
          into: %{},
          do: {path, File.read!(path)}

    assert badges.(declared) == here
    with_badges = badges.("https://example.com/a/b")
    assert badges.("https://example.com/a/b") == with_badges

    for {path, text} <- with_badges, path != "README.md" do
      [title, "", badge, "" | _] = String.split(text, "\n")
      assert title =~ ~r/^# /

      [_, url] =
        Regex.run(
          ~r"^\[!\[Run in Livebook\]\(https://livebook.dev/badge/v1/blue.svg\)\]\((https://livebook.dev/run\?.*)\)$",
          badge
        )

      assert URI.decode_query(URI.parse(url).query) == %{"url" => "https://example.com/a/b/blob/main/#{path}"}
      assert with_badges["README.md"] =~ "](#{path}) #{badge}"
    end

    assert Enum.all?(badges.(nil), fn {_, text} -> not (text =~ "livebook.dev") end)
    assert badges.(declared) == here
  end

  # What the first block would install: with the notebook where it is, and where Livebook has it from its URL, without a folder.
  test "a guide installs its checkout, or the package where there is none", %{tmp_dir: folder} do
    {:__block__, meta, lines} =
      @setup
      |> String.replace("DEPENDENCIES", "")
      |> Code.string_to_quoted!()
      |> Macro.prewalk(&dependencies/1)

    from = fn file ->
      # Livebook evaluates a notebook of a URL in its own folder.
      {[{:exphil_native, from} | _], _} =
        File.cd!(folder, fn -> Code.eval_quoted({:__block__, meta, lines}, [], file: file) end)

      from
    end

    assert [path: path] = from.(Path.expand("docs/guides/rollback.livemd") <> "#cell:setup")
    assert path == File.cwd!()
    requirement = from.("#cell:setup")
    assert Version.match?(Mix.Project.config()[:version], requirement)
  end

  defp dependencies({{:., _, [{:__aliases__, _, [:Mix]}, :install]}, _, [dependencies]}), do: dependencies
  defp dependencies(other), do: other

  test "every guide has a test here, and is linked from the README" do
    text = File.read!(__ENV__.file)
    files = Path.wildcard("docs/guides/*.livemd")
    assert length(files) >= 4

    for file <- files do
      assert text =~ ~s[guide("#{Path.basename(file, ".livemd")}"]
      assert File.read!("README.md") =~ file
      # What it links to is there.
      for [_, link] <- Regex.scan(~r/\]\(((?!https:)[^)#]+)[^)]*\)/, File.read!(file)),
          do: assert({file, link, true} == {file, link, File.exists?(Path.expand(link, "docs/guides"))})
    end
  end
end
