defmodule ExPhil.Native.Error do
  @moduledoc """
  The error that every call of this library returns in `{:error, error}` or raises.

    * `:kind` - one of the atoms below
    * `:argument` - the public name of the argument at fault (`"x"`, `":dt_range"`), or `nil`
    * `:message` - what was expected and what was given
    * `:hint` - what to do about it, where known; otherwise `nil`

  | kind | meaning |
  |---|---|
  | `:invalid_argument` | wrong rank, size, type or option |
  | `:unsupported` | a valid request that this build, backend or type does not support |
  | `:limit_exceeded` | a size beyond a named limit |
  | `:invalid_checkpoint` | a checkpoint file that is malformed or does not fit the policy |
  | `:file_error` | the operating system refused the file |
  | `:mismatch` | a state, snapshot or session of another policy |
  | `:invalid_state` | an exported state that is damaged or of another version |
  | `:backend_unavailable` | no such backend or device here |
  | `:compile_failed` | NVRTC refused a kernel; its log is in the message |
  | `:out_of_memory` | of the host or the device; with the requested and the free bytes |
  | `:device_lost` | the GPU's context is gone until the VM restarts; the host backend still works |
  | `:cuda_error` | any other failed CUDA call, with its name and code |
  | `:unavailable` | of `ExPhil.Native.Fleet`: no answer now; the same call may be sent again |
  | `:missing_frames` | of a fleet: frames before this one are missing |
  | `:lost` | of a fleet: the agent has ended without being stopped |
  | `:internal` | a defect in this library |
  """

  @most_message 4096
  @most_argument 256

  defexception [:kind, :argument, :message, :hint]

  @type kind ::
          :invalid_argument
          | :unsupported
          | :limit_exceeded
          | :invalid_checkpoint
          | :file_error
          | :mismatch
          | :invalid_state
          | :backend_unavailable
          | :compile_failed
          | :out_of_memory
          | :device_lost
          | :cuda_error
          | :unavailable
          | :missing_frames
          | :lost
          | :internal

  @type t :: %__MODULE__{
          kind: kind(),
          argument: nil | String.t(),
          message: String.t(),
          hint: nil | String.t()
        }

  @impl true
  def message(%__MODULE__{message: message, hint: nil}), do: message
  def message(%__MODULE__{message: message, hint: hint}), do: "#{message} (#{hint})"

  @doc false
  @spec new(kind(), String.t(), String.t()) :: t()
  def new(kind, argument, message) do
    %__MODULE__{
      kind: kind,
      argument: if(argument == "", do: nil, else: bounded(argument, @most_argument)),
      message: bounded(message, @most_message),
      hint: hint(kind)
    }
  end

  # Like core::Error in C++: valid UTF-8 of bounded length. Texts from C++ are that already.
  defp bounded(text, most) do
    text = if String.valid?(text), do: text, else: inspect(text, binaries: :as_strings, printable_limit: most)
    if byte_size(text) <= most, do: text, else: cut(text, most - 3) <> "..."
  end

  @doc false
  # Text from outside, as in core::quote: between quotation marks, escaped and cut, so that a log shows it as
  # one line.
  @spec quoted(String.t()) :: String.t()
  def quoted(text), do: inspect(text, binaries: :as_strings, printable_limit: 1024)

  @doc false
  # The system refused to write the file that `argument` names.
  @spec not_written(String.t(), Path.t(), :file.posix()) :: t()
  def not_written(argument, path, posix),
    do: new(:file_error, argument, "#{quoted(path)} cannot be written: #{:file.format_error(posix)}")

  defp cut(text, most) do
    head = binary_part(text, 0, most)
    if String.valid?(head), do: head, else: cut(text, most - 1)
  end

  @doc false
  @spec from_nif(ExPhil.Native.NIF.reason()) :: t()
  def from_nif({kind, argument, message}), do: new(kind, argument, message)

  @doc false
  # "expected" continues the sentence after "must be".
  @spec invalid(String.t(), String.t(), term()) :: t()
  def invalid(argument, expected, got) do
    new(:invalid_argument, argument, "#{argument} must be #{expected}, got #{describe(got)}")
  end

  defp describe(binary) when is_binary(binary) and byte_size(binary) > 64,
    do: "a binary of #{byte_size(binary)} bytes"

  defp describe({type, shape, binary}) when is_binary(binary),
    do: "{#{inspect(type)}, #{inspect(shape)}, a binary of #{byte_size(binary)} bytes}"

  defp describe(term), do: inspect(term, limit: 8, printable_limit: 64)

  defp hint(:backend_unavailable), do: "mix exphil.doctor says what is missing"
  defp hint(:device_lost), do: "restart the VM to use the GPU again"
  defp hint(:internal), do: "this is a defect of exphil_native: please report it"
  defp hint(_kind), do: nil
end
