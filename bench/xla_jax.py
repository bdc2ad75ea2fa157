"""The scans as XLA custom calls against the same programs in JAX alone, in one process. Medians, and their ratio.

    make jax && make                            # a JAX on the CPU in build/venv; or use a Python that has JAX for CUDA
    build/venv/bin/python bench/xla_jax.py      # [RUNS]

Times of single calls contain what JAX needs to dispatch one. "alone" is jax.lax.associative_scan over the whole (decay,
input) pairs, which is how JAX users write a scan.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "jax"))

import jax
import jax.numpy as jnp
import numpy as np

import exphil_native_jax as exphil

RUNS = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 30


def alone(x, dt, a, b, c):
    """The selective scan (zoh) by jax.lax.associative_scan."""
    decay = jnp.exp(dt[..., None] * a)
    entering = (dt * x)[..., None] * b[:, :, None, :]
    combine = lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1])  # noqa: E731
    _, h = jax.lax.associative_scan(combine, (decay, entering), axis=1)
    return jnp.einsum("bldn,bln->bld", h, c)


def inputs(batch, seq, dim, state, key=0):
    rng = np.random.default_rng(key)
    x = rng.standard_normal((batch, seq, dim))
    dt = rng.uniform(0.01, 0.1, (batch, seq, dim))
    a = -rng.uniform(0.5, 4.0, (dim, state))
    b, c = rng.standard_normal((2, batch, seq, state))
    return [jnp.asarray(t, jnp.float32) for t in (x, dt, a, b, c)]


def median(function, arguments_of):
    """The median time of one call in us, each with inputs of its own."""
    sets = [arguments_of(key) for key in range(4)]
    jax.block_until_ready(function(*sets[0]))
    times = []
    for run in range(RUNS):
        begin = time.perf_counter()
        jax.block_until_ready(function(*sets[run % len(sets)]))
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def compare(name, native, plain, arguments_of):
    with_calls, without = median(jax.jit(native), arguments_of), median(jax.jit(plain), arguments_of)
    print(f"{name:44} {with_calls:10.1f} us  alone {without:10.1f} us  ratio {without / with_calls:6.2f}", flush=True)


def queued(step, x, rest, calls=100):
    """The time of one of many calls in one program, each on the result of the one before: what the device alone needs."""
    chain = jax.jit(lambda x, *rest: jax.lax.fori_loop(0, calls, lambda _, x: step(x, *rest), x))
    return median(chain, lambda key: (x, *rest)) / calls


def compare_queued(name, native, plain, x, rest):
    with_calls, without = queued(native, x, rest), queued(plain, x, rest)
    print(f"{name:44} {with_calls:10.2f} us  alone {without:10.2f} us  ratio {without / with_calls:6.2f}", flush=True)


def gradient(scan):
    return jax.grad(lambda *tensors: jnp.sum(scan(*tensors) ** 2), (0, 1, 2, 3, 4))


def block(scan, w, x):
    """One Mamba block: d_model 256, d_inner 512, state 16, dt_rank 16, convolution over 4 frames."""
    u, z = jnp.split(x @ w["in"], 2, axis=-1)
    padded = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
    u = jax.nn.silu(sum(padded[:, k : k + x.shape[1]] * w["conv"][k] for k in range(4)))
    rank, b, c = jnp.split(u @ w["x"], [16, 32], axis=-1)
    dt = jax.nn.softplus(rank @ w["dt"])
    y = scan(u, dt, -jnp.exp(w["a_log"]), b, c) + u * w["d"]
    return x + (y * jax.nn.silu(z)) @ w["out"]


def weights(key):
    rng = np.random.default_rng(key)
    small = lambda *shape: jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)  # noqa: E731
    return {
        "in": small(256, 1024), "conv": small(4, 512), "x": small(512, 48), "dt": small(16, 512),
        "a_log": jnp.log(jnp.tile(jnp.arange(1.0, 17.0), (512, 1))), "d": jnp.ones(512), "out": small(512, 256),
    }  # fmt: skip


def training_step(scan):
    def step(layers, x, target):
        def loss(layers):
            h = x
            for w in layers:
                h = block(scan, w, h)
            return jnp.mean((h - target) ** 2)

        value, gradients = jax.value_and_grad(loss)(layers)
        return value, jax.tree.map(lambda w, g: w - 1e-3 * g, layers, gradients)

    return step


def training_inputs(key):
    rng = np.random.default_rng(key)
    x, target = (jnp.asarray(rng.standard_normal((32, 60, 256)), jnp.float32) for _ in range(2))
    return [weights(1), weights(2)], x, target


def main():
    exphil.register()
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}, {RUNS} runs")
    for shape in ((32, 60, 512, 16), (8, 1024, 512, 16)):
        name = "x".join(map(str, shape))
        of = lambda key, shape=shape: inputs(*shape, key)  # noqa: E731
        compare(f"forward {name}", exphil.selective_scan, alone, of)
        compare(f"gradient (with its forward) {name}", gradient(exphil.selective_scan), gradient(alone), of)
    compare(
        "training step, 2 Mamba layers, 32x60", training_step(exphil.selective_scan), training_step(alone), training_inputs
    )
    print("One of 100 calls in one program:")
    for shape in ((32, 60, 512, 16), (8, 1024, 512, 16)):
        name = "x".join(map(str, shape))
        x, *rest = inputs(*shape)
        compare_queued(f"forward {name}", exphil.selective_scan, alone, x, rest)
        # The gradient of x is the next x; the others are summed into it, so that nothing is left out.
        fold = lambda scan: lambda x, *rest: sum(jnp.sum(g) * 1e-9 for g in gradient(scan)(x, *rest)[1:]) + x  # noqa: E731
        compare_queued(f"gradient {name}", fold(exphil.selective_scan), fold(alone), x, rest)


if __name__ == "__main__":
    main()
