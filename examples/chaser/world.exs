# The world of examples/chaser.exs, which tells its rules.

defmodule Chaser.World do
  # Positions from -1 to 1, velocities in units a second.
  @dt 1 / 60
  @reload 45
  @seen 3
  @fastest 1.2
  @bins 7

  def bins, do: @bins

  def new do
    place = fn -> {1.6 * :rand.uniform() - 0.8, 1.6 * :rand.uniform() - 0.8} end
    angle = 2 * :math.pi() * :rand.uniform()
    speed = 0.4 + 0.4 * :rand.uniform()
    velocity = {speed * :math.cos(angle), speed * :math.sin(angle)}
    %{chaser: place.(), target: place.(), velocity: velocity, frame: :rand.uniform(@reload) - 1}
  end

  # Where the chaser is, whether the radar sees the target, and then where it is from the chaser. With seven inputs the last two
  # are constants.
  def observe(%{chaser: {x, y}, target: {tx, ty}, frame: frame}, d_input) do
    seen = if rem(frame, @reload) < @seen, do: 1.0, else: 0.0
    numbers = Enum.take([x, y, seen, seen * (tx - x), seen * (ty - y), 3.0, -3.0], d_input)
    for v <- numbers, into: <<>>, do: <<v::float-32-little>>
  end

  # The velocity of the target, and towards it.
  def expert(%{chaser: {x, y}, target: {tx, ty}, velocity: {vx, vy}}),
    do: [bin(vx + 5 * (tx - x)), bin(vy + 5 * (ty - y))]

  defp bin(v), do: round((max(-@fastest, min(@fastest, v)) + @fastest) / (2 * @fastest) * (@bins - 1))
  defp velocity(bin), do: 2 * @fastest * bin / (@bins - 1) - @fastest

  def step(%{chaser: {x, y}, target: {tx, ty}, velocity: {vx, vy}} = world, [bin_x, bin_y]) do
    {tx, vx} = bounce(tx + vx * @dt, vx)
    {ty, vy} = bounce(ty + vy * @dt, vy)
    chaser = {x + velocity(bin_x) * @dt, y + velocity(bin_y) * @dt}
    %{world | chaser: chaser, target: {tx, ty}, velocity: {vx, vy}, frame: world.frame + 1}
  end

  defp bounce(at, v) when at > 1, do: {2 - at, -v}
  defp bounce(at, v) when at < -1, do: {-2 - at, -v}
  defp bounce(at, v), do: {at, v}

  def distance(%{chaser: {x, y}, target: {tx, ty}}), do: :math.sqrt((x - tx) ** 2 + (y - ty) ** 2)
end
