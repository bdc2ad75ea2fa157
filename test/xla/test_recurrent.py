"""The fused recurrent operators under real XLA, against plain JAX programs in float64 and jax.grad of them.

    python -m unittest discover -s test/xla -v
"""

import unittest

import support
from support import exphil, relative_error

import jax
import jax.numpy as jnp
import numpy as np

OPERATORS = exphil._RECURRENT
GATES = {"gru_scan": 3, "lstm_scan": 4}


def plain_step(op, state, x, r, activated):
    """The states after one step; x: the inputs of the step."""
    h = state[0]
    gate = (lambda v: v) if activated else jax.nn.sigmoid
    if op == "gru_scan":
        (x_r, x_z, x_n), (h_r, h_z, h_n) = jnp.split(x[0], 3, -1), jnp.split(h @ r, 3, -1)
        reset, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
        return ((1 - z) * jnp.tanh(x_n + reset * h_n) + z * h,)
    if op == "lstm_scan":
        i, f, g, o = jnp.split(x[0] + h @ r, 4, -1)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c
    if op == "minlstm":
        f, i = gate(x[0]), gate(x[1])
        return ((f * h + i * x[2]) / (f + i + 1e-6),)
    if op == "diag_linear":
        return (gate(x[0]) * h + x[1],)
    if op == "liquid":
        return (x[1] + (h - x[1]) * jnp.exp(-1 / x[0]),)
    v = jax.nn.elu(x[1]) + 1 if op == "elu_gru" and not activated else x[1]
    z = gate(x[0])
    return ((1 - z) * h + z * v,)


def plain(op, *inputs, h0=None, c0=None, activated=False, return_state=False):
    r = inputs[1] if op in GATES else None
    steps = inputs[:1] if op in GATES else inputs
    hidden = steps[0].shape[2] // GATES.get(op, 1)
    zeros = jnp.zeros((steps[0].shape[0], hidden), steps[0].dtype)
    state = (zeros if h0 is None else h0,)
    if op == "lstm_scan":
        state += (zeros if c0 is None else c0,)

    def step(state, x):
        state = plain_step(op, state, x, r, activated)
        return state, state[0]

    state, h = jax.lax.scan(step, state, tuple(jnp.moveaxis(t, 1, 0) for t in steps))
    h = jnp.moveaxis(h, 0, 1)
    return (h, state[0] if len(state) == 1 else state) if return_state else h


def tensors(op, batch, seq, hidden, activated=False, key=1):
    """Random inputs and states of an operator, float32."""
    rng = np.random.default_rng(key)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    if op in GATES:
        inputs = [normal(batch, seq, GATES[op] * hidden), 0.3 * normal(hidden, GATES[op] * hidden)]
    else:
        inputs = [normal(batch, seq, hidden) for _ in OPERATORS[op]]
        if op == "liquid":
            inputs[0] = np.exp(0.5 * inputs[0])
        if activated:
            inputs[:-1] = [1 / (1 + np.exp(-gate)) for gate in inputs[:-1]]
    states = {"h0": normal(batch, hidden)} | ({"c0": normal(batch, hidden)} if op == "lstm_scan" else {})
    return inputs, states


def kinds():
    for op in OPERATORS:
        yield op, False
        if op not in GATES and op != "liquid":
            yield op, True


def wide(tree):
    return jax.tree.map(lambda v: v.astype(np.float64), tree)


