defmodule ExPhil.Native.SelectiveScan do
  @moduledoc """
  Mamba's selective scan, on the GPU or the CPU.

      dt' = clip(softplus(dt + dt_bias));  h_t = Abar h_(t-1) + Bbar x_t;  y_t = <C_t, h_t> + D x_t;  y_t *= silu(z_t)

  | argument | shape | |
  |---|---|---|
  | `x`, `dt`, `:z`, `y` | {batch, seq, dim}; in `step/7` {batch, dim} | |
  | `a` | {dim, state}, real or complex; {dim, state, state} for a full matrix with `:bilinear` | continuous-time A, usually negative |
  | `b`, `c` | {batch, seq, state}, {batch, seq, groups, state}, or {dim, state} where constant; in `step/7` without seq | channel d uses group d div (dim / groups) |
  | `:d`, `:dt_bias` | {dim} | skip weight; added to dt before softplus |
  | `:initial_state`, states | {batch, dim, state} | zeros where left out |

  A tensor is an Nx tensor or `{type, shape, binary}` (`ExPhil.Native.Tensor`); results have the form of `x`. `x`,
  `dt`, `b`, `c` and `:z` share one type of `:f32 :f16 :bf16`, and `y` has it too; `a`, `:d`, `:dt_bias` and states
  are `:f32`. With a complex `a`, also `b`, `c` and states are `:c64` and y = 2 Re <C, h> + D x.

  ## Options

    * `:d`, `:z`, `:dt_bias`, `:initial_state` - tensors as above
    * `:dt_softplus` - whether dt goes through softplus (`false`)
    * `:dt_range` - `{min, max}` to clip dt to, applied last
    * `:discretization` - the table below (`:zoh`)
    * `:return_state` - `true` returns `{y, final_state}` (`false`)
    * `:reverse` - `true` runs from the last step to the first; the final state is then the one after step 0
    * `:backend`, `:device` - where to run; see `ExPhil.Native.Device`. `scan/6`, `scan_with_states/6`, `bidirectional/6`, `grad/7` and
      `backward/8` take a list of GPUs, or `:all`: each computes some of the sequences, with the same bits. Where there are fewer sequences
      than GPUs, a sequence's time is split, from 64 steps for each GPU on (gradients: 256): each computes its steps beside the others
      (not of a full matrix `a`, and not in both directions at once). The answers are then those of one GPU but for rounding, and so are
      gradients that sequences share
    * `:algorithm` - `:sequential` or `:chunked` force how time is split, for tests and benchmarks (`:auto`)

  With w = A dt':

  | `:discretization` | Abar | Bbar / B | |
  |---|---|---|---|
  | `:zoh` | exp(w) | dt' | Mamba's own rule: exact A, Euler B |
  | `:foh` | exp(w) | (exp(w) - 1) / A | its limit dt' at A = 0 |
  | `:bilinear` | (1 + w/2) / (1 - w/2) | dt' / (1 - w/2) | Tustin; stable for Re A < 0. One published table has the opposite sign of w, which grows for negative A |
  | `:highorder` | exp(w) | dt' (1 + w/2) | |
  | `:poly` | exp(w) | dt' (1 + w/2 + w^2/6) | |
  | `:rk4` | exp(w) | dt' (1 + w/2 + w^2/6 + w^3/24) | |

  Every invalid argument raises `ExPhil.Native.Error` with its name, what was expected and what was given.
  """

  alias ExPhil.Native.{Error, Expression, Options, Tensor}
  alias ExPhil.Native.SelectiveScan.{Forward, Operands, Replacement, Step}

  @type tensor :: Tensor.t()

  @discretizations [:zoh, :foh, :bilinear, :highorder, :poly, :rk4]
  @tensor_options [:d, :z, :dt_bias, :initial_state]
  @common [:dt_softplus, :dt_range, :discretization, :backend, :device, :algorithm]
  @scan_options @tensor_options ++ @common ++ [:return_state, :reverse]
  @states_options @tensor_options ++ @common ++ [:reverse]
  @bidirectional_options [:d, :z, :dt_bias | @common]
  @step_options [:d, :z, :dt_bias | @common]

  @doc """
  The scan: `y`, of the shape and the type of `x`, or `{y, final_state}` with `return_state: true`, {batch, dim, state}.

  `x` and `dt` are {batch, seq, dim}, `a` {dim, state}, `b` and `c` {batch, seq, state}: Nx tensors or `{type, shape, binary}`; the module
  has the other shapes, the types and the options. Every bad argument raises `ExPhil.Native.Error` with its name.

  Inside `defn` or an Axon layer it is `ExPhil.Native.Defn.selective_scan/6`, an operation of that computation with a gradient.
  That needs Nx 0.12 or later, and takes neither `:backend` nor `:device`.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> x = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> dt = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> a = f32.({1, 1}, [0.0])
      iex> one = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> {:f32, {1, 3, 1}, y} = ExPhil.Native.SelectiveScan.scan(x, dt, a, one, one, backend: :host)
      iex> for <<v::float-32-little <- y>>, do: v
      [1.0, 2.0, 3.0]
  """
  @spec scan(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: tensor() | {tensor(), tensor()}
  def scan(x, dt, a, b, c, options \\ []) do
    if Expression.any?([x, dt, a, b, c], options),
      do: Expression.call(:selective_scan, [x, dt, a, b, c, options]),
      else: scan_now(x, dt, a, b, c, options)
  end

  defp scan_now(x, dt, a, b, c, options) do
    options = read!(options, @scan_options)
    results = %{final_state: options.return_state}
    {form, {y, nil, final_state, nil}} = Forward.run!({x, dt, a, b, c}, options, results)
    y = Tensor.unpack(y, form)
    if options.return_state, do: {y, unpack_state(final_state, form)}, else: y
  end

  @doc """
  One time step, O(1): `{y, state}`. `state` is {batch, dim, state}; `x` and `dt` are {batch, dim}; `b` and `c` are
  {batch, state}, {batch, groups, state} or, where constant, {dim, state}. If batch equals dim, the shape is read as
  {batch, state}. Takes the options `:d :z :dt_bias :dt_softplus :dt_range :discretization :backend :device :algorithm`.
  """
  @spec step(tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: {tensor(), tensor()}
  def step(state, x, dt, a, b, c, options \\ []) do
    options = read!(options, @step_options)

    if not is_integer(elem(options.place, 1)),
      do: Options.invalid(":device", "the index of a device, of a step", elem(options.place, 1))

    {x, a, form, pack} = Operands.pack!(x, a, options.place)
    {operands, options} = Step.operands!({state, x, dt, a, b, c}, pack, options)
    {_, {y, nil, final_state, nil}} = Forward.run_packed!(operands, form, pack, options, %{final_state: true})
    {Tensor.unpack(Step.drop_seq(y), form), unpack_state(final_state, form)}
  end

  @doc """
  `{y, states}`: the scan, and the state after each step as {batch, seq, dim, state}. Takes tensors and options of `scan/6`
  but `:return_state`, and raises as it does.
  """
  @spec scan_with_states(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: {tensor(), tensor()}
  def scan_with_states(x, dt, a, b, c, options \\ []) do
    options = read!(options, @states_options)
    {form, {y, nil, nil, states}} = Forward.run!({x, dt, a, b, c}, options, %{states: true})
    {Tensor.unpack(y, form), unpack_state(states, form)}
  end

  @doc """
  `{causal, anti_causal}`: `scan/6` from the first step to the last and from the last to the first, in one launch.
  Both have the shape and the type of `x`. Takes the options `:d :z :dt_bias :dt_softplus :dt_range :discretization :backend :device
  :algorithm`, and raises as `scan/6` does.
  """
  @spec bidirectional(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: {tensor(), tensor()}
  def bidirectional(x, dt, a, b, c, options \\ []) do
    options = read!(options, @bidirectional_options)
    {form, {y, y_reverse, nil, nil}} = Forward.run!({x, dt, a, b, c}, %{options | direction: :both}, %{})
    {Tensor.unpack(y, form), Tensor.unpack(y_reverse, form)}
  end

  @doc """
  The gradient of `scan/6`: a map with the gradient of every given tensor, under `:x :dt :a :b :c` and, where given,
  `:d :z :dt_bias :initial_state`.

  `dy` is the gradient of a real loss by y, of the shape and the type of `x`. Takes the options of `scan/6` but
  `:return_state` and `:algorithm`, and

    * `:d_final_state` - the gradient by the final state, {batch, dim, state}, f32, or c64 with a complex `a`

  Each gradient has the shape and the type of its operand and the form of `x`; sums are accumulated in f32. The gradient
  of a complex tensor is dL/dRe + i dL/dIm. Groups of `b` and `c`, and constant ones, receive the sum over the channels
  (and steps) that use them. dt receives zero where dt' was clipped by `:dt_range`. `:foh` is exact at A = 0.

  States are computed again from checkpoints instead of being stored. The same call gives the same bits in every run
  and with any number of threads; the gradients of x, dt, b, c, z and initial_state of a sequence also in any batch.

  Every bad argument raises `ExPhil.Native.Error`, as in `scan/6`.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> one = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> gradients = ExPhil.Native.SelectiveScan.grad(one, one, one, f32.({1, 1}, [0.0]), one, one, backend: :host)
      iex> {:f32, {1, 3, 1}, dx} = gradients.x
      iex> {:f32, {1, 1}, da} = gradients.a
      iex> {for(<<v::float-32-little <- dx>>, do: v), for(<<v::float-32-little <- da>>, do: v)}
      {[3.0, 2.0, 1.0], [4.0]}
  """
  @spec grad(tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: %{atom() => tensor()}
  defdelegate grad(dy, x, dt, a, b, c, options \\ []), to: ExPhil.Native.SelectiveScan.Gradient

  @doc """
  `{dx, ddt, db, dc}`: four of the gradients of `grad/7`, from the `states` that `scan_with_states/6` returned for the
  same tensors and options. That saves computing the states again. On the host it gives the same bits; on CUDA the states
  of another kernel may differ in their last bits, and so may the gradients.

  `states` is {batch, seq, dim, state}. The state before every 16th step, on CUDA every 8th or fewer, is read from it;
  states of another scan therefore give wrong gradients, not an error. Options and errors are those of `grad/7`.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> one = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> a = f32.({1, 1}, [0.0])
      iex> {_y, states} = ExPhil.Native.SelectiveScan.scan_with_states(one, one, a, one, one, backend: :host)
      iex> {dx, _ddt, _db, dc} =
      ...>   ExPhil.Native.SelectiveScan.backward(one, one, states, one, a, one, one, backend: :host)
      iex> for {:f32, {1, 3, 1}, binary} <- [dx, dc], do: for(<<v::float-32-little <- binary>>, do: v)
      [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]
  """
  @spec backward(tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) ::
          {tensor(), tensor(), tensor(), tensor()}
  defdelegate backward(dy, x, states, dt, a, b, c, options \\ []), to: ExPhil.Native.SelectiveScan.Gradient

  @doc "Whether the native library is loaded, which every scan needs."
  @spec available?() :: boolean()
  def available?, do: ExPhil.Native.available?()

  @doc "Whether scans can run on a GPU. Never fails; `ExPhil.Native.info/0` says why not."
  @spec cuda_available?() :: boolean()
  def cuda_available?, do: ExPhil.Native.cuda_available?()

  # ---- the rest of ExPhil's own module: docs/replacing-exphil-nif.md --------------------------------------

  @doc """
  The backend and the name of the device that a scan without options runs on, as a text.

  Returns `{:ok, text}`, or an error: of kind `:backend_unavailable` where the named one is not there.
  """
  @spec device_info() :: {:ok, String.t()} | {:error, Error.t()}
  defdelegate device_info(), to: Replacement

  @doc "ExPhil's sign of life, `\"pong from selective_scan_nif\"`. Raises where the native library is not loaded."
  @spec ping() :: String.t()
  defdelegate ping(), to: Replacement

  @doc "Whether scans can run on a GPU, under ExPhil's name for `cuda_available?/0`."
  @spec cuda_available() :: boolean()
  def cuda_available, do: cuda_available?()

  @doc "The name of the first GPU that scans can use, a string. Raises `ExPhil.Native.Error` where there is none."
  @spec cuda_device_info() :: String.t()
  defdelegate cuda_device_info(), to: Replacement

  @typedoc "The sizes of ExPhil's calls on binaries."
  @type sizes :: {batch :: pos_integer(), seq :: pos_integer(), dim :: pos_integer(), state :: pos_integer()}
  @typedoc "f32 numbers of 4 bytes, row-major and little-endian."
  @type f32 :: binary()

  @doc """
  `scan/5` on f32 binaries, with their sizes as `{batch, seq, dim, state}`: `x` and `dt` have 4 * batch * seq * dim bytes, `a` 4 * dim *
  state, `b` and `c` 4 * batch * seq * state. Returns the binary of y, of as many bytes as `x`. Raises `ExPhil.Native.Error`.
  """
  @spec selective_scan(f32(), f32(), f32(), f32(), f32(), sizes()) :: f32()
  defdelegate selective_scan(x, dt, a, b, c, sizes), to: Replacement

  @doc """
  `scan_with_states/5` on f32 binaries, of the sizes of `selective_scan/6`. Returns one binary: y, 4 * batch * seq * dim bytes, followed by
  the states, 4 * batch * seq * dim * state. Raises `ExPhil.Native.Error`.
  """
  @spec selective_scan_forward_with_states(f32(), f32(), f32(), f32(), f32(), sizes()) :: f32()
  defdelegate selective_scan_forward_with_states(x, dt, a, b, c, sizes), to: Replacement

  @doc """
  `backward/8` on f32 binaries, of the sizes of `selective_scan/6`; `dy` is as large as `x`, and `states` has 4 * batch * seq * dim * state
  bytes. Returns dx, ddt, db and dc, one after another in one binary. Raises `ExPhil.Native.Error`.
  """
  @spec selective_scan_backward(f32(), f32(), f32(), f32(), f32(), f32(), f32(), sizes()) :: f32()
  defdelegate selective_scan_backward(dy, x, states, dt, a, b, c, sizes), to: Replacement

  @doc "What ExPhil's module answers about training with Axon, as a map of the same keys."
  @spec training_workflow_info() :: map()
  defdelegate training_workflow_info(), to: Replacement

  @doc """
  Whether Axon can differentiate through `scan/6`: where the library was compiled with Nx 0.12 or later. Elsewhere `grad/7` is
  the gradient.
  """
  @spec supports_training?() :: boolean()
  defdelegate supports_training?(), to: Replacement

  @doc """
  `:ok` for `:inference`, and for `:training` where `supports_training?/0`; otherwise raises `ArgumentError`, and says what to do
  instead.
  """
  @spec validate_mode!(atom()) :: :ok
  defdelegate validate_mode!(mode), to: Replacement

  # ---- options ---------------------------------------------------------------------------------------------

  defp read!(options, known), do: Options.read!(options, known, &values/1)

  defp values(options) do
    %{
      discretization: Options.one_of(options, :discretization, @discretizations),
      dt_softplus: Options.boolean(options, :dt_softplus, false),
      dt_range: Options.range(options, :dt_range),
      direction: if(Options.boolean(options, :reverse, false), do: :reverse, else: :forward),
      algorithm: Options.one_of(options, :algorithm, [:auto, :sequential, :chunked]),
      return_state: Options.boolean(options, :return_state, false),
      place: Operands.place(options),
      d: options[:d],
      z: options[:z],
      dt_bias: options[:dt_bias],
      initial_state: options[:initial_state]
    }
  end

  # The axes of a state are not those of x.
  defp unpack_state(tensor, form), do: Tensor.unpack(tensor, form, fn _ -> [] end)
end
