"""The scans of exphil_native as JAX functions.

    import exphil_native_jax as exphil
    y = exphil.selective_scan(x, dt, a, b, c, dt_softplus=True)

The functions work under jit, grad, vmap, scan and donation, on the CPU and on NVIDIA GPUs: the kernels run on XLA's own stream and
in XLA's own memory. Shapes, types and options are those of docs/reference.md. `pip install ./examples/jax` installs the package
with the library that `make jax` built.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .calls import alike, call
from .library import find, register

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "find", "linear_recurrence", "recurrent_scan", "register", "selective_scan",
    "state_space_duality",
]  # fmt: skip


def selective_scan(
    x, dt, a, b, c, *, d=None, z=None, dt_bias=None, initial_state=None, discretization="zoh", dt_softplus=False,
    dt_range=None, reverse=False, return_state=False, algorithm="auto",
):  # fmt: skip
    """The selective scan: y, or (y, final_state) with return_state. Differentiable in every operand, once.

    x, dt, z {batch, seq, dim}; a {dim, state}, float32 or complex64; b, c {batch, seq, state}, {batch, seq, groups, state}
    or {dim, state}; d, dt_bias {dim}; initial_state {batch, dim, state}. dt_range is (min, max), applied last.
    """
    optional = {"d": d, "z": z, "dt_bias": dt_bias, "initial_state": initial_state}
    given = {name: value for name, value in optional.items() if value is not None}
    options = {
        "discretization": discretization,
        "direction": "reverse" if reverse else "forward",
        "algorithm": algorithm,
        "dt_softplus": bool(dt_softplus),
    }
    if dt_range is not None:
        options["dt_min"], options["dt_max"] = float(dt_range[0]), float(dt_range[1])
    static = (tuple(given), tuple(options.items()), bool(return_state))
    out = _scan(static, alike((x, dt, a, b, c, *given.values())))
    return out if return_state else out[0]


_MAIN = ("x", "dt", "a", "b", "c")


def _attributes(options, operands, results):
    """A call's attributes. A Python float is float32 here: XLA's attributes have a type of their own."""
    typed = {name: np.float32(value) if isinstance(value, float) else value for name, value in options}
    return {"operands": " ".join(operands), "results": " ".join(results), **typed}


def _like(value):
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(static, tensors):
    """(y,), or (y, final_state), of the tensors x, dt, a, b, c and those that `static` names."""
    given, options, return_state = static
    x, a = tensors[0], tensors[2]
    results = [_like(x)]
    if return_state:
        state_type = jnp.complex64 if jnp.iscomplexobj(a) else jnp.float32
        results.append(jax.ShapeDtypeStruct((x.shape[0], x.shape[2], a.shape[1]), state_type))
    attributes = _attributes(options, given, ["final_state"] if return_state else [])
    return call("exphil_selective_scan", tensors, results, _scan_rows(given, tensors), [True] * len(results), attributes)


def _scan_rows(given, tensors):
    """Whether each of x, dt, a, b, c and `given` has a row for each of the batch. Constant b and c have none."""
    return [True, True, False, tensors[3].ndim > 2, tensors[4].ndim > 2, *(name in ("z", "initial_state") for name in given)]


def _scan_forward(static, tensors):
    return _scan(static, tensors), tensors


def _scan_backward(static, tensors, cotangents):
    # JAX's cotangent of a complex value is dL/dRe - i dL/dIm; the library's is its conjugate.
    given, options, return_state = static
    operands = [*given, "d_final_state"] if return_state else given
    d_final_state = [jnp.conj(cotangents[1])] if return_state else []
    options = [(name, value) for name, value in options if name != "algorithm"]
    rows, attributes = _scan_rows(given, tensors), _attributes(options, operands, [*_MAIN, *given])
    arguments = (cotangents[0], *tensors, *d_final_state)
    results = [_like(tensor) for tensor in tensors]
    arguments_rows = [True, *rows, *(True for _ in d_final_state)]
    gradients = call("exphil_selective_scan_grad", arguments, results, arguments_rows, rows, attributes)
    return (tuple(jnp.conj(gradient) for gradient in gradients),)


_scan.defvjp(_scan_forward, _scan_backward)


def _associative(target, arguments, results, axis, reverse, **attributes):
    attributes = {"axis": np.int64(axis), "direction": "reverse" if reverse else "forward", **attributes}
    # The leading dimension is one of rows unless it is that of the scan.
    several = isinstance(results, list)
    row = axis % max(arguments[0].ndim, 1) != 0
    given = results if several else [results]
    out = call(target, arguments, given, [row] * len(arguments), [row] * len(given), attributes)
    return out if several else out[0]


def _earlier(values, axis, reverse, first):
    """The element before each in the order of the scan, and `first` before the first."""
    values = jnp.flip(values, axis) if reverse else values
    start = jnp.full_like(jax.lax.slice_in_dim(values, 0, min(1, values.shape[axis]), axis=axis), first)
    shifted = jnp.concatenate([start, jax.lax.slice_in_dim(values, 0, max(values.shape[axis] - 1, 0), axis=axis)], axis)
    return jnp.flip(shifted, axis) if reverse else shifted


def _wide(values):
    """Halves as float32: a gradient is computed in float32 and rounded once."""
    return values.astype(jnp.float32) if values.dtype in (jnp.float16, jnp.bfloat16) else values


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _cumulative(op, axis, static, x):
    reverse, compensated = static
    return _associative("exphil_scan_cumulative", (x,), _like(x), axis, reverse, op=op, compensated=compensated)


def _cumulative_forward(op, axis, static, x):
    y = _cumulative(op, axis, static, x)
    return y, (x, y)


def _cumulative_backward(op, axis, static, saved, dy):
    (x, y), (reverse, compensated) = saved, static
    if op == "cumsum":
        return (_cumulative(op, axis, (not reverse, compensated), dy),)
    wide_x, wide_y, wide_dy = _wide(x), _wide(y), _wide(dy)
    if op == "cumprod":
        # dx_t = y_(t-1) s_t with s_t = dy_t + x_(t+1) s_(t+1): exact where elements are 0.
        factor, scale = wide_x, _earlier(_wide(_cumulative(op, axis, static, wide_x)), axis, reverse, 1)
    else:
        # The first of equal extrema receives the sum of dy until the extremum changes; a NaN is the last one.
        before = _earlier(wide_y, axis, reverse, jnp.inf if op == "cummin" else -jnp.inf)
        kept = wide_x >= before if op == "cummin" else wide_x <= before
        first = _earlier(jnp.zeros(x.shape, bool), axis, reverse, True)
        changes = first | ~(kept | jnp.isnan(before))
        factor, scale = jnp.where(changes, 0, 1).astype(wide_dy.dtype), changes.astype(wide_dy.dtype)
    s = linear_recurrence(_earlier(factor, axis, not reverse, 0), wide_dy, axis, not reverse)
    return ((scale * s if op == "cumprod" else jnp.where(scale > 0, s, 0)).astype(x.dtype),)


_cumulative.defvjp(_cumulative_forward, _cumulative_backward)


def cumsum(x, axis=0, reverse=False, compensated=False):
    """The cumulative sum along `axis`; compensated carries the rounding error along."""
    return _cumulative("cumsum", axis, (bool(reverse), bool(compensated)), x)


def cumprod(x, axis=0, reverse=False):
    """The cumulative product along `axis`."""
    return _cumulative("cumprod", axis, (bool(reverse), False), x)


def cummax(x, axis=0, reverse=False):
    """The running maximum along `axis`. Its gradient goes to the first of equal maxima."""
    return _cumulative("cummax", axis, (bool(reverse), False), x)


def cummin(x, axis=0, reverse=False):
    """The running minimum along `axis`. Its gradient goes to the first of equal minima."""
    return _cumulative("cummin", axis, (bool(reverse), False), x)


def linear_recurrence(a, b, axis=0, reverse=False, initial_state=None):
    """h_t = a_t h_(t-1) + b_t along `axis`, from h = initial_state, of b's shape without `axis`, or 0."""
    tensors = (a, b) if initial_state is None else (a, b, initial_state)
    return _recurrence(axis, bool(reverse), alike(tensors))


