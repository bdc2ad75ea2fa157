if Code.ensure_loaded?(Nx) and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn.Blocks do
    @moduledoc false
    # What the operations of ExPhil.Native.Defn share: an Nx.block/4 of an ExPhil.Native.Block with a
    # gradient, whose default is the eager call. Callers: ExPhil.Native.Defn and the modules beside this one.

    alias ExPhil.Native.{AssociativeScan, Block, Error, Expression, SelectiveScan}
    alias ExPhil.Native.Defn.{Duality, Recurrent}

    def refuse_vectorized({name, %{vectorized_axes: []} = tensor}), do: {name, tensor}

    def refuse_vectorized({name, %{vectorized_axes: axes}}) do
      message = "#{name} is vectorized over #{inspect(Keyword.keys(axes))}; Nx.devectorize it first"
      raise Error.new(:invalid_argument, to_string(name), message)
    end

    def broadcast_to(%{shape: shape} = tensor, shape), do: tensor
    def broadcast_to(tensor, shape), do: Nx.broadcast(tensor, shape)

    def as_floating(%{type: type} = tensor) when type in [{:f, 32}, {:f, 16}, {:bf, 16}, {:c, 64}],
      do: tensor

    def as_floating(%{type: {:c, _}} = tensor), do: Nx.as_type(tensor, {:c, 64})
    def as_floating(tensor), do: Nx.as_type(tensor, {:f, 32})

    def complex?(%{type: {kind, _}}), do: kind == :c

    def run_block(block, tensors, template) do
      default = fn struct, tensors ->
        Nx.runtime_call(template, List.to_tuple(tensors), [block: struct], &__MODULE__.run/2)
      end

      Nx.block(block, alike(tensors), template, of_arity(default, length(tensors)))
    end

    # Nx.block/4 and custom_grad take tensors of one kind. A function may use tensors from outside of the
    # computation, beside its arguments.
    defp alike(tensors),
      do: if(Expression.any?(tensors), do: Enum.map(tensors, &Nx.Defn.Expr.tensor/1), else: tensors)

    # Nx.block/4 needs a function of the block and of each tensor.
    for arity <- 1..12 do
      arguments = Macro.generate_arguments(arity, __MODULE__)

      defp of_arity(fun, unquote(arity)),
        do: fn block, unquote_splicing(arguments) -> fun.(block, unquote(arguments)) end
    end

    # custom_grad needs an expression; outside of defn there is nothing to differentiate.
    def with_gradient(out, inputs, gradient) do
      if Expression.any?(inputs),
        do: Nx.Defn.Kernel.custom_grad(out, alike(inputs), gradient),
        else: out
    end

    # The default of a block: the eager call, on tensors in any backend. The result is in Nx's binary backend:
    # inside a runtime call no other computation may run on the caller's device.
    def run(tensors, block: %Block{} = block) do
      tensors |> Tuple.to_list() |> Enum.map(&plain/1) |> call(block) |> from_plain()
    end

    @recurrences for kind <- ~w(diagonal dense), grad <- ["", "_grad"], do: "exphil_#{kind}_recurrence#{grad}"

    defp call(tensors, %Block{target: target} = block) when target in @recurrences,
      do: Recurrent.eager(block, tensors)

    defp call(tensors, %Block{target: "exphil_state_space_duality" <> _} = block),
      do: Duality.eager(block, tensors)

    defp call([x, dt, a, b, c | more], %Block{function: :scan} = block),
      do: SelectiveScan.scan(x, dt, a, b, c, Enum.zip(block.operands, more) ++ block.options)

    defp call([dy, x, dt, a, b, c | more], %Block{function: :grad} = block) do
      gradients = SelectiveScan.grad(dy, x, dt, a, b, c, Enum.zip(block.operands, more) ++ block.options)
      block.results |> Enum.map(&Map.fetch!(gradients, &1)) |> List.to_tuple()
    end

    defp call([a, b], %Block{function: :linear_recurrence} = block),
      do: AssociativeScan.linear_recurrence(a, b, block.options)

    defp call([x], block), do: apply(AssociativeScan, block.function, [x, block.options])

    @types %{{:f, 32} => :f32, {:f, 16} => :f16, {:bf, 16} => :bf16, {:c, 64} => :c64}
    @nx_types Map.new(@types, fn {nx, type} -> {type, nx} end)

    defp plain(tensor), do: {Map.fetch!(@types, tensor.type), tensor.shape, Nx.to_binary(tensor)}

    defp from_plain({type, shape, binary}) when is_atom(type),
      do:
        binary |> Nx.from_binary(Map.fetch!(@nx_types, type), backend: Nx.BinaryBackend) |> Nx.reshape(shape)

    defp from_plain(results), do: results |> Tuple.to_list() |> Enum.map(&from_plain/1) |> List.to_tuple()
  end
end
