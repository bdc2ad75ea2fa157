if Code.ensure_loaded?(Nx) and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn.Scan do
    @moduledoc false
    # The selective scan of ExPhil.Native.Defn, which documents it.

    import ExPhil.Native.Defn.Blocks

    alias ExPhil.Native.{Block, Options}

    @scan_options [
                    :d,
                    :z,
                    :dt_bias,
                    :initial_state,
                    :discretization,
                    :dt_softplus,
                    :dt_range,
                    :reverse,
                    :return_state
                  ] ++
                    [:algorithm]

    @doc "The operation: y, or {y, final_state}. operands: {x, dt, a, b, c}."
    def run(operands, options) do
      options = Options.read!(options, @scan_options, & &1)
      tensors = cast_operands(operands, options)
      {given, values} = tensors |> Map.take([:d, :z, :dt_bias, :initial_state]) |> Enum.unzip()
      main = Enum.map([:x, :dt, :a, :b, :c], &tensors[&1])
      static = Keyword.drop(options, [:d, :z, :dt_bias, :initial_state])

      block = %Block{
        target: "exphil_selective_scan",
        function: :scan,
        operands: given,
        options: static,
        results: if(options[:return_state], do: [:final_state], else: []),
        attributes: scan_attributes(static, given, if(options[:return_state], do: [:final_state], else: []))
      }

      out = run_block(block, main ++ values, scan_template(tensors, options))
      with_gradient(out, main ++ values, &scan_gradient(&1, main ++ values, given, static, tensors))
    end

    defp cast_operands({x, dt, a, b, c}, options) do
      x = as_floating(Nx.to_tensor(x))
      a = Nx.to_tensor(a)
      {state_type, projection_type} = if complex?(a), do: {{:c, 64}, {:c, 64}}, else: {{:f, 32}, x.type}
      types = %{d: {:f, 32}, z: x.type, dt_bias: {:f, 32}, initial_state: state_type}

      required = %{
        x: x,
        dt: Nx.as_type(Nx.to_tensor(dt), x.type),
        a: Nx.as_type(a, state_type),
        b: Nx.as_type(Nx.to_tensor(b), projection_type),
        c: Nx.as_type(Nx.to_tensor(c), projection_type)
      }

      for {name, type} <- types, options[name] != nil, into: required do
        {name, Nx.as_type(Nx.to_tensor(options[name]), type)}
      end
      |> Map.new(&refuse_vectorized/1)
    end

    defp scan_template(%{x: x, a: a}, options) do
      y = Nx.template(x.shape, x.type, names: x.names)

      if options[:return_state],
        do: {y, Nx.template({elem(x.shape, 0), elem(x.shape, 2), elem(a.shape, 1)}, a.type)},
        else: y
    end

    defp scan_attributes(options, operands, results) do
      range =
        case options[:dt_range] do
          nil -> []
          {min, max} -> [{"dt_min", min / 1}, {"dt_max", max / 1}]
        end

      [
        {"operands", Enum.join(operands, " ")},
        {"results", Enum.join(results, " ")},
        {"discretization", to_string(options[:discretization] || :zoh)},
        {"direction", if(options[:reverse], do: "reverse", else: "forward")},
        {"dt_softplus", options[:dt_softplus] || false}
      ] ++ range ++ if(options[:algorithm], do: [{"algorithm", to_string(options[:algorithm])}], else: [])
    end

    # g: dy, or {dy, d_final_state}. Returns the gradients of the tensors, in their order.
    defp scan_gradient(g, tensors, given, static, %{x: x} = named) do
      {dy, more, operands} =
        case g do
          {dy, d_final} ->
            {dy, [d_final |> broadcast_to(state_shape(named)) |> conjugate(named.a)], [:d_final_state]}

          dy ->
            {dy, [], []}
        end

      dy = dy |> broadcast_to(x.shape) |> Nx.as_type(x.type)
      more = Enum.map(more, &Nx.as_type(&1, named.a.type))
      static = Keyword.drop(static, [:return_state, :algorithm])
      results = [:x, :dt, :a, :b, :c | given]

      block = %Block{
        target: "exphil_selective_scan_grad",
        function: :grad,
        operands: given ++ operands,
        results: results,
        options: static,
        attributes: scan_attributes(static, given ++ operands, results)
      }

      templates = tensors |> Enum.map(&Nx.template(&1.shape, &1.type)) |> List.to_tuple()

      block
      |> run_block([dy | tensors] ++ more, templates)
      |> Tuple.to_list()
      |> Enum.map(&conjugate(&1, &1))
    end

    defp state_shape(%{x: x, a: a}), do: {elem(x.shape, 0), elem(x.shape, 2), elem(a.shape, 1)}

    # Where `like` is complex: the library's gradient is dL/dRe + i dL/dIm, Nx's its conjugate.
    defp conjugate(tensor, like), do: if(complex?(like), do: Nx.conjugate(tensor), else: tensor)
  end
end
