defmodule ExPhil.Native.Policy.Training do
  @moduledoc false
  # What Policy.forward/3, grad/4, weights/1, update/2 and save/2 do; their documentation is in
  # policy/interface/training.ex.

  import ExPhil.Native.Policy.Call, only: [answer: 1, failed: 1, not_a: 2]

  alias ExPhil.Native.{Error, NIF, Options, Policy, Queue, Tensor}
  alias ExPhil.Native.Policy.{Loading, Weights}

  def forward(%Policy{ref: ref}, frames, options) do
    with {:ok, options} <- Options.read(options, [:initial_state, :return_state], &forward_options/1),
         {:ok, frames, form} <- pack(frames, "frames"),
         {:ok, state} <- state(options.initial_state),
         %{return_state: keeps} = options,
         {:ok, {outs, states}} <- Queue.run(&NIF.policy_forward(ref, frames, state, keeps, &1)) do
      outs = Tensor.unpack(outs, form, fn names -> Enum.take(names, 2) ++ [nil] end)
      {:ok, if(keeps, do: {outs, named(states, form)}, else: outs)}
    else
      {:error, reason} -> failed(reason)
    end
  end

  def forward(policy, _frames, _options), do: not_a("policy", policy)

  def grad(%Policy{ref: ref}, frames, d_outs, options) do
    with {:ok, options} <-
           Options.read(options, [:initial_state, :d_frames, :d_initial_state], &grad_options/1),
         {:ok, frames, form} <- pack(frames, "frames"),
         {:ok, d_outs, _} <- pack(d_outs, "d_outs"),
         {:ok, state} <- state(options.initial_state),
         %{d_frames: by_frames, d_initial_state: by_state} = options,
         {:ok, {gradients, d_frames, d_state}} <-
           Queue.run(&NIF.policy_grad(ref, frames, d_outs, state, by_frames, by_state, &1)) do
      frames = if by_frames, do: [Tensor.unpack(d_frames, form)], else: []
      state = if by_state, do: [named(d_state, form)], else: []
      gradients = named(gradients, form)
      {:ok, if(by_frames or by_state, do: List.to_tuple([gradients | frames ++ state]), else: gradients)}
    else
      {:error, reason} -> failed(reason)
    end
  end

  def grad(policy, _frames, _d_outs, _options), do: not_a("policy", policy)

  def weights(%Policy{ref: ref}) do
    case NIF.policy_weights(ref) do
      {:ok, weights} -> {:ok, Map.new(weights)}
      {:error, reason} -> failed(reason)
    end
  end

  def weights(policy), do: not_a("policy", policy)

  def update(%Policy{ref: ref} = policy, weights) when is_map(weights) and not is_struct(weights) do
    with {:ok, tensors} <- Weights.pack(weights),
         {:ok, fingerprint} <- Queue.run(&NIF.update_policy(ref, tensors, &1)) do
      {:ok, %{policy | info: %{policy.info | fingerprint: Loading.fingerprint(fingerprint)}}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  def update(%Policy{}, other), do: {:error, Error.invalid("weights", "a map of tensors by name", other)}
  def update(policy, _weights), do: not_a("policy", policy)

  defp forward_options(options) do
    %{initial_state: options[:initial_state], return_state: Options.boolean(options, :return_state, false)}
  end

  defp grad_options(options) do
    %{
      initial_state: options[:initial_state],
      d_frames: Options.boolean(options, :d_frames, false),
      d_initial_state: Options.boolean(options, :d_initial_state, false)
    }
  end

  defp state(nil), do: {:ok, nil}

  # A tensor for each named part of a state.
  defp state(parts) when is_map(parts) and not is_struct(parts) do
    Enum.reduce_while(parts, {:ok, []}, fn {name, tensor}, {:ok, done} ->
      with true <- is_atom(name), {:ok, plain, _} <- pack(tensor, ":initial_state") do
        {:cont, {:ok, [{name, plain} | done]}}
      else
        false -> {:halt, {:error, Error.invalid(":initial_state", "a map whose keys are atoms", parts)}}
        {:error, _} = error -> {:halt, error}
      end
    end)
  end

  defp state(other),
    do: {:error, Error.invalid(":initial_state", "a map with a tensor for each part of a state", other)}

  defp pack(tensor, argument), do: Tensor.pack(tensor, argument, "an Nx tensor or {:f32, shape, binary}")

  defp named(tensors, form),
    do: Map.new(tensors, fn {name, tensor} -> {name, Tensor.unpack(tensor, form, fn _ -> [] end)} end)

  def save(policy, path) do
    with {:ok, weights} <- weights(policy),
         {:ok, info} <- Policy.info(policy),
         {:ok, %{constants: constants}} <- answer(NIF.policy_info(policy.ref)),
         do: Weights.save(Map.merge(weights, Map.new(constants)), info, path)
  end
end
