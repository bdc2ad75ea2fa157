"""The gradients of the scans under real XLA, against the float64 goldens and jax.grad of plain JAX programs in float64.

    python -m unittest discover -s test/xla -v
"""

import unittest

import support
from support import exphil, plain_scan, problem, relative_error

import jax
import jax.numpy as jnp
import numpy as np

NAMES = ("x", "dt", "a", "b", "c", "d", "z", "dt_bias", "initial_state")


def gradients(scan, main, extra, dy, d_final):
    """The gradients of sum(dy y) + sum(d_final h_T) of real tensors, by name."""

    def loss(main, extra):
        y, final = scan(*main, **extra)
        return jnp.sum(y * dy) + jnp.sum(final * d_final)

    of_main, of_extra = jax.grad(loss, argnums=(0, 1))(main, extra)
    return dict(zip(NAMES[:5], of_main)) | of_extra


class SelectiveScanGradient(unittest.TestCase):
    @unittest.skipIf(support.SHARED is None, "the shared data is not there")
    def test_goldens(self):
        compared = 0
        for name, t, metadata in support.goldens():
            if "grad_x" not in t:
                continue
            given = {k: t[k] for k in NAMES[5:] if k in t}
            main = [t[k] for k in NAMES[:5]]
            with self.subTest(name):
                options = {"discretization": metadata["discretization"], "return_state": True,
                           "dt_softplus": metadata["dt_softplus"] == "true",
                           "reverse": metadata["reverse"] == "true"}  # fmt: skip

                def run(main, given, options=options):
                    return exphil.selective_scan(*main, **given, **options)

                @jax.jit
                def pull(main, given, cotangents, run=run):
                    return jax.vjp(run, main, given)[1](cotangents)

                d_final = t.get("d_final_state", np.zeros(t["final_state"].shape, t["final_state"].dtype))
                cotangents = (t["dy"], np.conj(d_final).astype(jax.eval_shape(run, main, given)[1].dtype))
                of_main, of_given = pull(main, given, cotangents)
                for key, out in (dict(zip(NAMES[:5], of_main)) | of_given).items():
                    # JAX's cotangent of a complex tensor is the conjugate of the goldens' gradient.
                    self.assertLessEqual(relative_error(np.conj(out), t["grad_" + key]), 2e-5, key)
                    compared += 1
        self.assertGreaterEqual(compared, 100)

    def test_plain_scan_of_many_shapes(self):
        rng = np.random.default_rng(11)
        for key, (batch, seq, dim, state) in enumerate(
            [(1, 1, 1, 1), (2, 7, 5, 3), (3, 60, 33, 16), (1, 257, 20, 8), (2, 64, 64, 128)]
        ):
            with self.subTest((batch, seq, dim, state)):
                main, extra = problem(20 + key, batch, seq, dim, state)
                dy = rng.standard_normal(main[0].shape).astype(np.float32)
                d_final = rng.standard_normal((batch, dim, state)).astype(np.float32)
                wide = lambda tree: jax.tree.map(lambda v: v.astype(np.float64), tree)  # noqa: E731
                with jax.enable_x64(True):
                    plain = lambda *m, **e: plain_scan(*m, **e, dt_softplus=True)  # noqa: E731
                    expected = jax.jit(lambda *given: gradients(plain, *given))(*map(wide, (main, extra, dy, d_final)))
                    expected = {name: np.asarray(value) for name, value in expected.items()}
                native = lambda *m, **e: exphil.selective_scan(*m, **e, dt_softplus=True, return_state=True)  # noqa: E731
                out = gradients(native, main, extra, dy, d_final)
                self.assertEqual(set(out), set(NAMES))
                for name in NAMES:
                    self.assertEqual(out[name].dtype, np.float32)
                    self.assertLessEqual(relative_error(out[name], expected[name]), 2e-5, name)

    def test_halves(self):
        for dtype, limit in ((jnp.float16, 4e-3), (jnp.bfloat16, 3e-2)):
            main, _ = problem(30, 2, 60, 16, 8, dtype)
            loss = lambda scan: lambda *m: jnp.sum(jnp.sin(scan(*m).astype(jnp.float32)))  # noqa: E731
            everything = tuple(range(5))
            out = jax.grad(loss(exphil.selective_scan), everything)(*main)
            wide = [jnp.asarray(t, jnp.float32) for t in main]
            expected = jax.grad(loss(lambda *m: plain_scan(*m)[0]), everything)(*wide)
            for tensor, got, want in zip(main, out, expected):
                self.assertEqual(got.dtype, tensor.dtype)
                self.assertLessEqual(relative_error(np.asarray(got, np.float32), np.asarray(want)), limit)

    def test_transformations(self):
        main, _ = problem(31, 2, 30, 8, 4)
        grad = jax.grad(lambda *m: jnp.sum(exphil.selective_scan(*m) ** 2), (0, 1, 2, 3, 4))
        plainly = grad(*main)
        for got, want in zip(jax.jit(grad)(*main), plainly):
            np.testing.assert_array_equal(got, want)
        mapped = jax.vmap(grad)(*[jnp.stack([t, 0.5 * t]) for t in main])
        for got, want in zip(mapped, plainly):
            np.testing.assert_array_equal(got[0], want)

        def descend(x, _):
            return x - 1e-3 * grad(x, *main[1:])[0], None

        twice, _ = jax.lax.scan(descend, main[0], None, length=2)
        once = descend(main[0], None)[0]
        self.assertLessEqual(relative_error(twice, np.asarray(descend(once, None)[0])), 1e-6)

    def test_dy_may_come_last(self):
        (x, dt, a, b, c), _ = problem(33, 2, 9, 3, 2)
        dy = np.cos(x)
        call = jax.ffi.ffi_call("exphil_selective_scan_grad", [jax.ShapeDtypeStruct(x.shape, x.dtype)])
        first = call(dy, x, dt, a, b, c, results="x")
        np.testing.assert_array_equal(call(x, dt, a, b, c, dy, results="x", dy=np.int64(5))[0], first[0])

    def test_bad_calls_are_errors_that_name_the_argument(self):
        (x, dt, a, b, c), _ = problem(32, 1, 4, 3, 2)
        like = lambda t: jax.ShapeDtypeStruct(t.shape, t.dtype)  # noqa: E731
        calls = [
            ([like(x)], (x, x, dt, a, b, c), {"results": "y"}, "results must list x, dt"),
            ([like(x)], (x, x, dt, a, b, c), {"results": "d"}, "no operand d"),
            ([like(x)], (x, x, dt, a, b, c), {"results": "x dt"}, "the call has 1 results"),
            ([like(x)], (x, x, dt, a, b, c), {"results": "x x"}, "at most once"),
            ([like(a)], (x, x, dt, a, b, c), {"results": "x"}, "the result x must be"),
            ([like(x)], (x[:, :2], x, dt, a, b, c), {"results": "x"}, "dy must be"),
            ([like(x)], (x, x, dt, a, b, c), {"results": "x", "direction": "both"}, "one direction"),
            ([like(x)], (x, x, dt, a, b, c, x), {"results": "x", "operands": "states"}, "states must be"),
            ([like(x)], (x, x, dt, a, b, c), {"results": "x", "dy": np.int64(3)}, "dy must be 0 (first) or 5"),
        ]
        for results, arguments, attributes, words in calls:
            with self.subTest(words), self.assertRaises(Exception) as caught:
                call = jax.ffi.ffi_call("exphil_selective_scan_grad", results)
                jax.block_until_ready(call(*arguments, **attributes))
            self.assertIn(words, str(caught.exception))


