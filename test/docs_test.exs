defmodule ExPhil.Native.DocsTest do
  # What `mix docs` would warn about. ExDoc comes from Hex, and is not among what the tests need.
  use ExUnit.Case, async: true

  @docs Mix.Project.config()[:docs]
  @pages for page <- @docs[:extras], do: if(is_binary(page), do: {page, []}, else: page)
  @files for {path, _} <- @pages, do: to_string(path)

  # The name of the page that ExDoc writes.
  defp id({path, options}),
    do: options[:filename] || path |> Path.basename() |> Path.rootname() |> String.downcase()

  test "every page is there, and has a name of its own" do
    assert length(@files) > 25
    for file <- @files, do: assert({file, true} == {file, File.regular?(file)})
    ids = Enum.map(@pages, &id/1)
    assert ids -- Enum.uniq(ids) == []
    guides = Path.wildcard("docs/guides/*.livemd")
    assert guides != [] and guides -- @files == []
    assert Path.wildcard("docs/*.md") -- @files == []
    assert Path.wildcard("bench/results/*.md") -- @files == []
  end

  test "the index of the results has each of them, with its title" do
    index = File.read!("bench/results/index.md")

    for file <- Path.wildcard("bench/results/*.md") -- ["bench/results/index.md"] do
      ["# " <> title | _] = file |> File.read!() |> String.split("\n", parts: 2)
      assert index =~ "- [#{title}](#{Path.basename(file)})\n"
    end
  end

  test "prose of the results has at most 110 columns" do
    for file <- Path.wildcard("bench/results/*.md"),
        line <- file |> File.read!() |> String.split("\n"),
        String.length(line) > 110 do
      assert {file, String.starts_with?(line, ["|", "    "]), line} == {file, true, line}
    end
  end

  # ExDoc finds the page of a link by the last part of its path, and the last page of that name is the one.
  test "a link to a page of docs/ leads to it, and links from a page lead to pages" do
    by_name = Map.new(@files, &{Path.basename(&1), &1})
    for file <- Path.wildcard("docs/*.md"), do: assert(by_name[Path.basename(file)] == file)

    for file <- @files, file != "README.md", link <- links(File.read!(file)) do
      assert {file, link, true} == {file, link, is_map_key(by_name, Path.basename(link))}
    end
  end

  # Of files that ExDoc makes pages of; code has no links.
  defp links(text) do
    prose =
      text
      |> String.split(~r/^```.*$/m)
      |> Enum.take_every(2)
      |> Enum.join()
      |> String.replace(~r/`[^`\n]*`/, "")

    for [_, path] <- Regex.scan(~r/(?<!!)\[[^\]]*\]\(([^)#\s]+)[^)]*\)/, prose),
        not (path =~ ~r/^[a-z]+:/),
        Path.extname(path) in ["", ".md", ".livemd"],
        do: path
  end

  test "headings that are linked to have the same name on a forge and in ExDoc" do
    for file <- @files,
        text = File.read!(file),
        [_, page, anchor] <- Regex.scan(~r/\]\(([\w\/.-]*\.md)#([\w-]+)\)/, text) do
      headings =
        for [_, title] <-
              page |> Path.expand(Path.dirname(file)) |> File.read!() |> then(&Regex.scan(~r/^#+ (.+)$/m, &1)),
            do: title

      forge =
        Map.new(
          headings,
          &{&1 |> String.downcase() |> String.replace(~r/[^\w\- ]/u, "") |> String.replace(" ", "-"), &1}
        )

      assert {file, page, anchor, true} == {file, page, anchor, is_map_key(forge, anchor)}
      # What is no letter and no digit is a dash in ExDoc, and nothing on a forge.
      ex_doc = forge[anchor] |> String.downcase() |> String.replace(~r/[^a-z0-9_]+/, "-") |> String.trim("-")
      if file != "README.md", do: assert({file, anchor} == {file, ex_doc})
    end
  end

  test "every function that a text names with its module is documented" do
    {:ok, modules} = :application.get_key(:exphil_native, :modules)

    found =
      for module <- modules,
          {:docs_v1, _, :elixir, _, %{"en" => _}, _, entries} <- [Code.fetch_docs(module)],
          into: %{} do
        functions =
          for {{_, name, arity}, _, _, doc, meta} <- entries,
              doc != :hidden,
              do: {name, arity, meta[:defaults] || 0}

        {inspect(module), functions}
      end

    texts =
      for(file <- @files, do: {file, File.read!(file)}) ++
        for module <- Map.keys(found), text <- texts(Module.concat([module])), do: {module, text}

    named =
      for {where, text} <- texts,
          [_, module, name, arity] <-
            Regex.scan(~r/`(?:t:|c:)?(ExPhil(?:\.[A-Z]\w*)+)\.([a-z_]\w*[?!]?)\/(\d+)`/, text),
          do: {where, module, String.to_atom(name), String.to_integer(arity)}

    assert length(named) > 40

    lacking =
      for {where, module, name, arity} <- named,
          # Compiled only with Nx.
          module != "ExPhil.Native.Defn" or is_map_key(found, module),
          not Enum.any?(Map.get(found, module, []), fn {n, most, defaults} ->
            n == name and arity in (most - defaults)..most
          end),
          do: {where, "#{module}.#{name}/#{arity}"}

    assert lacking == []
  end

  defp texts(module) do
    {:docs_v1, _, _, _, of_module, _, entries} = Code.fetch_docs(module)
    docs = [of_module | for({_, _, _, doc, _} <- entries, do: doc)]
    for %{"en" => text} <- docs, do: text
  end

  test "no spec or type of a documented module names a type of one that is not" do
    {:ok, modules} = :application.get_key(:exphil_native, :modules)

    hidden =
      for module <- modules,
          {:docs_v1, _, :elixir, _, :hidden, _, _} <- [Code.fetch_docs(module)],
          do: inspect(module)

    assert "ExPhil.Native.NIF" in hidden

    for module <- modules,
        {:docs_v1, _, :elixir, _, %{"en" => _}, _, entries} <- [Code.fetch_docs(module)] do
      shown = for {{kind, name, arity}, _, _, doc, _} <- entries, doc != :hidden, do: {kind, name, arity}
      {:ok, specs} = Code.Typespec.fetch_specs(module)
      {:ok, types} = Code.Typespec.fetch_types(module)

      of_functions =
        for {{name, arity}, all} <- specs,
            {:function, name, arity} in shown,
            spec <- all,
            do: Code.Typespec.spec_to_quoted(name, spec)

      of_types =
        for {_, {name, _, arguments} = type} <- types,
            {:type, name, length(arguments)} in shown,
            do: Code.Typespec.type_to_quoted(type)

      for quoted <- of_functions ++ of_types,
          named <- remote(quoted),
          do: assert({module, named, false} == {module, named, named in hidden})
    end
  end

  # The modules of Module.type() in a spec.
  defp remote(quoted) do
    {_, found} =
      Macro.prewalk(quoted, [], fn
        {{:., _, [module, _type]}, _, _} = node, found when is_atom(module) ->
          {node, [inspect(module) | found]}

        node, found ->
          {node, found}
      end)

    found
  end
end