def _recurrence_operands(initial):
    return "initial_state" if initial else ""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _recurrence(axis, reverse, tensors):
    a, b, *initial = tensors
    operands = _recurrence_operands(initial)
    return _associative("exphil_linear_recurrence", (a, b, *initial), _like(b), axis, reverse, operands=operands)


def _recurrence_forward(axis, reverse, tensors):
    h = _recurrence(axis, reverse, tensors)
    return h, (tensors, h)


def _recurrence_backward(axis, reverse, saved, dh):
    # JAX's cotangent of a complex value is dL/dRe - i dL/dIm; the library's is its conjugate.
    tensors, h = saved
    wide = tuple(_wide(tensor) for tensor in tensors)
    if wide[0] is not tensors[0]:
        h = _recurrence(axis, reverse, wide)
    a, b, *initial = wide
    arguments, results = (a, *initial, h, jnp.conj(_wide(dh))), [_like(a), _like(b), *map(_like, initial)]
    gradients = _associative(
        "exphil_linear_recurrence_grad", arguments, results, axis, reverse, operands=_recurrence_operands(initial)
    )
    return (tuple(jnp.conj(gradient).astype(tensor.dtype) for gradient, tensor in zip(gradients, tensors)),)


_recurrence.defvjp(_recurrence_forward, _recurrence_backward)


# The fused recurrent operators: the names of their inputs; those with r are dense.
_RECURRENT = {
    "gru_scan": ("wx", "r"),
    "lstm_scan": ("wx", "r"),
    "mingru": ("gates", "candidates"),
    "minlstm": ("forget_gates", "input_gates", "candidates"),
    "elu_gru": ("gates", "candidates"),
    "real_gru": ("gates", "candidates"),
    "diag_linear": ("a", "b"),
    "liquid": ("tau", "activation"),
}


