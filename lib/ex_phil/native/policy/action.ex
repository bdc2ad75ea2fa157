defmodule ExPhil.Native.Policy.Action do
  @moduledoc """
  One frame's controller, as `ExPhil.Native.Policy.act/2` returns it.

    * `buttons` - `%{a: true, b: false, x:, y:, z:, l:, r:, d_up:}`
    * `main`, `c` - `{x, y}` of a stick, each from 0.0 to 1.0 in sixteenths; 0.5 is the centre
    * `shoulder` - the left shoulder, from 0.0 to 1.0 in quarters
    * `bins` - the same as the numbers of the bins: `%{main: {x, y}, c: {x, y}, shoulder: bin}`
    * `confidence` - `%{buttons:, main:, c:, shoulder:, overall:}`, each from 0.0 to 1.0
  """

  @enforce_keys [:buttons, :main, :c, :shoulder, :bins, :confidence]
  defstruct [:buttons, :main, :c, :shoulder, :bins, :confidence]

  @type stick :: {float(), float()}
  @type t :: %__MODULE__{
          buttons: %{atom() => boolean()},
          main: stick(),
          c: stick(),
          shoulder: float(),
          bins: %{main: {integer(), integer()}, c: {integer(), integer()}, shoulder: integer()},
          confidence: %{atom() => float()}
        }
end
