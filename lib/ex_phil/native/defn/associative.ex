if Code.ensure_loaded?(Nx) and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn.Associative do
    @moduledoc false
    # The associative scans of ExPhil.Native.Defn, which documents them.

    import ExPhil.Native.Defn.Blocks

    alias ExPhil.Native.{Block, Options}

    @doc "A cumulative operation along an axis."
    def cumulative(op, x, options) do
      x = as_floating(Nx.to_tensor(x))
      {axis, reverse} = recurrence_options(x, Keyword.delete(options, :compensated))
      compensated = op == :cumsum and Options.boolean(options, :compensated, false)
      y = cumulative(op, x, axis, reverse, compensated)
      with_gradient(y, [x], &[cumulative_gradient(op, x, y, &1, axis, reverse, compensated)])
    end

    @doc "h_t = a_t h_(t-1) + b_t along an axis."
    def linear_recurrence(a, b, options) do
      b = as_floating(Nx.to_tensor(b))
      a = Nx.as_type(Nx.to_tensor(a), b.type)
      {axis, reverse} = recurrence_options(b, options)
      h = recurrence(a, b, axis, reverse)

      with_gradient(h, [a, b], fn dh ->
        # db_t = dh_t + a_(t+1) db_(t+1);  da_t = db_t h_(t-1). Halves are computed in f32 and rounded once.
        {wide_a, wide_b} = {wide(a), wide(b)}
        h = if wide_a.type == a.type, do: h, else: recurrence(wide_a, wide_b, axis, reverse)
        db = recurrence(earlier(wide_a, axis, not reverse, 0), wide(dh), axis, not reverse)
        da = Nx.multiply(db, earlier(h, axis, reverse, 0))
        [Nx.as_type(da, a.type), Nx.as_type(db, b.type)]
      end)
    end

    defp cumulative(op, x, axis, reverse, compensated) do
      options = [axis: axis, reverse: reverse] ++ if(op == :cumsum, do: [compensated: compensated], else: [])

      block = %Block{
        target: "exphil_scan_cumulative",
        function: op,
        options: options,
        attributes: [{"op", to_string(op)}, {"compensated", compensated} | axis_attributes(axis, reverse)]
      }

      run_block(block, [x], Nx.template(x.shape, x.type, names: x.names))
    end

    # As core/associative/gradient.hpp: each is a scan in the other direction and elementwise operations.
    defp cumulative_gradient(:cumsum, x, _y, dy, axis, reverse, compensated),
      do: cumulative(:cumsum, Nx.as_type(broadcast_to(dy, x.shape), x.type), axis, not reverse, compensated)

    defp cumulative_gradient(op, x, y, dy, axis, reverse, _compensated) do
      {wide_x, dy} = {wide(x), wide(broadcast_to(dy, x.shape))}

      {factor, scale} =
        if op == :cumprod do
          {wide_x, earlier(cumulative(op, wide_x, axis, reverse, false), axis, reverse, 1)}
        else
          changes = changes(op, wide_x, wide(y), axis, reverse)
          {Nx.subtract(1, changes), changes}
        end

      s = recurrence(earlier(Nx.as_type(factor, dy.type), axis, not reverse, 0), dy, axis, not reverse)
      s = if op == :cumprod, do: Nx.multiply(scale, s), else: Nx.select(scale, s, 0)
      Nx.as_type(s, x.type)
    end

    # 1 where the extremum changes: at the first element, and where an element is beyond all before it. A NaN
    # is the last extremum.
    defp changes(op, x, y, axis, reverse) do
      before = earlier(y, axis, reverse, 0)
      kept = if op == :cummax, do: Nx.less_equal(x, before), else: Nx.greater_equal(x, before)
      first = earlier(Nx.broadcast(Nx.u8(0), x.shape), axis, reverse, 1)
      Nx.logical_or(first, Nx.logical_not(Nx.logical_or(kept, Nx.is_nan(before))))
    end

    defp recurrence(a, b, axis, reverse) do
      block = %Block{
        target: "exphil_linear_recurrence",
        function: :linear_recurrence,
        options: [axis: axis, reverse: reverse],
        attributes: axis_attributes(axis, reverse)
      }

      run_block(block, [a, b], Nx.template(b.shape, b.type, names: b.names))
    end

    defp axis_attributes(axis, reverse),
      do: [{"axis", axis}, {"direction", if(reverse, do: "reverse", else: "forward")}]

    defp recurrence_options(tensor, options) do
      options = Options.read!(options, [:axis, :reverse], & &1)
      {_, tensor} = refuse_vectorized({:x, tensor})

      axis =
        Nx.Shape.normalize_axis(tensor.shape, options[:axis] || min(1, Nx.rank(tensor) - 1), tensor.names)

      {axis, Options.boolean(options, :reverse, false)}
    end

    # The element before each in the order of the scan, and `first` before the first.
    defp earlier(tensor, axis, reverse, first) do
      steps = Nx.axis_size(tensor, axis)
      edge = Nx.broadcast(Nx.tensor(first, type: tensor.type), put_elem(tensor.shape, axis, 1))

      {from, order} = if reverse, do: {1, &[&1, edge]}, else: {0, &[edge, &1]}

      if steps == 1,
        do: edge,
        else: Nx.concatenate(order.(Nx.slice_along_axis(tensor, from, steps - 1, axis: axis)), axis: axis)
    end

    defp wide(%{type: {kind, 16}} = tensor) when kind in [:f, :bf], do: Nx.as_type(tensor, {:f, 32})
    defp wide(tensor), do: tensor
  end
end
