"""Many calls with random shapes under jit in one process leave memory flat: resident memory on the CPU; on a GPU the device's
free memory, which counts the library's own allocations too, and JAX's bytes in use.

    EXPHIL_XLA_CALLS=10000 python -m unittest test_memory        # from test/xla; the default is 400
"""

import ctypes
import gc
import os
import unittest

from support import exphil, problem

import jax
import jax.numpy as jnp
import numpy as np

CALLS = int(os.environ.get("EXPHIL_XLA_CALLS", "400"))
SHAPES = 12  # JAX keeps a compiled program for each
MIB = 1 << 20


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def used_device_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0:
        raise RuntimeError("cuMemGetInfo failed")
    return total.value - free.value


@jax.jit
def work(x, dt, a, b, c):
    """A forward, a gradient, a cumulative sum, a recurrence and its gradient."""

    def loss(x, dt, a, b, c):
        y, final = exphil.selective_scan(x, dt, a, b, c, return_state=True)
        h = exphil.linear_recurrence(jax.nn.sigmoid(y), exphil.cumsum(x, axis=1), 1, False, x[:, 0])
        return jnp.sum(h**2) + jnp.sum(final)

    return jax.grad(loss, (0, 1, 2, 3, 4))(x, dt, a, b, c)


class Memory(unittest.TestCase):
    def test_many_calls_leave_memory_flat(self):
        rng = np.random.default_rng(7)
        shapes = [tuple(int(v) for v in rng.integers(1, (9, 200, 40, 17))) for _ in range(SHAPES)]
        inputs = [problem(key, *shape)[0] for key, shape in enumerate(shapes)]

        def run(calls):
            for _ in range(calls):
                jax.block_until_ready(work(*inputs[rng.integers(SHAPES)]))
            gc.collect()

        for main in inputs:
            jax.block_until_ready(work(*main))
        run(CALLS // 4)
        resident = resident_bytes()
        on_device = jax.default_backend() == "gpu"
        if on_device:
            jax.device_put(0.0).block_until_ready()  # the context is current on this thread
            used, in_use = used_device_bytes(), jax.devices()[0].memory_stats()["bytes_in_use"]
        run(CALLS - CALLS // 4)
        grown = resident_bytes() - resident
        print(f"{CALLS} calls: resident memory grew by {grown / MIB:.1f} MiB", flush=True)
        self.assertLess(grown, 32 * MIB)
        if on_device:
            print(f"device memory grew by {(used_device_bytes() - used) / MIB:.1f} MiB", flush=True)
            self.assertLessEqual(used_device_bytes() - used, 0)
            self.assertLessEqual(jax.devices()[0].memory_stats()["bytes_in_use"], in_use)


if __name__ == "__main__":
    unittest.main()