def recurrent_scan(op, *inputs, h0=None, c0=None, activated=False, return_state=False):
    """A fused recurrent operator by its name: h {batch, seq, hidden}, or (h, final_h) with return_state; of lstm_scan
    (h, (final_h, final_c)). Differentiable in its inputs and in h0 and c0, once. docs/reference.md has the operators.
    """
    given = {name: value for name, value in (("h0", h0), ("c0", c0)) if value is not None}
    static = (op, tuple(given), bool(activated), bool(return_state))
    h, *final = _recurrent(static, alike((*inputs, *given.values())))
    if not return_state:
        return h
    return h, final[0] if len(final) == 1 else tuple(final)


def _recurrent_call(static, gradient, tensors, results, operands, names):
    op, _, activated, _ = static
    kind = "dense" if _RECURRENT[op][1] == "r" else "diagonal"
    target = f"exphil_{kind}_recurrence{'_grad' if gradient else ''}"
    attributes = dict(op=op, activated=activated, operands=" ".join(operands), results=" ".join(names))
    # The recurrent weights are the second input of a dense operator, and the second gradient.
    weights = 1 if kind == "dense" else None
    rows = [n != weights for n in range(len(tensors))]
    result_rows = [n != weights or not gradient for n in range(len(results))]
    return call(target, tensors, results, rows, result_rows, attributes)


def _final_names(static):
    op, _, _, return_state = static
    return () if not return_state else ("final_h", "final_c") if op == "lstm_scan" else ("final_h",)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recurrent(static, tensors):
    """(h, the last states that `static` asks for) of the inputs and the states that it names."""
    op, given, _, _ = static
    x = tensors[0]
    gates = {"gru_scan": 3, "lstm_scan": 4}.get(op, 1)
    batch, seq, hidden = x.shape[0], x.shape[1], x.shape[2] // gates
    final = _final_names(static)
    results = [jax.ShapeDtypeStruct((batch, seq, hidden), x.dtype)]
    results += [jax.ShapeDtypeStruct((batch, hidden), x.dtype) for _ in final]
    return _recurrent_call(static, False, tensors, results, given, final)


def _recurrent_forward(static, tensors):
    out = _recurrent(static, tensors)
    return out, (tensors, out[0])


def _recurrent_backward(static, saved, cotangents):
    (tensors, h), (op, given, _, _) = saved, static
    operands = [*given, "dh", *(f"d_{name}" for name in _final_names(static)), "h"]
    names = [*_RECURRENT[op], *given]
    results = [_like(tensor) for tensor in tensors]
    return (_recurrent_call(static, True, (*tensors, *cotangents, h), results, operands, names),)


_recurrent.defvjp(_recurrent_forward, _recurrent_backward)


def state_space_duality(
    x, dt, a, b, c, *, d=None, z=None, dt_bias=None, initial_state=None, dt_softplus=False, dt_range=None, return_state=False,
):  # fmt: skip
    """The operator of Mamba-2: y, or (y, final_state) with return_state. Differentiable in every operand, once.

    x, z {batch, seq, heads, headdim}; dt {batch, seq, heads}; a, dt_bias {heads}; b, c {batch, seq, groups, state}; d {heads} or
    {heads, headdim}; initial_state {batch, heads, headdim, state}. dt_range is (min, max), applied last.
    """
    optional = {"d": d, "z": z, "dt_bias": dt_bias, "initial_state": initial_state}
    given = {name: value for name, value in optional.items() if value is not None}
    options = {"dt_softplus": bool(dt_softplus)}
    if dt_range is not None:
        options["dt_min"], options["dt_max"] = float(dt_range[0]), float(dt_range[1])
    static = (tuple(given), tuple(options.items()), bool(return_state))
    out = _duality(static, alike((x, dt, a, b, c, *given.values())))
    return out if return_state else out[0]


def _duality_rows(given):
    return [True, True, False, True, True, *(name in ("z", "initial_state") for name in given)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _duality(static, tensors):
    """(y,), or (y, final_state), of the tensors x, dt, a, b, c and those that `static` names."""
    given, options, return_state = static
    x, b = tensors[0], tensors[3]
    results = [_like(x)]
    if return_state:
        results.append(jax.ShapeDtypeStruct((x.shape[0], *x.shape[2:], b.shape[-1]), jnp.float32))
    attributes = _attributes(options, given, ["final_state"] if return_state else [])
    return call("exphil_state_space_duality", tensors, results, _duality_rows(given), [True] * len(results), attributes)


def _duality_forward(static, tensors):
    return _duality(static, tensors), tensors


def _duality_backward(static, tensors, cotangents):
    given, options, return_state = static
    operands = [*given, "dy", *(["d_final_state"] if return_state else [])]
    attributes = _attributes(options, operands, [*_MAIN, *given])
    rows = _duality_rows(given)
    results, arguments = [_like(tensor) for tensor in tensors], (*tensors, *cotangents)
    return (call("exphil_state_space_duality_grad", arguments, results, rows + [True] * len(cotangents), rows, attributes),)


_duality.defvjp(_duality_forward, _duality_backward)
