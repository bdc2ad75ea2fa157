"""Shared by the tests of the XLA handlers: the goldens, a plain JAX scan, relative errors."""

import json
import os
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The package of this checkout, unless the installed one is asked for.
if os.environ.get("EXPHIL_JAX") != "installed":
    sys.path.insert(0, str(ROOT / "examples" / "jax"))

import exphil_native_jax as exphil  # noqa: E402

exphil.register()

# A fifth of the time would go into optimising the programs around the calls for the CPU.
if jax.default_backend() == "cpu":
    jax.config.update("jax_disable_most_optimizations", True)

_shared = pathlib.Path(os.environ.get("EXPHIL_SHARED", ROOT.parent / "shared"))
SHARED = _shared if (_shared / "goldens").is_dir() else None

_TYPES = {"F32": np.float32, "F64": np.float64}


def read_safetensors(path):
    """({name: array}, metadata); complex tensors joined from their _re and _im pairs."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], _TYPES[entry["dtype"]])
        arrays[name] = values.reshape(entry["shape"])
    for name in [name for name in arrays if name.endswith("_re")]:
        base, real = name[:-3], arrays.pop(name)
        arrays[base] = real + 1j * arrays.pop(base + "_im")
        if real.dtype == np.float32:
            arrays[base] = arrays[base].astype(np.complex64)
    return arrays, metadata


def goldens():
    folder = SHARED / "goldens" / "selective_scan"
    return [(path.stem, *read_safetensors(path)) for path in sorted(folder.glob("*.safetensors"))]


def relative_error(out, expected):
    out, expected = np.asarray(out), np.asarray(expected)
    norm = np.linalg.norm(expected.ravel())
    return np.linalg.norm((out.astype(expected.dtype) - expected).ravel()) / (norm if norm > 0 else 1.0)


def plain_scan(x, dt, a, b, c, d=None, z=None, dt_bias=None, dt_softplus=False, initial_state=None):
    """The selective scan (zoh) as a JAX program, step by step, in the type of its inputs: (y, final_state)."""
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = jax.nn.softplus(dt)
    batch, _, dim = x.shape

    def step(h, inputs):
        x_t, dt_t, b_t, c_t = inputs
        h = jnp.exp(a[None] * dt_t[..., None]) * h + (dt_t * x_t)[..., None] * b_t[:, None, :]
        return h, jnp.einsum("bdn,bn->bd", h, c_t)

    start = jnp.zeros((batch, dim, a.shape[1]), x.dtype) if initial_state is None else initial_state
    time_first = [jnp.moveaxis(t, 1, 0) for t in (x, dt, b, c)]
    final, y = jax.lax.scan(step, start, time_first)
    y = jnp.moveaxis(y, 0, 1)
    if d is not None:
        y = y + d * x
    if z is not None:
        y = y * jax.nn.silu(z)
    return y, final


def problem(key, batch, seq, dim, state, dtype=np.float32):
    """Random x, dt, a, b, c and the keyword operands d, z, dt_bias, initial_state."""
    rng = np.random.default_rng(key)
    normal = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    x, z = normal(batch, seq, dim), normal(batch, seq, dim)
    dt = rng.uniform(0.01, 0.2, (batch, seq, dim))
    a = -rng.uniform(0.1, 4.0, (dim, state))
    b, c = normal(batch, seq, state), normal(batch, seq, state)
    extra = {"d": normal(dim), "dt_bias": normal(dim), "initial_state": normal(batch, dim, state)}
    main = [t.astype(dtype) for t in (x, dt)] + [a.astype(np.float32)] + [t.astype(dtype) for t in (b, c)]
    return main, {"z": z.astype(dtype), **{name: t.astype(np.float32) for name, t in extra.items()}}
