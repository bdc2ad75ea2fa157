"""Armed steps of a resident policy (latency: :armed) while other code in the same process and on the same device allocates,
frees, loads modules and synchronises: 10,000 frames beside each, over and over until it has made 100 calls, which must have the
bits of plain frames; and what the other calls took. JAX and PyTorch, where they are installed, compile new programs, load
kernels lazily and allocate without a pool of their own.

    make && make build/bench/policy_steps.so
    EXPHIL_NATIVE_KERNELS=kernels python bench/armed_beside.py [MELEE] [FRAMES] [PERIOD]

MELEE is the folder of policy.safetensors and match.safetensors (../shared/melee), PERIOD the time between frames in us (0: one
after another). Exits with 1 where bits differ, and after 120 s without an end of a row, which is a hang.
"""

import ctypes
import faulthandler
import os
import pathlib
import sys
import threading
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")  # every array is a cuMemAlloc and a cuMemFree
try:
    import jax
except ImportError:
    jax = None
try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
MELEE = sys.argv[1] if len(sys.argv) > 1 else str(ROOT.parent / "shared" / "melee")
FRAMES = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
PERIOD = int(sys.argv[3]) if len(sys.argv) > 3 else 0
OTHERS = 100  # calls beside the frames, at the least
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
"""


def version(library):
    return "none" if library is None else library.__version__


def percentile(values, share):
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0


class Player:
    def __init__(self):
        self.library = ctypes.CDLL(str(ROOT / "build" / "bench" / "policy_steps.so"))
        self.library.exphil_bench_open.restype = ctypes.c_void_p
        self.library.exphil_bench_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p(self.library.exphil_bench_open(MELEE.encode(), 1))
        if not self.handle.value:
            raise RuntimeError(self.library.exphil_bench_error().decode())

    def steps(self, armed):
        """The times of FRAMES steps in us, and a hash of their outputs."""
        times, hashed = (ctypes.c_double * FRAMES)(), ctypes.c_uint64()
        status = self.library.exphil_bench_steps(
            self.handle, ctypes.c_int64(FRAMES), ctypes.c_int64(PERIOD), int(armed), times, ctypes.byref(hashed)
        )
        if status != 0:
            raise RuntimeError(self.library.exphil_bench_error().decode())
        return list(times), hashed.value


class Driver:
    """What another library does, through the driver itself."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check(self.cuda.cuInit(0))
        context = ctypes.c_void_p()
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.cuda.cuCtxSetCurrent(context))

    @staticmethod
    def check(result):
        if result != 0:
            raise RuntimeError(f"the driver answered {result}")

    def allocate_and_free(self):
        block = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(8 << 20)))
        self.check(self.cuda.cuMemFree_v2(block))

    def pinned(self):
        block = ctypes.c_void_p()
        self.check(self.cuda.cuMemHostAlloc(ctypes.byref(block), ctypes.c_size_t(1 << 20), 0))
        self.check(self.cuda.cuMemFreeHost(block))

    def load_and_run(self):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"))
        self.check(self.cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None))
        self.check(self.cuda.cuModuleUnload(module))

    def synchronise(self):
        self.check(self.cuda.cuCtxSynchronize())


def new_program():
    """JAX compiles a program that it has not seen, runs it, and frees its arrays."""
    new_program.size += 1
    answer = jax.jit(lambda x: (x * 2 + 1).sum())(jax.numpy.ones(new_program.size))
    assert float(answer) == 3 * new_program.size


new_program.size = 1000


def arrays():
    x = jax.device_put(jax.numpy.ones((256, 256)))
    jax.block_until_ready(x @ x)


def torch_memory():
    """PyTorch allocates, computes, frees, and gives its memory back to the driver."""
    x = torch.ones((1024, 1024), device="cuda")
    assert float((x @ x)[0, 0]) == 1024
    del x
    torch.cuda.empty_cache()


def torch_kernels():
    """Functions of PyTorch whose kernels are loaded at their first use."""
    functions = torch_kernels.functions
    x = torch.rand(64, device="cuda", dtype=(torch.float32, torch.float64)[len(functions) % 2])
    if functions:
        getattr(torch, functions.pop())(x)
    torch.cuda.synchronize()


torch_kernels.functions = "sin cos tan exp log sqrt erf tanh sigmoid sort median diff frac floor ceil".split()


def others():
    driver = Driver()
    yield "nothing", None
    yield "allocations and frees of 8 MB", driver.allocate_and_free
    yield "pinned allocations and frees", driver.pinned
    yield "modules loaded, run and unloaded", driver.load_and_run
    yield "the context synchronised", driver.synchronise
    if jax is not None and jax.default_backend() == "gpu":
        yield "JAX: arrays and products", arrays
        yield "JAX: new programs", new_program
    if torch is not None and torch.cuda.is_available():
        yield "PyTorch: memory", torch_memory
        yield "PyTorch: lazily loaded kernels", torch_kernels
    yield "nothing, again", None


def row(title, player, armed, other):
    faulthandler.dump_traceback_later(120, exit=True)
    times, hashes, took = [], set(), []
    end = time.perf_counter() + 20

    def play():
        while not times or (other is not None and len(took) < OTHERS and time.perf_counter() < end):
            some, hashed = player.steps(armed)
            times.extend(some)
            hashes.add(hashed)

    thread = threading.Thread(target=play)
    thread.start()
    while other is not None and thread.is_alive():
        begin = time.perf_counter()
        other()
        took.append((time.perf_counter() - begin) * 1e6)
    thread.join()
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{'armed' if armed else 'plain'} beside {title:34} {len(times):7} frames, p50 {percentile(times, 0.5):7.1f}  p99 {percentile(times, 0.99):7.1f}"
        f"  longest {max(times):8.1f} us | {len(took):6} other calls, p50 {percentile(took, 0.5):8.1f}  p99 "
        f"{percentile(took, 0.99):8.1f}  longest {max(took, default=0):8.1f} us",
        flush=True,
    )
    return hashes


def main():
    player = Player()
    player.steps(False), player.steps(True)
    print(f"{FRAMES} frames a row, one every {PERIOD} us; JAX {version(jax)}, PyTorch {version(torch)}")
    hashes = set().union(*(row(title, player, armed, other) for title, other in others() for armed in (False, True)))
    print("bits of the outputs:", "the same throughout" if len(hashes) == 1 else f"DIFFER: {hashes}")
    sys.exit(len(hashes) != 1)


if __name__ == "__main__":
    main()