class AssociativeGradients(unittest.TestCase):
    def compared(self, native, plain, *arguments):
        """The vjp of `native` against that of `plain` in float64."""
        dy = np.random.default_rng(41).standard_normal(arguments[0].shape).astype(np.float32)
        out = jax.jit(lambda *args: jax.vjp(native, *args)[1](jnp.asarray(dy, arguments[0].dtype)))(*arguments)
        with jax.enable_x64(True):
            wide = [np.asarray(v, np.complex128 if np.iscomplexobj(v) else np.float64) for v in arguments]
            expected = jax.jit(lambda *args: jax.vjp(plain, *args)[1](jnp.asarray(dy, wide[0].dtype)))(*wide)
            expected = [np.asarray(v) for v in expected]
        for got, want in zip(out, expected):
            self.assertLessEqual(relative_error(got, want), 2e-6)

    def test_cumulative(self):
        x = np.random.default_rng(42).uniform(-1.5, 1.5, (3, 40, 5)).astype(np.float32)
        x[1, 7, 2] = x[2, 3, 0] = x[2, 9, 0] = 0.0
        plain = {"cumsum": jnp.cumsum, "cumprod": plain_cumprod,
                 "cummax": jax.lax.cummax, "cummin": jax.lax.cummin}  # fmt: skip
        for name, expected in plain.items():
            for axis in (0, 1, 2):
                with self.subTest((name, axis)):
                    native = getattr(exphil, name)
                    self.compared(lambda v: native(v, axis=axis), lambda v: expected(v, axis=axis), x)
                    self.compared(
                        lambda v: native(v, axis=axis, reverse=True),
                        lambda v: jnp.flip(expected(jnp.flip(v, axis), axis=axis), axis), x,
                    )  # fmt: skip

    def test_ties_and_nan(self):
        x = np.array([1.0, 3.0, 3.0, 2.0, np.nan, 5.0, np.nan], np.float32)
        dy = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], np.float32)
        dx = jax.vjp(exphil.cummax, x)[1](dy)[0]
        np.testing.assert_array_equal(dx, [1, 14, 0, 0, 112, 0, 0])

    def test_linear_recurrence(self):
        rng = np.random.default_rng(43)
        a = rng.uniform(0.2, 0.99, (2, 100, 6)).astype(np.float32)
        b = rng.standard_normal(a.shape).astype(np.float32)
        for reverse in (False, True):
            native = lambda u, v: exphil.linear_recurrence(u, v, 1, reverse)  # noqa: E731
            self.compared(native, lambda u, v: plain_recurrence(u, v, reverse), a, b)
            self.compared(native, lambda u, v: plain_recurrence(u, v, reverse), a * (1 + 0.1j), b * (1 - 0.5j))

    def test_initial_state(self):
        rng = np.random.default_rng(44)
        a = rng.uniform(0.2, 0.99, (2, 100, 6)).astype(np.float32)
        b, start = rng.standard_normal(a.shape).astype(np.float32), rng.standard_normal((2, 6)).astype(np.float32)
        for reverse in (False, True):
            native = lambda u, v, h: exphil.linear_recurrence(u, v, 1, reverse, h)  # noqa: E731
            plain = lambda u, v, h: plain_recurrence(u, v, reverse, h)  # noqa: E731
            self.compared(native, plain, a, b, start)
            self.compared(native, plain, a * (1 + 0.1j), b * (1 - 0.5j), start * (2 + 1j))

    def test_halves_of_the_recurrence(self):
        rng = np.random.default_rng(45)
        tensors = [rng.uniform(0.2, 0.99, (2, 50, 6)), rng.standard_normal((2, 50, 6)), rng.standard_normal((2, 6))]
        loss = lambda a, b, h: jnp.sum(jnp.sin(exphil.linear_recurrence(a, b, 1, False, h).astype(jnp.float32)))  # noqa: E731
        for dtype, limit in ((jnp.float16, 4e-3), (jnp.bfloat16, 3e-2)):
            half = [jnp.asarray(t, dtype) for t in tensors]
            expected = jax.grad(loss, (0, 1, 2))(*(t.astype(jnp.float32) for t in half))
            for got, want in zip(jax.grad(loss, (0, 1, 2))(*half), expected):
                self.assertEqual(got.dtype, dtype)
                self.assertLessEqual(relative_error(np.asarray(got, np.float32), np.asarray(want)), limit)

    def recurrence_grad(self, a, h, dh, *initial, dtypes=None, **attributes):
        results = [jax.ShapeDtypeStruct(t.shape, d) for t, d in zip((a, a, *initial), dtypes or [a.dtype] * 3)]
        operands = {"operands": "initial_state"} if initial else {}
        call = jax.ffi.ffi_call("exphil_linear_recurrence_grad", results)
        return call(a, *initial, h, dh, axis=np.int64(1), **operands, **attributes)

    def test_from_given_results_in_every_type(self):
        """As Edifice calls it: a, h0, the results, their gradient; all in one type."""
        rng = np.random.default_rng(46)
        for dtype, limit in ((jnp.float32, 2e-6), (jnp.float16, 2e-3), (jnp.bfloat16, 1.5e-2), (jnp.complex64, 2e-6)):
            a = jnp.asarray(rng.uniform(0.2, 0.99, (2, 33, 5)), dtype)
            h, dh = (jnp.asarray(rng.standard_normal(a.shape), dtype) for _ in range(2))
            start = jnp.asarray(rng.standard_normal((2, 5)), dtype)
            if dtype == jnp.complex64:
                a, h, start = a * np.exp(0.3j), h * (1 - 1j), start * 2j
            wide = [np.asarray(t, np.complex128) for t in (a, h, dh, start)]
            g, da, db = np.zeros((2, 5), complex), np.zeros(a.shape, complex), np.zeros(a.shape, complex)
            for t in reversed(range(33)):
                db[:, t] = g = wide[2][:, t] + g
                da[:, t] = g * np.conj(wide[1][:, t - 1] if t > 0 else wide[3])
                g = g * np.conj(wide[0][:, t])
            for got, want in zip(self.recurrence_grad(a, h, dh, start), (da, db, g)):
                self.assertEqual(got.dtype, dtype)
                self.assertLessEqual(relative_error(np.asarray(got, np.complex64), want), limit)
            da[:, 0] = 0
            for got, want in zip(self.recurrence_grad(a, h, dh), (da, db)):
                self.assertLessEqual(relative_error(np.asarray(got, np.complex64), want), limit)

    def test_no_steps(self):
        empty, start = jnp.zeros((2, 0, 5)), jnp.ones((2, 5))
        np.testing.assert_array_equal(self.recurrence_grad(empty, empty, empty, start)[2], np.zeros((2, 5)))

    def test_bad_calls_of_the_recurrence(self):
        a = jnp.ones((2, 4, 3))
        start = jnp.ones((2, 3))
        cases = [
            ("h must be f32 {2, 4, 3} like a", lambda: self.recurrence_grad(a, a[:, :2], a)),
            ("dh must be f32 {2, 4, 3} like a", lambda: self.recurrence_grad(a, a, a.astype(jnp.float16))),
            ("initial_state must be f32 {2, 3}", lambda: self.recurrence_grad(a, a, a, start[:1])),
            ("the result da must be f32", lambda: self.recurrence_grad(a, a, a, dtypes=[jnp.float16] * 2)),
            ("one direction", lambda: self.recurrence_grad(a, a, a, direction="both")),
            ("unknown attribute op", lambda: self.recurrence_grad(a, a, a, op="cumsum")),
            ("initial_state must be f32 {2, 3}", lambda: exphil.linear_recurrence(a, a, 1, False, start[0])),
        ]
        for words, call in cases:
            with self.subTest(words), self.assertRaises(Exception) as caught:
                jax.block_until_ready(call())
            self.assertIn(words, str(caught.exception))

    def test_empty(self):
        self.assertEqual(jax.grad(lambda x: exphil.cumsum(x, axis=1).sum())(jnp.zeros((0, 3))).shape, (0, 3))


def plain_cumprod(x, axis):
    """Products step by step: jnp.cumprod's own derivative divides, and is NaN where an element is 0."""
    first = jnp.moveaxis(x, axis, 0)
    _, y = jax.lax.scan(lambda h, v: (h * v, h * v), jnp.ones(first.shape[1:], x.dtype), first)
    return jnp.moveaxis(y, 0, axis)


def plain_recurrence(a, b, reverse, start=None):
    def step(h, ab):
        h = ab[0] * h + ab[1]
        return h, h

    _, h = jax.lax.scan(step, jnp.zeros_like(b[:, 0]) if start is None else start, (jnp.moveaxis(a, 1, 0), jnp.moveaxis(b, 1, 0)), reverse=reverse)
    return jnp.moveaxis(h, 0, 1)


if __name__ == "__main__":
    unittest.main()
