if Code.ensure_loaded?(Nx) and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn.Recurrent do
    @moduledoc false
    # The fused recurrent operators of ExPhil.Native.Defn, which documents them.

    import ExPhil.Native.Defn.Blocks

    alias ExPhil.Native.{Block, Error, Options, RecurrentScan}
    alias ExPhil.Native.RecurrentScan.Operators

    @doc "The operation of this name."
    def run(name, inputs, options) do
      row = Operators.fetch!(name)
      more = if row.activated, do: [:activated], else: []
      options = Options.read!(options, row.states ++ [:return_state | more], & &1)
      activated = Options.boolean(options, :activated, false)
      results = if Options.boolean(options, :return_state, false), do: Operators.final(row), else: []

      given = Enum.filter(row.states, &(options[&1] != nil))
      tensors = cast(row.inputs ++ given, inputs ++ Enum.map(given, &options[&1]))
      block = block(row, :forward, activated, given, results)
      out = run_block(block, tensors, template(row, tensors, results))
      h = if results == [], do: out, else: elem(out, 0)
      gradient = &gradient(&1, row, tensors, given, activated, {h, results})
      out |> with_gradient(tensors, gradient) |> shaped()
    end

    # All of the first one's type.
    defp cast(names, [first | _] = tensors) do
      %{type: type} = real(Nx.to_tensor(first))

      for {name, tensor} <- Enum.zip(names, tensors) do
        {_, tensor} = refuse_vectorized({name, Nx.to_tensor(tensor)})
        Nx.as_type(tensor, type)
      end
    end

    defp real(%{type: type} = tensor) when type in [{:f, 32}, {:f, 16}, {:bf, 16}], do: tensor
    defp real(tensor), do: Nx.as_type(tensor, {:f, 32})

    # kind: :forward or :grad. operands, results: those beside the inputs, and beside h.
    defp block(row, kind, activated, operands, results) do
      target = Operators.target(row)

      %Block{
        target: if(kind == :grad, do: target <> "_grad", else: target),
        function: if(kind == :grad, do: :"#{row.name}_grad", else: row.name),
        operands: operands,
        results: results,
        options: if(row.activated, do: [activated: activated], else: []),
        attributes: Operators.attributes(row, activated, Enum.join(operands, " "), Enum.join(results, " "))
      }
    end

    defp template(row, [first | _], results) do
      {batch, seq, hidden} = sizes(row, first.shape)
      h = Nx.template({batch, seq, hidden}, first.type, names: if(row.gates == 1, do: first.names))
      state = Nx.template({batch, hidden}, first.type)
      if results == [], do: h, else: List.to_tuple([h | Enum.map(results, fn _ -> state end)])
    end

    # The eager call refuses other shapes that make no sense.
    defp sizes(row, {batch, seq, gates}), do: {batch, seq, div(gates, row.gates)}

    defp sizes(row, shape) do
      expected = "{batch, seq, #{if row.gates > 1, do: "#{row.gates} "}hidden}"
      raise Error.invalid(to_string(hd(row.inputs)), expected, shape)
    end

    defp shaped({h, final_h, final_c}), do: {h, {final_h, final_c}}
    defp shaped(out), do: out

    # g: dh, or a tuple with the gradients of the last states behind it. Returns those of the tensors, in
    # their order. h saves computing it again where it is f32 and no other cell's state is in it.
    defp gradient(g, row, [first | _] = tensors, given, activated, {h, results}) do
      {batch, seq, hidden} = sizes(row, first.shape)
      [dh | d_final] = if is_tuple(g), do: Tuple.to_list(g), else: [g]
      like = fn tensor, shape -> tensor |> broadcast_to(shape) |> Nx.as_type(first.type) end
      known = if row.gates == 1 and first.type == {:f, 32}, do: [h: h], else: []
      operands = [:dh | if(results == [], do: [], else: Operators.d_final(row))] ++ Keyword.keys(known)
      block = block(row, :grad, activated, given ++ operands, row.inputs ++ given)
      d_final = Enum.map(d_final, &like.(&1, {batch, hidden}))
      incoming = [like.(dh, {batch, seq, hidden}) | d_final] ++ Keyword.values(known)
      templates = tensors |> Enum.map(&Nx.template(&1.shape, &1.type)) |> List.to_tuple()
      block |> run_block(tensors ++ incoming, templates) |> Tuple.to_list()
    end

    @doc "The eager call of a block: the result, or a tuple of them."
    def eager(%Block{} = block, tensors) do
      {"op", name} = List.keyfind(block.attributes, "op", 0)
      row = Operators.fetch!(String.to_existing_atom(name))
      {inputs, given} = Enum.split(tensors, length(row.inputs))
      options = Enum.zip(block.operands, given)

      if block.function == row.name do
        state = if block.results == [], do: [], else: [return_state: true]
        flat(apply(RecurrentScan, row.name, inputs ++ [options ++ block.options ++ state]))
      else
        {dh, options} = Keyword.pop!(options, :dh)
        gradients = apply(RecurrentScan, block.function, [dh | inputs] ++ [options ++ block.options])
        block.results |> Enum.map(&Map.fetch!(gradients, &1)) |> List.to_tuple()
      end
    end

    # A plain tensor is a tuple of three too: its first element is a type.
    defp flat({type, _, _} = tensor) when is_atom(type), do: tensor
    defp flat({h, {type, _, _} = final_h}) when is_atom(type), do: {h, final_h}
    defp flat({h, {final_h, final_c}}), do: {h, final_h, final_c}
  end
end
