"""One step of the shared policy in ONNX Runtime on the CPU, in f32 and dynamic int8, beside this library's step.

    python3 -m venv build/onnx && build/onnx/bin/pip install numpy onnx onnxruntime safetensors
    make bench && build/onnx/bin/python bench/onnx_step.py [../shared/melee] [SECONDS]

The step is built with the `onnx` package from the checkpoint: the observation and the state of each layer in, the logits and the next
states out. Its outputs are compared with the recorded logits first. Then all are timed in turns of two seconds in one run: once
every 16.67 ms and back to back, ONNX Runtime with as many threads as it chooses and with one (the faster counts). This library's
step is build/bench/host_step, in every precision, in the same turns; its plain step, without a pace.
"""
import re
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def __call__(self, op, *inputs, **attributes):
        self.count += 1
        name = attributes.pop("out", f"t{self.count}")
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(self, x, matrix, bias=None):  # matrix: {out, in}
        y = self("MatMul", x, self.weight(matrix.T))
        return y if bias is None else self("Add", y, self.weight(bias))

    def norm(self, x, weight):
        mean = self("ReduceMean", self("Mul", x, x), self.weight(np.array([-1], np.int64)), keepdims=1)
        root = self("Sqrt", self("Add", mean, self.weight(np.float32(1e-5))))
        return self("Mul", self("Div", x, root), self.weight(weight))

    def silu(self, x):
        return self("Mul", x, self("Sigmoid", x))

    def slice(self, x, first, last, axis):
        ends = [self.weight(np.array([v], np.int64)) for v in (first, last, axis)]
        return self("Slice", x, *ends)


