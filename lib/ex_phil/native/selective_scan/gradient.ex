defmodule ExPhil.Native.SelectiveScan.Gradient do
  @moduledoc false
  # Implements SelectiveScan.grad/7 and backward/8, which document it.

  alias ExPhil.Native.{Error, NIF, Options, Queue, Tensor}
  alias ExPhil.Native.SelectiveScan.Operands

  @discretizations [:zoh, :foh, :bilinear, :highorder, :poly, :rk4]
  @optional [:d, :z, :dt_bias, :initial_state]
  @common @optional ++ [:d_final_state, :dt_softplus, :dt_range, :discretization, :reverse, :backend, :device]

  def grad(dy, x, dt, a, b, c, options) do
    options = Options.read!(options, @common, &values/1)
    run!(dy, {x, dt, a, b, c}, options, nil, true)
  end

  def backward(dy, x, states, dt, a, b, c, options) do
    options = Options.read!(options, @common, &values/1)
    gradients = run!(dy, {x, dt, a, b, c}, options, states, false)
    {gradients.x, gradients.dt, gradients.b, gradients.c}
  end

  defp values(options) do
    tensors = Map.new([:d_final_state | @optional], &{&1, options[&1]})

    Map.merge(tensors, %{
      discretization: Options.one_of(options, :discretization, @discretizations),
      dt_softplus: Options.boolean(options, :dt_softplus, false),
      dt_range: Options.range(options, :dt_range),
      direction: if(Options.boolean(options, :reverse, false), do: :reverse, else: :forward),
      place: Operands.place(options)
    })
  end

  # all?: also the gradients of a and of the optional operands.
  defp run!(dy, {x, dt, a, b, c}, options, states, all?) do
    {backend, device} = options.place
    {x, a, form, pack} = Operands.pack!(x, a, Operands.memory_place(options.place))
    optional = fn name -> pack.(options[name], inspect(name)) end

    request = Map.take(options, [:discretization, :dt_softplus, :dt_range, :direction])

    dy = pack.(dy, "dy")
    [dt, b, c] = for {tensor, name} <- [{dt, "dt"}, {b, "b"}, {c, "c"}], do: pack.(tensor, name)
    [d, z, bias] = Enum.map([:d, :z, :dt_bias], optional)
    [initial, d_final] = Enum.map([:initial_state, :d_final_state], optional)
    states = if all?, do: nil, else: pack.(states, "states")

    grad =
      &NIF.scan_grad(
        backend,
        device,
        dy,
        x,
        dt,
        a,
        b,
        c,
        d,
        z,
        bias,
        initial,
        d_final,
        states,
        request,
        all?,
        &1
      )

    case Queue.run(grad) do
      {:ok, gradients} -> Map.new(gradients, &unpack(&1, form))
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  # The axes of x keep their names; other gradients have other axes.
  defp unpack({name, tensor}, form) when name in ~w(x dt z),
    do: {String.to_existing_atom(name), Tensor.unpack(tensor, form)}

  defp unpack({name, tensor}, form),
    do: {String.to_existing_atom(name), Tensor.unpack(tensor, form, fn _ -> [] end)}
end
