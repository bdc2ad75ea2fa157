"""Finds the library with the XLA handlers and registers them with JAX. Called by the functions of this package, once."""

import ctypes
import os
import pathlib
import threading

import jax

OPERATORS = (
    "exphil_selective_scan",
    "exphil_selective_scan_grad",
    "exphil_scan_cumulative",
    "exphil_linear_recurrence",
    "exphil_linear_recurrence_grad",
    "exphil_diagonal_recurrence",
    "exphil_diagonal_recurrence_grad",
    "exphil_dense_recurrence",
    "exphil_dense_recurrence_grad",
    "exphil_state_space_duality",
    "exphil_state_space_duality_grad",
)
_NAME = "exphil_native_xla.so"
_lock = threading.Lock()
_registered = None


def find():
    """The path of the library: EXPHIL_NATIVE_XLA, that of the installed package, or that of the checkout it is part of."""
    here = pathlib.Path(__file__).resolve()
    named = os.environ.get("EXPHIL_NATIVE_XLA")
    places = [pathlib.Path(named)] if named else [here.parent / "native" / _NAME, here.parents[3] / "priv" / _NAME]
    for place in places:
        if place.exists():
            return place
    remedy = "EXPHIL_NATIVE_XLA names it" if named else "`make jax` in exphil_native's checkout builds it"
    raise FileNotFoundError(f"{_NAME} was not found in {' or '.join(str(place.parent) for place in places)}: {remedy}")


def register(library=None):
    """Registers the handlers of `library` with JAX, for the CPU and, where it was built with CUDA, for GPUs. Returns its path.

    Every function of this package does so with the library that `find` finds, unless one is registered already.
    """
    global _registered
    with _lock:
        if _registered is not None:
            if library is None or pathlib.Path(library) == _registered:
                return _registered
            raise RuntimeError(f"the handlers of {_registered} are registered already")
        path = pathlib.Path(library) if library is not None else find()
        loaded = ctypes.cdll.LoadLibrary(str(path))
        for name in OPERATORS:
            host = jax.ffi.pycapsule(getattr(loaded, f"{name}_host"))
            jax.ffi.register_ffi_target(name, host, platform="cpu")
            try:
                cuda = jax.ffi.pycapsule(getattr(loaded, f"{name}_cuda"))
            except AttributeError:
                continue
            jax.ffi.register_ffi_target(name, {"initialize": cuda, "execute": cuda}, platform="CUDA")
        _registered = path
        return path
