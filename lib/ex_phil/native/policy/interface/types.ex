defmodule ExPhil.Native.Policy.Interface.Types do
  @moduledoc false
  # The types of ExPhil.Native.Policy, with their documentation: `use` puts them there.

  alias ExPhil.Native.{Device, Error, Tensor}
  alias ExPhil.Native.Policy.{Group, Session, Snapshot}

  defmacro __using__(_options) do
    quote location: :keep do
      @typedoc "A loaded policy. Safe to share between processes. Its fields are not part of the interface."
      @type t :: %__MODULE__{ref: reference(), info: map()}

      @type session :: Session.t()
      @type snapshot :: Snapshot.t()
      @type group :: Group.t()
      @typedoc "A group of `group/1`, or a list of sessions."
      @type sessions :: group() | [session()]
      @typedoc "f32: a binary as `Nx.to_binary/1` returns it, or a tensor. The answer has the same form."
      @type data :: binary() | Tensor.t()
      @typedoc "A tensor for each weight, by its name in the checkpoint."
      @type weights :: %{String.t() => Tensor.t()}
      @typedoc """
      A tensor for each named part of a state, {batch, n_layer, rows, columns}; of Mamba and Mamba-2 `:ssm` and `:conv`, of Mamba-3
      `:angle`, `:ssm`, `:k` and `:v`, of GRU, minGRU and minLSTM `:h`, of LSTM `:h_c`, of a gated DeltaNet `:s` and `:conv`.
      """
      @type state :: %{atom() => Tensor.t()}
      @type result(value) :: {:ok, value} | {:error, Error.t()}

      @typedoc "Microseconds of one agent's frame: once every 16.67 ms, and one after another."
      @type frame_times :: %{paced: float(), back_to_back: float()}

      @typedoc "How the backend was chosen; see `info/1`."
      @type choice ::
              :named
              | :only_host
              | %{cuda: frame_times() | Error.t() | nil, host: frame_times() | Error.t() | nil}

      @typedoc """
      `d_input`, `d_output` and what else is known of every policy, and the facts of its trunk: those of `:mamba1` are
      `:dialect`, `:d_model`, `:d_inner`, `:d_state`, `:d_conv`, `:dt_rank`, `:chunk_size`, `:dt` and `:norm_epsilon`; of `:gru`, `:lstm`,
      `:min_gru` and `:min_lstm` they are `:d_model`, `:layout` and `:norm_epsilon`; of `:gated_deltanet` `:d_model`, `:num_heads`,
      `:d_conv` and `:norm_epsilon`; of `:mamba2` `:d_model`, `:d_inner`, `:d_ssm`, `:d_state`, `:d_conv`, `:num_heads`, `:headdim`,
      `:ngroups`, `:norm_before_gate`, `:dt_limit_min`, `:dt_limit_max` (`nil`: no limit), `:norm_epsilon`, `:mixer_norm_epsilon` and
      `:settings_from`, the last source of what shapes cannot say: `:metadata`, `:config`, `:options` or `:defaults`; of `:mamba3`
      `:d_model`, `:d_inner`, `:d_state`, `:num_heads`, `:headdim`, `:ngroups`, `:num_rope_angles`, `:is_mimo`, `:mimo_rank` (`nil`:
      SISO), `:is_outproj_norm`, `:a_floor`, `:norm_epsilon`, `:mixer_norm_epsilon` and `:settings_from`.
      """
      @type info :: %{
              required(:trunk) => atom(),
              required(:d_input) => pos_integer(),
              required(:d_output) => pos_integer(),
              required(:n_layer) => pos_integer(),
              required(:window) => nil | pos_integer(),
              required(:groups) => [ExPhil.Native.Loss.group()],
              required(:precision) => :f32 | :bf16 | :f16 | :int8 | :tf32x3,
              required(:states) => :f32 | :f16 | :bf16,
              required(:backend) => :cuda | :host,
              required(:choice) => choice(),
              required(:device) => Device.t(),
              required(:devices) => [Device.t()],
              required(:resident_bytes) => non_neg_integer(),
              required(:fingerprint) => String.t(),
              required(:gathered) =>
                nil | %{frames: non_neg_integer(), launches: non_neg_integer(), most: non_neg_integer()},
              optional(atom()) => nil | atom() | number()
            }
    end
  end
end