def build(w):
    """The step as a model: obs {1, d_input}, ssm{i} {d_inner, d_state}, conv{i} {d_inner, d_conv - 1}."""
    g, inputs, outputs = Graph(), [], []
    d_input = w["input_proj.weight"].shape[1]
    inputs.append(helper.make_tensor_value_info("obs", TensorProto.FLOAT, [1, d_input]))
    h, layer = g.linear("obs", w["input_proj.weight"], w["input_proj.bias"]), 0
    while f"backbone.layers.{layer}.norm.weight" in w:
        at = lambda name: w[f"backbone.layers.{layer}.{name}"]
        inner, state = at("mixer.A_log").shape
        taps, rank = at("mixer.conv1d.weight").shape[2], at("mixer.dt_proj.weight").shape[1]
        ssm, conv = f"ssm{layer}", f"conv{layer}"
        for name, columns in ((ssm, state), (conv, taps - 1)):
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [inner, columns]))
            outputs.append(helper.make_tensor_value_info(name + "_next", TensorProto.FLOAT, [inner, columns]))
        xz = g.linear(g.norm(h, at("norm.weight")), at("mixer.in_proj.weight"))
        x, z = g.slice(xz, 0, inner, 1), g.slice(xz, inner, 2 * inner, 1)
        column = g("Transpose", x, perm=[1, 0])
        window = g("Concat", conv, column, axis=1)
        g("Identity", g.slice(window, 1, taps, 1), out=conv + "_next")
        last_axis = g.weight(np.array([1], np.int64))
        sums = g("ReduceSum", g("Mul", window, g.weight(at("mixer.conv1d.weight")[:, 0, :])), last_axis, keepdims=1)
        u = g.silu(g("Add", sums, g.weight(at("mixer.conv1d.bias")[:, None])))  # {inner, 1}
        projected = g.linear(g("Transpose", u, perm=[1, 0]), at("mixer.x_proj.weight"))
        low = g.slice(projected, 0, rank, 1)
        b, c = g.slice(projected, rank, rank + state, 1), g.slice(projected, rank + state, rank + 2 * state, 1)
        dt = g("Softplus", g.linear(low, at("mixer.dt_proj.weight"), at("mixer.dt_proj.bias")))
        dt = g("Transpose", dt, perm=[1, 0])  # {inner, 1}
        decay = g("Exp", g("Mul", dt, g.weight(-np.exp(at("mixer.A_log")))))
        g("Add", g("Mul", decay, ssm), g("Mul", g("Mul", dt, u), b), out=ssm + "_next")
        y = g("ReduceSum", g("Mul", ssm + "_next", c), last_axis, keepdims=1)
        y = g("Add", y, g("Mul", u, g.weight(at("mixer.D")[:, None])))
        gated = g("Mul", g("Transpose", y, perm=[1, 0]), g.silu(z))
        h = g("Add", h, g.linear(gated, at("mixer.out_proj.weight")))
        layer += 1
    out = g.linear(g.norm(h, w["backbone.norm_f.weight"]), w["head.weight"], w["head.bias"])
    g("Identity", out, out="logits")
    outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, w["head.weight"].shape[0]]))
    graph = helper.make_graph(g.nodes, "step", inputs, outputs, g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    return model


class Session:
    def __init__(self, path, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.run_of = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.feed = {i.name: np.zeros(i.shape, np.float32) for i in self.run_of.get_inputs()}
        self.names = [o.name for o in self.run_of.get_outputs()]

    def step(self, obs):
        self.feed["obs"] = obs
        outs = self.run_of.run(self.names, self.feed)
        for name, value in zip(self.names[1:], outs[1:]):
            self.feed[name[: -len("_next")]] = value
        return outs[0]


def microseconds(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def paced(step, seconds):
    start, times = time.perf_counter(), []
    for frame in range(int(seconds * 60)):
        time.sleep(max(0.0, start + frame / 60 - time.perf_counter()))
        times.append(microseconds(step))
    return times


def host_step(folder, precision, seconds):
    command = ["build/bench/host_step", f"{folder}/policy.safetensors", f"{folder}/match.safetensors", str(seconds), precision, "step"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(re.search(rf"step, {kind}.*?p50 +([0-9.]+)", text).group(1)) for kind in ("paced", "back to back")]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "../shared/melee"
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    match = load_file(f"{folder}/match.safetensors")
    obs = [row[None, :] for row in match["obs"]]
    onnx.save(build(load_file(f"{folder}/policy.safetensors")), "build/step_f32.onnx")
    quantize_dynamic("build/step_f32.onnx", "build/step_int8.onnx", weight_type=QuantType.QInt8)
    sessions = {}
    for precision in ("f32", "int8"):
        session = Session(f"build/step_{precision}.onnx", 0)
        outs = np.concatenate([session.step(o) for o in obs[:600]])
        error = np.linalg.norm(outs - match["logits"][:600]) / np.linalg.norm(match["logits"][:600])
        print(f"ONNX Runtime {ort.__version__} {precision}: relative error of 600 frames {error:.1e}")
        if precision == "f32" and error > 1e-5:
            sys.exit("the exported step is not the policy")
        for threads in (0, 1):
            sessions[precision, threads] = Session(f"build/step_{precision}.onnx", threads)
    times = {}
    add = lambda name, kind, value: times.setdefault((name, kind), []).append(value)
    for turn in range(max(1, seconds // 2)):
        for (precision, threads), session in sessions.items():
            name = f"ONNX {precision}, {'default threads' if threads == 0 else 'one thread'}"
            step = lambda: session.step(obs[turn])
            add(name, "paced", statistics.median(paced(step, 2)))
            add(name, "back to back", statistics.median(microseconds(step) for _ in range(1000)))
        for precision in ("f32", "bf16", "f16", "int8"):
            for kind, value in zip(("paced", "back to back"), host_step(folder, precision, 2)):
                add(f"exphil_native {precision}", kind, value)
    print("\n| p50 in us, median of the turns | once every 16.67 ms | back to back |\n|---|---|---|")
    median = {key: statistics.median(values) for key, values in times.items()}
    for name in dict.fromkeys(name for name, _ in times):
        print(f"| {name} | {median[name, 'paced']:.0f} | {median[name, 'back to back']:.0f} |")
    for precision in ("f32", "int8"):
        for kind in ("paced", "back to back"):
            best = min(v for (name, k), v in median.items() if k == kind and name.startswith(f"ONNX {precision}"))
            own = median[f"exphil_native {precision}", kind]
            print(f"{precision}, {kind}: ONNX Runtime takes {best / own:.2f} times as long")


main()
