defmodule ExPhil.Native.Fleet do
  # Half of the file is documentation; the work is done in lib/ex_phil/native/fleet/.
  @moduledoc """
  Agents on several devices and several nodes, on OTP's own distribution. An agent is a key; a node that dies ends no match.

      children = [
        {ExPhil.Native.Fleet, name: Bots, policy: "policy.bin", session: [window: 60, history: 8]}
      ]

      {:ok, action} = Fleet.act(Bots, {match, port}, frame_number, obs)

  The same child goes into the supervision tree of every node. The nodes connect as any Erlang nodes do (`Node.connect/1`, libcluster), best
  before the fleet starts. [docs/fleet.md](docs/fleet.md) says when a fleet is worth it, and what it promises.

    * An agent's first frame places it: on the node with the fewest agents for each device, on the caller's own where that is equal.
      Later frames find it, from every node.
    * A frame has a number, any integer, one more than the frame before it. A frame that was answered gets the same answer
      again. The same number with other inputs, or an earlier number, goes back and plays on from there, as far as the session's `:history`
      goes. The same inputs undo nothing: `step` of a frame that `act` has played with them is an error, and the other way round. A number too far ahead is an error of kind `:missing_frames` that names what is missing.
    * With `copies: 1` each agent's frames and its exported state are also on another node. A frame is answered when that node has
      it, or, where that takes long, within the `:lease`. When a node or its VM dies, the agent goes on there, with the same bits on the same
      kind of device.
    * Of a split network the side without a majority answers nothing: errors of kind `:unavailable` say which nodes are out of reach.

  ## Options

    * `:name` - an atom, the same on every node
    * `:policy` - a checkpoint's path or a map of weights, the same on every node: see `ExPhil.Native.Policy.load/2`
    * `:devices` - `:all` (the default), or a list of devices' indices: as `:device` of `Policy.load/2`. Agents go to the one with the
      fewest. `[]`: this node plays no agents, and calls those of the others. An index may be there twice: its device has two policies
    * `:load` - options of `Policy.load/2` but `:device`. `backend: :auto` is refused, because nodes may then choose differently; left out,
      the backend is `ExPhil.Native.default_backend/0`, and `:max_sessions` what 256 agents of the session's `:history` need, at least 1024:
      where an H100 that four VMs shared had to allocate more, all frames of a VM waited 30 to 45 ms, and on the CPU of a virtual machine
      a session whose memory is not there may take 1.9 ms. On the CPU that is 0.17 GB for a Mamba policy of d_model 256 with two layers and
      a history of 8
    * `:session` - options of `Policy.new_session/2` but `:device`, or a function of the key to them (another `:seed` for each agent); they must be the
      same on every node (`[]`). What the function raises is an error of the agent's calls
    * `:copies` - 0 or 1 (1)
    * `:lease` - milliseconds (150; at most 60000; the same on every node): for so long after its copy has answered last an agent may answer
      frames that the copy does not have yet, so that it plays on when its copy's node dies. A copy waits longer than that before it takes over
      from a node that is out of reach and may be alive. 0: every frame that is answered is on two nodes
    * `:export` - milliseconds between exported states (1000). Frames since then are played again when a node dies
    * `:burn_in` - frames: see `update/2`. The default is the session's or the policy's window, else 60
    * `:idle` - milliseconds without a frame after which an agent is freed (600000), or `:infinity`
    * `:late` - milliseconds; `info/1` counts answers that took the caller longer (a frame of the session's `:fps`, else 16.67)

  ## Errors

  Besides those of `ExPhil.Native.Policy`:

  | kind | |
  |---|---|
  | `:unavailable` | no answer now, or the node's fleet is starting or stopping. The same call may be sent again: a frame is never played twice |
  | `:missing_frames` | frames before this one are missing; the message names them |
  | `:limit_exceeded` | further back than the session's history |
  | `:lost` | the agent ended without `stop/2`: its node died without a copy, or it was freed as idle. After `stop/2` its key is new |

  Every call on an agent takes `timeout: milliseconds` (5000) as a last argument: how long it looks for an agent that is moving.
  """

  @behaviour Supervisor
  use ExPhil.Native.Raising

  import ExPhil.Native.Policy.Call, only: [with_data: 3, with_frames: 3]

  alias ExPhil.Native.{Error, Policy}
  alias ExPhil.Native.Fleet.{Caller, Devices, Directory, Drain, Forget, Placing, Play, Report, Turns, View}

  @typedoc "The fleet's name."
  @type name :: atom()
  @typedoc "An agent's name, any term: `{match, port}`. No atom is made of it."
  @type key :: term()
  @typedoc "Any integer: the first frame of an agent may have any number, each one after it has one more."
  @type frame_number :: integer()

  @typedoc "A node: `frames` were asked for by callers on it; `taken_over` agents came from nodes that died, `moved` ones left for a drain."
  @type node_info :: %{
          node: node(),
          devices: [%{backend: :cuda | :host, index: non_neg_integer(), agents: integer()}],
          agents: integer(),
          copies: integer(),
          frames: integer(),
          late: integer(),
          frames_per_second: float(),
          taken_over: integer(),
          moved: integer(),
          generation: non_neg_integer(),
          draining: boolean()
        }

  @typedoc "`view` counts changes of the members; `answers`: whether this side has a majority; `missing`: members out of reach."
  @type info :: %{
          view: non_neg_integer(),
          answers: boolean(),
          missing: [node()],
          nodes: [node_info()],
          agents: integer(),
          copies: integer(),
          frames: integer(),
          late: integer(),
          frames_per_second: float()
        }

  @doc """
  Starts the node's part of the fleet; see the module for the options. Loads the policy onto each device first.

  Returns `{:ok, pid}`, or `{:error, reason}`, whose reason is or contains the `ExPhil.Native.Error` of a bad option or of a policy that cannot
  be loaded.
  """
  @spec start_link(options :: keyword()) :: Supervisor.on_start()
  def start_link(options) do
    with {:ok, config} <- ExPhil.Native.Fleet.Options.read(options),
         do: Supervisor.start_link(__MODULE__, config, name: config.name)
  end

  @doc "The child of a supervisor, for `{ExPhil.Native.Fleet, options}` in a list of children; its id is the fleet's name."
  @spec child_spec(options :: keyword()) :: Supervisor.child_spec()
  def child_spec(options) do
    id = if Keyword.keyword?(options), do: options[:name] || __MODULE__, else: __MODULE__
    %{id: id, start: {__MODULE__, :start_link, [options]}, type: :supervisor}
  end

  @doc false
  @impl true
  def init(config) do
    # A VM that is no release loads a module when it is first called. When a node dies nobody has time for that.
    :code.ensure_modules_loaded(Application.spec(:exphil_native, :modules) || [])

    children = [
      {Directory, config},
      {Devices, config},
      {Turns, config},
      {View, config},
      {DynamicSupervisor, name: Module.concat(config.name, Agents)}
    ]

    Supervisor.init(children, strategy: :rest_for_one, max_restarts: 20, max_seconds: 10)
  end

  # ---- frames ------------------------------------------------------------------------------------------------

  @doc """
  One frame of an agent, and the action for it: `ExPhil.Native.Policy.act/2` wherever the agent is. The first call of a key places it.

    * `key` - the agent, any term
    * `frame_number` - see the module
    * `obs` - f32 of shape {d_input}: a binary of 4 * d_input bytes, or a tensor
    * `timeout:` - milliseconds (5000)

  Returns `{:ok, action}`, an `ExPhil.Native.Policy.Action`, or an error of the module's table or of `ExPhil.Native.Policy.act/2`.
  """
  fallible act(
             fleet :: name(),
             key :: key(),
             frame_number :: frame_number(),
             obs :: Policy.data(),
             options :: keyword() \\ []
           ) :: Policy.Action.t()

  def act(fleet, key, frame_number, obs, options \\ []) do
    with_frames(obs, "obs", fn obs ->
      with {:ok, [action]} <- Play.run(fleet, key, frame_number, {:act, obs, :one}, options),
           do: {:ok, action}
    end)
  end

  @doc """
  One frame of an agent, and the policy's outputs for it: `ExPhil.Native.Policy.step/2` wherever the agent is. The first call of a key places
  it.

    * `key`, `frame_number`, `timeout:` - as in `act/5`
    * `obs` - f32 of shape {d_input}: a binary of 4 * d_input bytes, or a tensor

  Returns `{:ok, outs}`, f32 of shape {d_output}, a binary for a binary and a tensor for a tensor. Errors are those of `act/5`.
  """
  fallible step(
             fleet :: name(),
             key :: key(),
             frame_number :: frame_number(),
             obs :: Policy.data(),
             options :: keyword() \\ []
           ) :: Policy.data()

  def step(fleet, key, frame_number, obs, options \\ []) do
    with_data(obs, "obs", fn obs ->
      with {:ok, [outs]} <- Play.run(fleet, key, frame_number, {:step, obs, :one}, options),
           do: {:ok, Play.like(obs, [outs])}
    end)
  end

  @doc """
  Several frames of an agent, of the numbers from `frame_number` on: goes back to before that frame where it was played, and plays these.
  What was answered before for the same frames is answered again, without going back.

    * `frames` - f32 of shape {seq, d_input}, with `seq` at most the session's history: a binary of 4 * seq * d_input bytes, or a tensor

  Returns `{:ok, outs}`, f32 of shape {seq, d_output}, in the form of `frames`. Errors are those of `act/5`; further back than the history
  is one of kind `:limit_exceeded`.
  """
  fallible resimulate(
             fleet :: name(),
             key :: key(),
             frame_number :: frame_number(),
             frames :: Policy.data(),
             options :: keyword() \\ []
           ) :: Policy.data()

  def resimulate(fleet, key, frame_number, frames, options \\ []) do
    with_data(frames, "frames", fn frames ->
      with {:ok, outs} <- Play.run(fleet, key, frame_number, {:step, frames, :many}, options),
           do: {:ok, Play.like(frames, outs)}
    end)
  end

  @doc """
  Several frames of an agent, as `resimulate/5` plays them, with an action for each.

    * `frames` - f32 of shape {seq, d_input}, with `seq` at most the session's history: a binary of 4 * seq * d_input bytes, or a tensor

  Returns `{:ok, actions}`, in the order of the frames. Errors are those of `resimulate/5`.
  """
  fallible resimulate_acts(
             fleet :: name(),
             key :: key(),
             frame_number :: frame_number(),
             frames :: Policy.data(),
             options :: keyword() \\ []
           ) :: [Policy.Action.t()]

  def resimulate_acts(fleet, key, frame_number, frames, options \\ []) do
    with_frames(frames, "frames", fn frames ->
      Play.run(fleet, key, frame_number, {:act, frames, :many}, options)
    end)
  end

  @doc """
  Ends an agent and frees it. Its key is new afterwards, also where the agent was lost.

    * `timeout:` - milliseconds (5000)

  Returns `:ok`, also where there is no such agent, or an error of kind `:unavailable`.
  """
  fallible stop(fleet :: name(), key :: key(), options :: keyword() \\ []) :: :ok

  def stop(fleet, key, options \\ []) do
    with {:ok, timeout} <- Play.timeout(options) do
      case Caller.call(fleet, key, :stop, false, timeout) do
        {:error, _} = error -> error
        _stopped_or_unknown -> Caller.here(fleet, fn -> Forget.everywhere(fleet, key) end)
      end
    end
  end

  # ---- the fleet ---------------------------------------------------------------------------------------------

  @doc """
  The fleet as this node sees it: its nodes with their devices, agents, copies, frames, frames a second (of the last second) and late answers,
  and the sums. `mix exphil.fleet` prints it.

  Returns `{:ok, info}`, a map (`t:info/0`), or an error of kind `:invalid_argument` where the fleet does not run on this node, of kind
  `:unavailable` where it is starting or stopping.
  """
  fallible info(fleet :: name()) :: info()

  def info(fleet), do: Caller.here(fleet, fn -> {:ok, Report.fleet(fleet)} end)

  @doc """
  Moves all agents and copies away from a node, for an upgrade; new ones do not come to it. Each agent's session is built on another
  node while it still plays here, and takes over between two frames.

  Returns `{:ok, moved}`, the number of agents that were moved, when none is left and those have copies again where another node takes
  them. The node may be stopped then; `undrain/2` lets it take agents again. Where no other node takes agents, an error of kind
  `:unavailable`; a node that is not in the fleet, as this node sees it, is one of kind `:invalid_argument`.
  """
  fallible drain(fleet :: name(), node :: node()) :: non_neg_integer()
  def drain(fleet, node), do: Caller.on_member(fleet, node, Drain, :run, [fleet])

  @doc """
  Lets a node that was drained take agents again.

  Returns `:ok`, or an error: of kind `:unavailable` where the node does not answer, of kind `:invalid_argument` where it is not in the fleet.
  """
  fallible undrain(fleet :: name(), node :: node()) :: :ok
  def undrain(fleet, node), do: Caller.on_member(fleet, node, Placing, :opened, [fleet])

  @doc """
  Other weights for all agents, on all nodes: `weights` is the path of a checkpoint of the same sizes (on every node), or a map of
  f32 tensors by name, as of `ExPhil.Native.Policy.weights/1`.

  Returns `{:ok, %{generation: count, agents: changed}}`: how often the weights were changed, and how many agents have changed over; others do
  with their next frame. The weights are loaded beside the present ones on every node first; where one node fails, or has another file
  of that path, that is the error, and nothing changes. A node that dies afterwards changes nothing; where it is the one that makes the
  update, the answer is an error of kind `:unavailable`, and `info/1` says which generation the nodes have. Then each agent changes over
  between two of its frames. A policy of another trunk, other sizes or other named outputs is an error of kind `:invalid_checkpoint`,
  which says what differs.

  States of the old weights mean nothing to the new ones. An agent goes on as a new session that has played its last `:burn_in` frames: with
  a window of no more frames its answers are those of the new weights alone. Answers that were given stay.
  """
  fallible update(fleet :: name(), weights :: Path.t() | Policy.weights()) :: %{
             generation: pos_integer(),
             agents: non_neg_integer()
           }

  def update(fleet, weights) when is_binary(weights) or (is_map(weights) and not is_struct(weights)) do
    Caller.here(fleet, fn ->
      if View.quorum(fleet) == true,
        do: Caller.on_member(fleet, View.chair(fleet), Devices, :update, [fleet, weights]),
        else: Caller.no_majority(fleet)
    end)
  end

  def update(_fleet, other),
    do: {:error, Error.invalid("weights", "a path or a map of tensors by name", other)}
end
