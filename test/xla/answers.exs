# Answers calls of the library for test_bits.py: mix run test/xla/answers.exs FOLDER BACKEND
#
# FOLDER/requests.terms holds Erlang terms {Name, Module, Function, Arguments, Options}, in which {tensor, Type, Shape, File}
# is a tensor whose bytes are FOLDER/File. The results are written to FOLDER/Name.Key, where Key is an index, or the name
# of a gradient.
alias ExPhil.Native.{AssociativeScan, SelectiveScan}

[folder, backend] = System.argv()
backend = %{"host" => :host, "cuda" => :cuda}[backend]
modules = %{scan: SelectiveScan, associative: AssociativeScan}

tensor = fn
  {:tensor, type, shape, file} -> {type, shape, File.read!(Path.join(folder, file))}
  other -> other
end

write = fn name, key, {_type, _shape, binary} -> File.write!(Path.join(folder, "#{name}.#{key}"), binary) end

{:ok, requests} = :file.consult(Path.join(folder, "requests.terms"))

for {name, module, function, arguments, options} <- requests do
  options = for {key, value} <- options, do: {key, tensor.(value)}
  arguments = Enum.map(arguments, tensor) ++ [[{:backend, backend} | options]]

  case apply(modules[module], function, arguments) do
    %{} = gradients -> for {key, gradient} <- gradients, do: write.(name, key, gradient)
    {type, _, binary} = one when is_atom(type) and is_binary(binary) -> write.(name, 0, one)
    many -> for {one, key} <- many |> Tuple.to_list() |> Enum.with_index(), do: write.(name, key, one)
  end
end