class Recurrent(unittest.TestCase):
    def test_operators_and_shapes(self):
        for op, activated in kinds():
            for batch, seq, hidden in [(1, 1, 1), (2, 7, 5), (3, 61, 33)]:
                with self.subTest((op, activated, batch, seq, hidden)):
                    inputs, states = tensors(op, batch, seq, hidden, activated)
                    run = lambda module, i, s, op=op, activated=activated: module(  # noqa: E731
                        op, *i, **s, activated=activated, return_state=True
                    )
                    with jax.enable_x64(True):
                        expected = jax.jit(lambda i, s, run=run: run(plain, i, s))(wide(inputs), wide(states))
                        expected = jax.tree.map(np.asarray, expected)
                    out = jax.jit(lambda i, s, run=run: run(exphil.recurrent_scan, i, s))(inputs, states)
                    self.assertEqual(jax.tree.structure(out), jax.tree.structure(expected))
                    for one, want in zip(jax.tree.leaves(out), jax.tree.leaves(expected)):
                        self.assertLessEqual(relative_error(one, want), 1e-5)

    def test_gradients(self):
        rng = np.random.default_rng(3)
        for op, activated in kinds():
            for return_state in (False, True):
                with self.subTest((op, activated, return_state)):
                    inputs, states = tensors(op, 3, 20, 17, activated)
                    weights = [rng.standard_normal(s).astype(np.float32) for s in ((3, 20, 17), (3, 17), (3, 17))]

                    def loss(module, i, s, weights, op=op, activated=activated, return_state=return_state):
                        out = module(op, *i, **s, activated=activated, return_state=return_state)
                        return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(out), weights))

                    with jax.enable_x64(True):
                        expected = jax.jit(jax.grad(lambda i, s: loss(plain, i, s, wide(weights)), (0, 1)))(
                            wide(inputs), wide(states)
                        )
                        expected = jax.tree.map(np.asarray, expected)
                    out = jax.jit(jax.grad(lambda i, s: loss(exphil.recurrent_scan, i, s, weights), (0, 1)))(
                        inputs, states
                    )
                    for one, want in zip(jax.tree.leaves(out), jax.tree.leaves(expected)):
                        self.assertLessEqual(relative_error(one, want), 2e-5)

    def test_halves(self):
        for dtype, limit in ((jnp.float16, 2e-3), (jnp.bfloat16, 1.5e-2)):
            for op in OPERATORS:
                inputs, states = jax.tree.map(lambda t: jnp.asarray(t, dtype), tensors(op, 2, 9, 16))
                out = exphil.recurrent_scan(op, *inputs, **states)
                expected = plain(op, *(jnp.asarray(t, jnp.float32) for t in inputs), h0=states["h0"].astype(jnp.float32),
                                 **({"c0": states["c0"].astype(jnp.float32)} if "c0" in states else {}))  # fmt: skip
                self.assertEqual(out.dtype, dtype)
                self.assertLessEqual(relative_error(np.asarray(out, np.float32), np.asarray(expected)), limit)
                gradient = jax.grad(lambda x, i=inputs, op=op: exphil.recurrent_scan(op, x, *i[1:]).sum())(inputs[0])
                self.assertEqual(gradient.dtype, dtype)

    def test_transformations(self):
        inputs, states = tensors("gru_scan", 2, 9, 8)
        scan = lambda wx, r: exphil.recurrent_scan("gru_scan", wx, r)  # noqa: E731
        h = scan(*inputs)
        np.testing.assert_array_equal(jax.jit(scan)(*inputs), h)
        stacked = jnp.stack([inputs[0], 0.5 * inputs[0]])
        mapped = jax.vmap(scan, (0, None))(stacked, inputs[1])
        np.testing.assert_array_equal(mapped[1], scan(0.5 * inputs[0], inputs[1]))
        # A sequence in two chunks.
        first, middle = exphil.recurrent_scan("gru_scan", inputs[0][:, :4], inputs[1], return_state=True)
        second = exphil.recurrent_scan("gru_scan", inputs[0][:, 4:], inputs[1], h0=middle)
        np.testing.assert_array_equal(jnp.concatenate([first, second], 1), h)

    def test_bad_calls_are_errors_that_name_the_argument(self):
        (wx, r), states = tensors("gru_scan", 2, 9, 8)
        x = wx[..., :8]

        def refused(words, op, *inputs, **options):
            with self.assertRaises(Exception) as caught:
                jax.block_until_ready(exphil.recurrent_scan(op, *inputs, **options))
            for word in words:
                self.assertIn(word, str(caught.exception))

        refused(["r must be {hidden, 3 hidden}"], "gru_scan", wx, r[:, :-1])
        refused(["h0 must be {batch, hidden}"], "gru_scan", wx, r, h0=wx[0])
        refused(["operands", "c0"], "gru_scan", wx, r, c0=states["h0"])
        refused([":activated is not for gru_scan"], "gru_scan", wx, r, activated=True)
        refused(["candidates must be f32 like gates"], "mingru", x, x.astype(np.float16))
        self.assertEqual(exphil.recurrent_scan("gru_scan", wx, r).shape, (2, 9, 8))

    def test_calls_that_the_module_does_not_make(self):
        (wx, r), _ = tensors("gru_scan", 2, 9, 8)
        x = wx[..., :8]
        like = lambda t: jax.ShapeDtypeStruct(t.shape, t.dtype)  # noqa: E731
        dense, diagonal = "exphil_dense_recurrence", "exphil_diagonal_recurrence"
        calls = [
            (dense, [like(x)], (wx, r), {}, "op must be one of :gru_scan"),
            (dense, [like(x)], (x, x), {"op": "mingru"}, "mingru is an operator of exphil_diagonal_recurrence"),
            (diagonal, [like(x)], (x, x, x), {"op": "mingru"}, "the call has 3 arguments"),
            (diagonal, [like(x)], (x, x), {"op": "mingru", "results": "final_c"}, "results must list"),
            (diagonal, [like(x)], (x, x), {"op": "mingru", "reverse": True}, "unknown attribute reverse"),
            (diagonal + "_grad", [like(x)], (x, x), {"op": "mingru", "results": "gates"}, "operands must list dh"),
            (
                diagonal + "_grad", [like(x)], (x, x, x),
                {"op": "mingru", "operands": "dh", "results": "h0"}, "has no result h0",
            ),
        ]  # fmt: skip
        for target, results, arguments, attributes, message in calls:
            with self.subTest(message), self.assertRaises(Exception) as caught:
                jax.block_until_ready(jax.ffi.ffi_call(target, results)(*arguments, **attributes))
            self.assertIn(message, str(caught.exception))


