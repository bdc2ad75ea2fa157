defmodule ExPhil.Native.Policy.AutomaticTest do
  # `backend: :auto` of a policy, in VMs of their own over the fake driver (test/c_src/cuda/fake_cuda.cpp): its steps take
  # next to no time, or 300 ms, or the device is lost.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.TestSupport.{FakeCuda, Peer}

  # With room for few sessions, so that the fake GPU has room for the model.
  @code """
  alias ExPhil.Native.{Error, Policy}
  model = Policy.load!(path, max_sessions: 8)
  info = Policy.info!(model)
  out = Policy.step!(Policy.new_session!(model), :binary.copy(<<0>>, 4 * info.d_input))
  true = byte_size(out) == 4 * info.d_output
  IO.inspect({info.backend, info.choice}, width: :infinity)
  """

  # What the code printed: {backend, choice}.
  defp load(run, options, code \\ @code) do
    path = Policies.checkpoint(options)
    {output, status} = run.("path = #{inspect(path)}\n" <> code)
    assert {status, output} == {0, output}
    output
  end

  defp fake(variables), do: fn code -> FakeCuda.run(code, variables) end

  defp times(output, backend) do
    pattern = ~r/#{backend}: %\{back_to_back: ([\d.]+), paced: ([\d.]+)\}/
    assert [_, back_to_back, paced] = Regex.run(pattern, output), output
    {String.to_float(paced), String.to_float(back_to_back)}
  end

  @tag :fake_cuda
  test "the backend of the faster frames is taken, and both backends' times are in the info" do
    output = load(fake([]), d_model: 256, d_inner: 512)
    {cuda, cuda_back_to_back} = times(output, :cuda)
    {host, host_back_to_back} = times(output, :host)
    assert output =~ if(cuda <= host, do: "{:cuda, %{", else: "{:host, %{")
    assert Enum.all?([cuda, cuda_back_to_back, host, host_back_to_back], &(&1 > 0))
  end

  # Slower than a frame of a small policy on the host of any machine.
  @slow [{"FAKE_CUDA_DELAY", "300000"}]

  @tag :fake_cuda
  test "a slow GPU is not taken" do
    output = load(fake(@slow), [])
    assert output =~ "{:host, %{"
    {cuda, _} = times(output, :cuda)
    {host, _} = times(output, :host)
    assert cuda >= 300_000 and host < cuda
  end

  @tag :fake_cuda
  test "the host is taken where the GPU fails while the policy is loaded, or while it is measured" do
    for {call, after_calls} <- [{"cuMemAlloc", "0"}, {"cuLaunchKernel", "8"}] do
      output = load(fake([{"FAKE_CUDA_LOST", call}, {"FAKE_CUDA_LOST_AFTER", after_calls}]), [])
      assert output =~ "{:host, %{"
      assert output =~ "host: nil"
      assert output =~ "kind: :device_lost"
    end
  end

  @tag :fake_cuda
  test "the model that is not taken is freed" do
    # Of the fake GPU's 64 MB each model takes 51.
    output =
      load(fake(@slow), [], """
      # Until the GPU has room: what is no longer used is freed soon, not at once.
      load = fn load ->
        model = ExPhil.Native.Policy.load!(path, max_sessions: 9_000)
        case ExPhil.Native.Policy.info!(model) do
          %{backend: :host, choice: %{cuda: %{paced: _}}} -> model
          %{backend: :host, choice: %{cuda: %{kind: :out_of_memory}}} -> Process.sleep(1) && load.(load)
        end
      end
      IO.inspect(length(for _ <- 1..3, do: load.(load)))
      """)

    assert output == "3\n"
  end

  @tag :fake_cuda
  test "a named backend is not measured, and bad arguments are errors" do
    output =
      load(fake([]), [], """
      alias ExPhil.Native.{Error, Policy}
      IO.inspect(Policy.info!(Policy.load!(path, backend: :cuda)).choice)
      System.put_env("EXPHIL_NATIVE_BACKEND", "host")
      IO.inspect(Policy.info!(Policy.load!(path)).choice)
      System.delete_env("EXPHIL_NATIVE_BACKEND")
      {:error, %Error{kind: :backend_unavailable, argument: ":device"}} = Policy.load(path, device: 7)
      {:error, %Error{kind: :file_error}} = Policy.load("/nowhere/policy.safetensors")
      """)

    assert output == ":named\n:named\n"
  end

  @tag :gpu
  test "on a GPU both backends are measured, and the faster one is taken" do
    for path <- [Policies.checkpoint(), Policies.checkpoint(d_model: 256, d_inner: 512)] do
      %{backend: backend, choice: %{cuda: cuda, host: host}} = Policy.info!(Policy.load!(path))
      assert %{paced: _, back_to_back: _} = cuda
      assert backend == if(cuda.paced <= host.paced, do: :cuda, else: :host)
    end
  end

  test "without a GPU only the host is there" do
    environment = [{"EXPHIL_NATIVE_LIBCUDA", "/nowhere/libcuda.so"} | Peer.library()]
    output = load(&Peer.peer(&1, environment), [])
    assert output =~ ~r/^\{:host, :only_host\}$/m
  end
end
