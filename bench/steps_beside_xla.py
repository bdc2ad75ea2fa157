"""Steps of a resident policy beside JAX's programs, in one process and on one device: p50 and p99 of a step, alone, beside
programs with the custom calls and beside the same programs in JAX alone. The outputs must have the same bits throughout.

    make && make build/bench/policy_steps.so            # then, with a Python that has JAX for CUDA (or on the CPU):
    EXPHIL_NATIVE_KERNELS=kernels python bench/steps_beside_xla.py [MELEE] [FRAMES] [PERIOD]

MELEE is the folder of policy.safetensors and match.safetensors (../shared/melee), PERIOD the time between frames in us.
"""

import ctypes
import pathlib
import sys
import threading

import jax
import numpy as np

import xla_jax
from xla_jax import exphil

ROOT = pathlib.Path(__file__).resolve().parents[1]
MELEE = sys.argv[1] if len(sys.argv) > 1 else str(ROOT.parent / "shared" / "melee")
FRAMES = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
PERIOD = int(sys.argv[3]) if len(sys.argv) > 3 else 2000


class Player:
    def __init__(self, melee):
        self.library = ctypes.CDLL(str(ROOT / "build" / "bench" / "policy_steps.so"))
        self.library.exphil_bench_open.restype = ctypes.c_void_p
        self.library.exphil_bench_error.restype = ctypes.c_char_p
        self.handle = self.library.exphil_bench_open(melee.encode(), jax.default_backend() == "gpu")
        if not self.handle:
            raise RuntimeError(self.library.exphil_bench_error().decode())

    def steps(self):
        """The times of FRAMES steps in us, and a hash of their outputs."""
        times, hashed = np.empty(FRAMES), ctypes.c_uint64()
        status = self.library.exphil_bench_steps(
            ctypes.c_void_p(self.handle), ctypes.c_int64(FRAMES), ctypes.c_int64(PERIOD), 0,
            times.ctypes.data_as(ctypes.c_void_p), ctypes.byref(hashed),
        )  # fmt: skip
        if status != 0:
            raise RuntimeError(self.library.exphil_bench_error().decode())
        return times, hashed.value


def beside(player, program, arguments):
    """The steps while this thread runs the program over and over: times, hash, and runs of the program a second."""
    if program is None:
        return *player.steps(), 0.0
    run = jax.jit(program)
    jax.block_until_ready(run(*arguments))
    answer, runs = [], 0
    thread = threading.Thread(target=lambda: answer.extend(player.steps()))
    thread.start()
    while thread.is_alive():
        jax.block_until_ready(run(*arguments))
        runs += 1
    thread.join()
    return *answer, runs / (FRAMES * PERIOD * 1e-6)


def programs():
    yield "nothing", None, ()
    for title, scan in (("custom calls", exphil.selective_scan), ("JAX alone", xla_jax.alone)):
        yield f"forward 32x60x512x16, {title}", scan, xla_jax.inputs(32, 60, 512, 16)
        yield f"forward and gradient 8x1024x512x16, {title}", xla_jax.gradient(scan), xla_jax.inputs(8, 1024, 512, 16)
        yield f"training step of two Mamba layers, {title}", xla_jax.training_step(scan), xla_jax.training_inputs(0)
    yield "nothing, again", None, ()


def main():
    exphil.register()
    player = Player(MELEE)
    player.steps()
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}; {FRAMES} frames, one every {PERIOD} us")
    hashes = set()
    for title, program, arguments in programs():
        times, hashed, rate = beside(player, program, arguments)
        hashes.add(hashed)
        p50, p99 = np.percentile(times, (50, 99))
        print(f"{title:62} p50 {p50:8.1f}  p99 {p99:8.1f}  longest {times.max():8.1f} us  {rate:8.1f} runs/s", flush=True)
    print("bits of the outputs:", "the same throughout" if len(hashes) == 1 else f"DIFFER: {hashes}")
    sys.exit(len(hashes) != 1)


if __name__ == "__main__":
    main()
