"""The scans of exphil_native as JAX functions: an example for Python users, tested, not a package.

    import exphil_native_jax as exphil
    exphil.register()                                   # once; needs priv/exphil_native_xla.so (run `make` first)
    y = exphil.selective_scan(x, dt, a, b, c, dt_softplus=True)

The functions work under jit, vmap, scan and donation, on the CPU and on NVIDIA GPUs: the kernels run on XLA's own stream and
in XLA's own memory. Shapes, types and options are those of docs/reference.md.
"""

import ctypes
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

_OPERATORS = ("exphil_selective_scan", "exphil_scan_cumulative", "exphil_linear_recurrence")
_LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "priv" / "exphil_native_xla.so"


def register(library=_LIBRARY):
    """Registers the handlers of `library` with JAX, for the CPU and, where it was built with CUDA, for GPUs."""
    loaded = ctypes.cdll.LoadLibrary(str(library))
    for name in _OPERATORS:
        host = jax.ffi.pycapsule(getattr(loaded, f"{name}_host"))
        jax.ffi.register_ffi_target(name, host, platform="cpu")
        try:
            cuda = jax.ffi.pycapsule(getattr(loaded, f"{name}_cuda"))
        except AttributeError:
            continue
        jax.ffi.register_ffi_target(name, {"initialize": cuda, "execute": cuda}, platform="CUDA")


def selective_scan(
    x, dt, a, b, c, *, d=None, z=None, dt_bias=None, initial_state=None, discretization="zoh", dt_softplus=False,
    dt_range=None, reverse=False, return_state=False, algorithm="auto",
):  # fmt: skip
    """The selective scan: y, or (y, final_state) with return_state.

    x, dt, z {batch, seq, dim}; a {dim, state}, float32 or complex64; b, c {batch, seq, state}, {batch, seq, groups, state}
    or {dim, state}; d, dt_bias {dim}; initial_state {batch, dim, state}. dt_range is (min, max), applied last.
    """
    optional = {"d": d, "z": z, "dt_bias": dt_bias, "initial_state": initial_state}
    given = {name: value for name, value in optional.items() if value is not None}
    options = {
        "operands": " ".join(given),
        "results": "final_state" if return_state else "",
        "discretization": discretization,
        "direction": "reverse" if reverse else "forward",
        "algorithm": algorithm,
        "dt_softplus": bool(dt_softplus),
    }
    if dt_range is not None:
        options["dt_min"], options["dt_max"] = np.float32(dt_range[0]), np.float32(dt_range[1])
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    if return_state:
        state_type = jnp.complex64 if jnp.iscomplexobj(a) else jnp.float32
        results.append(jax.ShapeDtypeStruct((x.shape[0], x.shape[2], a.shape[1]), state_type))
    call = jax.ffi.ffi_call("exphil_selective_scan", results, vmap_method="sequential")
    out = call(x, dt, a, b, c, *given.values(), **options)
    return tuple(out) if return_state else out[0]


def _associative(target, arguments, axis, reverse, **attributes):
    call = jax.ffi.ffi_call(
        target, jax.ShapeDtypeStruct(arguments[-1].shape, arguments[-1].dtype), vmap_method="sequential"
    )
    direction = "reverse" if reverse else "forward"
    return call(*arguments, axis=np.int64(axis), direction=direction, **attributes)


def cumsum(x, axis=0, reverse=False, compensated=False):
    """The cumulative sum along `axis`; compensated carries the rounding error along."""
    return _associative("exphil_scan_cumulative", (x,), axis, reverse, op="cumsum", compensated=bool(compensated))


def cumprod(x, axis=0, reverse=False):
    """The cumulative product along `axis`."""
    return _associative("exphil_scan_cumulative", (x,), axis, reverse, op="cumprod")


def cummax(x, axis=0, reverse=False):
    """The running maximum along `axis`."""
    return _associative("exphil_scan_cumulative", (x,), axis, reverse, op="cummax")


def cummin(x, axis=0, reverse=False):
    """The running minimum along `axis`."""
    return _associative("exphil_scan_cumulative", (x,), axis, reverse, op="cummin")


def linear_recurrence(a, b, axis=0, reverse=False):
    """h_t = a_t h_(t-1) + b_t along `axis`, from h = 0."""
    return _associative("exphil_linear_recurrence", (a, b), axis, reverse)
