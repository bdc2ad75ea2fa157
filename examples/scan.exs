# A selective scan on this machine's best backend: mix run examples/scan.exs
#
# y_t = <C_t, h_t> with h_t = exp(A dt_t) h_(t-1) + dt_t B_t x_t, for every channel. Tensors are
# {type, shape, binary} here; Nx tensors work too, and give Nx tensors.
alias ExPhil.Native.SelectiveScan

{batch, seq, dim, state} = {2, 60, 64, 16}

tensor = fn shape, value ->
  count = shape |> Tuple.to_list() |> Enum.product()
  {:f32, shape, for(i <- 0..(count - 1), into: <<>>, do: <<value.(i)::float-32-little>>)}
end

x = tensor.({batch, seq, dim}, &:math.sin(0.1 * &1))
dt = tensor.({batch, seq, dim}, fn _ -> 0.05 end)
a = tensor.({dim, state}, &(-1.0 - rem(&1, state)))
b = tensor.({batch, seq, state}, &:math.cos(0.3 * &1))
c = tensor.({batch, seq, state}, &:math.cos(0.2 * &1))

{y, final} = SelectiveScan.scan(x, dt, a, b, c, return_state: true)
{:f32, shape, <<first::float-32-little, _::binary>>} = y
IO.puts("y #{inspect(shape)}, its first number #{Float.round(first, 6)}")

# Scan all but the last frame, then one step from that state: the final state is the same.
cut = fn {type, {batch, seq, n}, data}, from, count ->
  rows = for <<one::binary-size(seq * n * 4) <- data>>, do: binary_part(one, from * n * 4, count * n * 4)
  {type, {batch, count, n}, IO.iodata_to_binary(rows)}
end

frame = fn tensor ->
  {type, {batch, 1, n}, data} = cut.(tensor, seq - 1, 1)
  {type, {batch, n}, data}
end

head = &cut.(&1, 0, seq - 1)
{_, before} = SelectiveScan.scan(head.(x), head.(dt), a, head.(b), head.(c), return_state: true)
{_, stepped} = SelectiveScan.step(before, frame.(x), frame.(dt), a, frame.(b), frame.(c))

floats = fn {_, _, data} -> for <<v::float-32-little <- data>>, do: v end
difference = Enum.zip_with(floats.(final), floats.(stepped), &abs(&1 - &2)) |> Enum.max()
IO.puts("scan and step agree to #{difference}")
