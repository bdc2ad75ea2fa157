"""What JAX's programs run on the GPU, by XLA's own profiler: kernels, their time, and the time between them; and what a
custom call adds to its kernel.

    make && EXPHIL_NATIVE_KERNELS=kernels python bench/xla_device.py [RUNS [added]]   # a Python that has JAX for CUDA

"busy" is the sum of the times of all kernels and copies of one run, "span" the time from the start of the first to the end of the
last, "ratio" that of JAX alone to the custom calls. With `added` only what a call adds is measured, which depends
on whether XLA records the calls into a command buffer: XLA_FLAGS=--xla_gpu_enable_command_buffer= turns that off.
"""

import collections
import math
import pathlib
import statistics
import sys
import tempfile
import time

import jax
from jax.profiler import ProfileData

import xla_jax
from xla_jax import exphil, inputs

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
PAUSE = 0.005  # seconds


def device_events(folder):
    """(start, end, name) of everything that ran on the first GPU's streams, in us, in order."""
    (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
    events = []
    for plane in ProfileData.from_file(str(path)).planes:
        if not plane.name.startswith("/device:GPU:0"):
            continue
        for line in plane.lines:
            if line.name.startswith("Stream"):
                events += [(e.start_ns / 1e3, (e.start_ns + e.duration_ns) / 1e3, e.name) for e in line.events]
    return sorted(events)


def profile(function, arguments):
    """The device events of RUNS runs of the program, as one list for each run: a pause of PAUSE is between two."""
    run = jax.jit(function)
    jax.block_until_ready(run(*arguments))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(RUNS):
                time.sleep(PAUSE)
                jax.block_until_ready(run(*arguments))
        events = device_events(folder)
    runs, end = [], -math.inf
    for event in events:
        if event[0] - end > 0.5e6 * PAUSE:
            runs.append([])
        runs[-1].append(event)
        end = max(end, event[1])
    if len(runs) != RUNS:
        print(f"  the profile has {len(events)} events in {len(runs)} groups, for {RUNS} runs", flush=True)
    if not runs:
        raise RuntimeError("the profile has no events of the GPU")
    return runs


def busy_and_span(runs):
    busy = statistics.median(sum(end - start for start, end, _ in run) for run in runs)
    span = statistics.median(max(end for _, end, _ in run) - run[0][0] for run in runs if run)
    return busy, span


def kernels_of(runs):
    """{name: [times]} over all runs."""
    times = collections.defaultdict(list)
    for run in runs:
        for start, end, name in run:
            times[name].append(end - start)
    return times


def show(title, native, plain, arguments):
    with_calls, alone = profile(native, arguments), profile(plain, arguments)
    (busy, span), (busy_alone, span_alone) = busy_and_span(with_calls), busy_and_span(alone)
    print(
        f"{title:40} busy {busy:8.1f} us  alone {busy_alone:8.1f}  ratio {busy_alone / busy:5.2f}   "
        f"span {span:8.1f} us  alone {span_alone:8.1f}  ratio {span_alone / span:5.2f}",
        flush=True,
    )
    for runs, what in ((with_calls, "custom calls"), (alone, "alone")):
        print(f"  {what}: {len(runs[0])} kernels and copies a run")
        times = kernels_of(runs)
        for name in sorted(times, key=lambda name: -sum(times[name]))[:6]:
            each = len(times[name]) / len(runs)
            print(f"    {each:6.1f} x {statistics.median(times[name]):8.2f} us  {name[:90]}", flush=True)


def chain_of(calls):
    """A program of that many forward scans, each on the result of the one before."""

    def chain(x, *rest):
        for _ in range(calls):
            x = exphil.selective_scan(x, *rest)
        return x

    return chain


def donated(calls, x, rest):
    """The median time of a chain whose result takes the memory of its x, in us: all addresses are those of the run before, so
    that XLA need not record a command buffer again."""
    run, x = jax.jit(chain_of(calls), donate_argnums=0), jax.numpy.array(x)
    times = []
    for _ in range(xla_jax.RUNS):
        begin = time.perf_counter()
        x = jax.block_until_ready(run(x, *rest))
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def added(shape):
    """One call's time in a chain of calls, each on the result of the one before, without the profiler: from chains of two
    lengths, into new memory and into that of x. Then by the profiler: the time of its kernel, and of a call from the start of the
    first kernel to the end of the last."""
    x, *rest = inputs(*shape)
    new = [xla_jax.median(jax.jit(chain_of(calls)), lambda key: (x, *rest)) for calls in (50, 250)]
    same = [donated(calls, x, rest) for calls in (50, 250)]
    run = profile(chain_of(50), (x, *rest))[-1]
    kernel = statistics.median(end - start for start, end, _ in run)
    span = (run[-1][1] - run[0][0]) / 50
    print(
        f"{'x'.join(map(str, shape)):16} a call of a chain {(new[1] - new[0]) / 200:7.2f} us, donated {(same[1] - same[0]) / 200:7.2f} us; "
        f"profiled {span:7.2f} us, its kernel {kernel:7.2f} us, so the call adds {span - kernel:5.2f} us "
        f"({len(run)} kernels and copies for 50 calls)",
        flush=True,
    )


def main():
    exphil.register()
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}, {RUNS} runs")
    for shape in ((32, 60, 512, 16), (8, 1024, 512, 16), (1, 1, 32, 16)):
        added(shape)
    if "added" in sys.argv:
        return
    for shape in ((32, 60, 512, 16), (8, 1024, 512, 16)):
        name, tensors = "x".join(map(str, shape)), inputs(*shape)
        show(f"forward {name}", exphil.selective_scan, xla_jax.alone, tensors)
        show(f"forward and gradient {name}", xla_jax.gradient(exphil.selective_scan), xla_jax.gradient(xla_jax.alone), tensors)
    show(
        "training step, 2 Mamba layers, 32x60",
        xla_jax.training_step(exphil.selective_scan),
        xla_jax.training_step(xla_jax.alone),
        xla_jax.training_inputs(0),
    )


if __name__ == "__main__":
    main()