class EdificesConventions(unittest.TestCase):
    """The calls that lib/ex_phil/native/edifice.ex makes, with Edifice's order of arguments."""

    def gradient(self, op, activated, inputs, states, results, shapes):
        h = exphil.recurrent_scan(op, *inputs, **states, activated=activated)
        dh = np.cos(np.asarray(h))
        kind = "dense" if op in GATES else "diagonal"
        call = jax.ffi.ffi_call(f"exphil_{kind}_recurrence_grad", [jax.ShapeDtypeStruct(s, np.float32) for s in shapes])
        return dh, call(*inputs, *states.values(), h, dh, op=op, activated=activated, results=results,
                        operands=" ".join([*states, "h", "dh"]))  # fmt: skip

    def test_the_recurrent_weights_gradient_is_that_of_the_products(self):
        for op, results in (("gru_scan", "wx rh h0"), ("lstm_scan", "wx h0 c0")):
            inputs, states = tensors(op, 2, 9, 8)
            wide_shape = inputs[0].shape
            state = states["h0"].shape
            shapes = [wide_shape, wide_shape, state] if op == "gru_scan" else [wide_shape, state, state]
            dh, out = self.gradient(op, False, inputs, states, results, shapes)
            h = exphil.recurrent_scan(op, *inputs, **states)
            before = jnp.concatenate([states["h0"][:, None], h[:, :-1]], 1)
            d_rh = out[1] if op == "gru_scan" else out[0]
            d_r = jnp.einsum("bth,btg->hg", before, d_rh)
            loss = lambda wx, r, op=op, s=states, dh=dh: jnp.sum(exphil.recurrent_scan(op, wx, r, **s) * dh)  # noqa: E731
            d_wx, expected = jax.grad(loss, (0, 1))(*inputs)
            np.testing.assert_array_equal(out[0], d_wx)
            self.assertLessEqual(relative_error(d_r, expected), 1e-5)

    def test_gates_after_their_activations(self):
        for op in ("mingru", "minlstm", "elu_gru", "real_gru"):
            inputs, states = tensors(op, 2, 9, 8)
            active = [jax.nn.sigmoid(gate) for gate in inputs[:-1]]
            active.append(jax.nn.elu(inputs[-1]) + 1 if op == "elu_gru" else jnp.asarray(inputs[-1]))
            names = " ".join([*OPERATORS[op], "h0"])
            shapes = [x.shape for x in inputs] + [states["h0"].shape]
            dh, out = self.gradient(op, True, active, states, names, shapes)
            loss = lambda *i, op=op, s=states, dh=dh: jnp.sum(exphil.recurrent_scan(op, *i, **s) * dh)  # noqa: E731
            expected = jax.grad(loss, tuple(range(len(inputs))))(*inputs)
            for i, gate in enumerate(active[:-1]):
                self.assertLessEqual(relative_error(out[i] * gate * (1 - gate), expected[i]), 1e-5)


if __name__ == "__main__":
    unittest.main()
