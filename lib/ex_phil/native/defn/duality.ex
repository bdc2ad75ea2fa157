if Code.ensure_loaded?(Nx) and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn.Duality do
    @moduledoc false
    # The operator of Mamba-2 of ExPhil.Native.Defn, which documents it.

    import ExPhil.Native.Defn.Blocks

    alias ExPhil.Native.{Block, Error, Options, StateSpaceDuality}

    @target "exphil_state_space_duality"
    @inputs [:x, :dt, :a, :b, :c]
    @optional [:d, :z, :dt_bias, :initial_state]

    @doc "The operation: y, or {y, final_state}."
    def run(inputs, options) do
      options = Options.read!(options, @optional ++ [:dt_softplus, :dt_range, :return_state], & &1)
      Options.range(options, :dt_range)
      results = if Options.boolean(options, :return_state, false), do: [:final_state], else: []
      given = Enum.filter(@optional, &(options[&1] != nil))
      tensors = cast(@inputs ++ given, inputs ++ Enum.map(given, &options[&1]))
      static = Keyword.take(options, [:dt_softplus, :dt_range])
      out = given |> block(:scan, results, static) |> run_block(tensors, template(tensors, results))
      with_gradient(out, tensors, &gradient(&1, tensors, given, static))
    end

    # x decides about the type of what each step has; the others are f32.
    defp cast(names, [x | _] = tensors) do
      x = as_floating(Nx.to_tensor(x))
      type = if complex?(x), do: {:f, 32}, else: x.type

      for {name, tensor} <- Enum.zip(names, tensors) do
        {_, tensor} = refuse_vectorized({name, Nx.to_tensor(tensor)})
        refuse_complex(name, tensor)
        Nx.as_type(tensor, if(name in [:x, :dt, :b, :c, :z], do: type, else: {:f, 32}))
      end
    end

    # A cast to a real type would drop the imaginary part.
    defp refuse_complex(name, %{type: {:c, _} = type}),
      do: raise(Error.invalid(to_string(name), "real", type))

    defp refuse_complex(_name, _tensor), do: :ok

    # operands, results: those beside x, dt, a, b and c, and beside y.
    defp block(operands, function, results, static) do
      range =
        case Options.range(static, :dt_range) do
          nil -> []
          {min, max} -> [{"dt_min", min}, {"dt_max", max}]
        end

      %Block{
        target: if(function == :grad, do: @target <> "_grad", else: @target),
        function: function,
        operands: operands,
        results: results,
        options: static,
        attributes:
          [
            {"operands", Enum.join(operands, " ")},
            {"results", Enum.join(results, " ")},
            {"dt_softplus", Options.boolean(static, :dt_softplus, false)}
          ] ++ range
      }
    end

    defp template([x | _] = tensors, results) do
      y = Nx.template(x.shape, x.type, names: x.names)
      if results == [], do: y, else: {y, Nx.template(state_shape(tensors), {:f, 32})}
    end

    # The eager call refuses other shapes that make no sense.
    defp state_shape([%{shape: {batch, _, heads, headdim}}, _dt, _a, %{shape: {_, _, _, state}} | _]),
      do: {batch, heads, headdim, state}

    defp state_shape([%{shape: {_, _, _, _}}, _dt, _a, b | _]),
      do: raise(Error.invalid("b", "{batch, seq, groups, state}", b.shape))

    defp state_shape([x | _]), do: raise(Error.invalid("x", "{batch, seq, heads, headdim}", x.shape))

    # g: dy, or {dy, d_final_state}. Returns the gradients of the tensors, in their order.
    defp gradient(g, [x | _] = tensors, given, static) do
      {dy, d_final} = if is_tuple(g), do: g, else: {g, nil}
      dy = dy |> broadcast_to(x.shape) |> Nx.as_type(x.type)

      {names, more} =
        if d_final,
          do: {[:d_final_state], [d_final |> broadcast_to(state_shape(tensors)) |> Nx.as_type({:f, 32})]},
          else: {[], []}

      templates = tensors |> Enum.map(&Nx.template(&1.shape, &1.type)) |> List.to_tuple()
      block = block(given ++ [:dy | names], :grad, @inputs ++ given, static)
      block |> run_block(tensors ++ [dy | more], templates) |> Tuple.to_list()
    end

    @doc "The eager call of a block: the result, or a tuple of them."
    def eager(%Block{function: :scan} = block, [x, dt, a, b, c | more]) do
      state = if block.results == [], do: [], else: [return_state: true]
      StateSpaceDuality.scan(x, dt, a, b, c, Enum.zip(block.operands, more) ++ block.options ++ state)
    end

    def eager(%Block{function: :grad} = block, [x, dt, a, b, c | more]) do
      {dy, options} = block.operands |> Enum.zip(more) |> Keyword.pop!(:dy)
      gradients = StateSpaceDuality.grad(dy, x, dt, a, b, c, options ++ block.options)
      block.results |> Enum.map(&Map.fetch!(gradients, &1)) |> List.to_tuple()
    end
  end
end
