defmodule ExPhil.Native.Package do
  @moduledoc false
  # Takes a package of `make package` (.ci/package writes it and its manifest) in place of a build: checks it against its
  # checksums, this project and this machine, and installs it as priv/. mix.exs calls it before anything is compiled, so it
  # uses Elixir alone. Nothing in priv/ changes unless the whole package is right. Errors are raised by Mix.raise/1 and name
  # what was read.

  # What a package is compared with.
  @enforce_keys [:version, :interface, :target, :nif, :glibc]
  defstruct @enforce_keys

  @app "exphil_native"

  @doc "This project and this machine."
  def here(version) do
    %__MODULE__{
      version: version,
      interface: interface(File.read("lib/ex_phil/native/nif.ex")),
      target: target(to_string(:erlang.system_info(:system_architecture))),
      nif: to_string(:erlang.system_info(:nif_version)),
      glibc: glibc()
    }
  end

  defp interface({:ok, text}), do: ~r/^ *@interface (\d+)/m |> Regex.run(text) |> List.last()

  @doc "`x86_64-pc-linux-gnu` without its vendor."
  def target(architecture) do
    case String.split(architecture, "-") do
      [machine, _vendor, os, abi] -> Enum.join([machine, os, abi], "-")
      _ -> architecture
    end
  end

  # Not known without getconf: a library that needs a newer one is then refused when it is loaded.
  defp glibc do
    with path when path != nil <- System.find_executable("getconf"),
         {"glibc " <> version, 0} <- System.cmd(path, ["GNU_LIBC_VERSION"], stderr_to_stdout: true) do
      String.trim(version)
    else
      _ -> nil
    end
  end

  @doc """
  Installs the package `from` in `priv`, which is :installed or :unchanged. `from` is a tarball, a folder that has one for this machine, an
  unpacked package, or the URL of a tarball or, with a final `/`, of a folder. `sha256` is the tarball's; nil is that of the file
  beside it whose name ends in `.sha256`.
  """
  def install!(from, priv, %__MODULE__{} = here, sha256 \\ nil) do
    if url?(from) and source(priv) == from and installed?(priv, here),
      do: :unchanged,
      else: from |> files!(here, sha256) |> check!(from, here) |> write(from, priv)
  end

  @doc "Whether `priv` holds an undamaged package for this project and machine."
  def installed?(priv, here),
    do: File.regular?(Path.join(priv, "manifest")) and wrong(folder(priv), here) == nil

  defp source(priv) do
    with {:ok, source} <- File.read(Path.join(priv, "source")), do: source
  end

  # ---- reading: %{name => bytes} -------------------------------------------------------------------------------

  defp files!(from, here, sha256) do
    cond do
      url?(from) ->
        url = if String.ends_with?(from, "/"), do: from <> tarball_name(here), else: from
        sum = sha256 || sum!(download!(url <> ".sha256"), url <> ".sha256")
        url |> download!() |> unpack!(url, sum)

      File.regular?(Path.join(from, "manifest")) ->
        folder(from)

      File.dir?(from) ->
        tarball!(in_folder!(from, here), sha256)

      true ->
        tarball!(from, sha256)
    end
  end

  # The newest NIF interface that this VM has: an older one's library loads in it, too.
  defp in_folder!(folder, here) do
    names = Path.wildcard(Path.join(folder, "#{@app}-nif-*-#{here.target}-#{here.version}.tar.gz"))

    case names |> Enum.filter(&(not newer?(nif_of(&1), here.nif))) |> Enum.sort_by(&parts(nif_of(&1))) do
      [] -> refuse(folder, "has no package for this machine, such as #{tarball_name(here)}")
      names -> List.last(names)
    end
  end

  defp nif_of(path), do: path |> Path.basename() |> String.split("-") |> Enum.at(2)

  # Releases are built with the oldest supported OTP, 25.
  defp tarball_name(here), do: "#{@app}-nif-2.16-#{here.target}-#{here.version}.tar.gz"

  defp tarball!(path, sha256) do
    bytes = read!(path)
    unpack!(bytes, path, sha256 || sum!(read!(path <> ".sha256"), path <> ".sha256"))
  end

  defp read!(path) do
    case File.read(path) do
      {:ok, bytes} -> bytes
      {:error, reason} -> refuse(path, "cannot be read: #{:file.format_error(reason)}")
    end
  end

  defp sum!(text, where) do
    case Regex.run(~r/\A[0-9a-f]{64}\b/, text) do
      [sum] -> sum
      nil -> refuse(where, "has no SHA-256 checksum")
    end
  end

  defp unpack!(bytes, where, sum) do
    if sha256(bytes) != String.downcase(sum),
      do: refuse(where, "is damaged: its SHA-256 is #{sha256(bytes)} and should be #{sum}")

    case :erl_tar.extract({:binary, bytes}, [:compressed, :memory]) do
      {:ok, files} -> Map.new(files, fn {name, bytes} -> {to_string(name), bytes} end)
      {:error, reason} -> refuse(where, "is not a tarball: #{inspect(reason)}")
    end
  end

  defp folder(folder) do
    for path <- Path.wildcard(Path.join(folder, "**")),
        File.regular?(path),
        name = Path.relative_to(path, folder),
        name != "source",
        into: %{},
        do: {name, File.read!(path)}
  end

  # ---- checking ------------------------------------------------------------------------------------------------

  defp check!(files, from, here) do
    if why = wrong(files, here), do: refuse(from, why)
    files
  end

  # Why these files are no package for this project and machine, or nil.
  defp wrong(%{"manifest" => manifest} = files, here) do
    listed = listed(manifest)
    unlisted = (files |> Map.delete("manifest") |> Map.keys()) -- Map.keys(listed)

    cond do
      why = unfit(manifest, here) -> why
      unlisted != [] -> "has a file that its manifest does not list: #{hd(unlisted)}"
      true -> Enum.find_value(listed, fn {name, sum} -> damage(name, files[name], sum) end)
    end
  end

  defp wrong(_files, _here), do: "has no manifest: it is not a package of `make package`"

  defp damage(name, bytes, sum) do
    cond do
      Path.type(name) != :relative or ".." in Path.split(name) -> "lists a file outside of it: #{name}"
      bytes == nil -> "lacks the file #{name} of its manifest"
      sha256(bytes) != sum -> "is damaged: #{name} is not the file of its manifest"
      true -> nil
    end
  end

  # What every manifest says, and what it looks like.
  @said [
    version: ~S"\S+",
    interface: ~S"\d+",
    target: ~S"\S+",
    nif: ~S"\d+(?:\.\d+)*",
    glibc: ~S"\d+(?:\.\d+)*"
  ]

  # Why the manifest is not for this project and machine, or nil.
  defp unfit(manifest, here) do
    said =
      for {key, form} <- @said,
          [_, value] <- [Regex.run(~r/^#{key} (#{form})$/m, manifest)],
          into: %{},
          do: {key, value}

    unsaid = Keyword.keys(@said) -- Map.keys(said)

    cond do
      not String.starts_with?(manifest, "#{@app} package 1\n") ->
        "has a manifest of another kind: it begins with #{manifest |> String.split("\n") |> hd() |> inspect()}"

      unsaid != [] ->
        "has a manifest without #{Enum.join(unsaid, ", ")}"

      said.version != here.version ->
        "is of version #{said.version}, and this is version #{here.version}"

      said.interface != here.interface ->
        "has interface #{said.interface} to Elixir, and this project has #{here.interface}: both must be of one commit"

      said.target != here.target ->
        "is for #{said.target}, and this machine is #{here.target}"

      newer?(said.nif, here.nif) ->
        "needs NIF interface #{said.nif}, and this Erlang/OTP #{System.otp_release()} has #{here.nif}"

      here.glibc != nil and newer?(said.glibc, here.glibc) ->
        "needs glibc #{said.glibc}, and this machine has #{here.glibc}"

      true ->
        nil
    end
  end

  defp listed(manifest) do
    for [_, sum, name] <- Regex.scan(~r/^file ([0-9a-f]{64}) (.+)$/m, manifest), into: %{}, do: {name, sum}
  end

  defp newer?(version, than), do: parts(version) > parts(than)
  defp parts(version), do: version |> String.split(".") |> Enum.map(&String.to_integer/1)

  defp sha256(bytes) do
    find(:crypto)
    :crypto.hash(:sha256, bytes) |> Base.encode16(case: :lower)
  end

  # ---- installing ----------------------------------------------------------------------------------------------

  # By rename, from beside it: a VM that has loaded the old library keeps it.
  defp write(files, from, priv) do
    if folder(priv) == files do
      File.write!(Path.join(priv, "source"), from)
      :unchanged
    else
      new = "#{priv}.#{System.pid()}"

      for {name, bytes} <- Map.put(files, "source", from) do
        path = Path.join(new, name)
        File.mkdir_p!(Path.dirname(path))
        File.write!(path, bytes)
      end

      File.rm_rf!(priv)
      File.rename!(new, priv)
      :installed
    end
  end

  # ---- the network ---------------------------------------------------------------------------------------------

  defp url?(from), do: String.starts_with?(from, ["http://", "https://"])

  defp download!(url) do
    for app <- [:inets, :ssl], do: start!(app, url)
    https = [verify: :verify_peer, depth: 4, cacerts: cacerts()]

    https =
      [customize_hostname_check: [match_fun: :public_key.pkix_verify_hostname_match_fun(:https)]] ++ https

    # Also for http:, where httpc otherwise makes its own and fails on a machine without certificates.
    options = [timeout: 600_000, connect_timeout: 30_000, ssl: https]

    case :httpc.request(:get, {String.to_charlist(url), []}, options, body_format: :binary) do
      {:ok, {{_, 200, _}, _headers, body}} -> body
      {:ok, {{_, status, text}, _headers, _body}} -> refuse(url, "was not sent: #{status} #{text}")
      {:error, reason} -> refuse(url, "cannot be read: #{inspect(reason)}")
    end
  end

  defp start!(app, url) do
    find(app)

    case Application.ensure_all_started(app) do
      {:ok, _} -> :ok
      {:error, _} -> refuse(url, "cannot be read without Erlang's #{app} (Debian: erlang-#{app})")
    end
  end

  # Elixir 1.15 and newer hide applications of Erlang that a project does not name.
  defp find(app) do
    if function_exported?(Mix, :ensure_application!, 1), do: apply(Mix, :ensure_application!, [app])
  end

  defp cacerts do
    :public_key.cacerts_get()
  rescue
    _ -> []
  catch
    _, _ -> []
  end

  defp refuse(what, why), do: Mix.raise("the package #{what} #{why}")
end
