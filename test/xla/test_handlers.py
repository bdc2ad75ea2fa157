"""The XLA handlers under real XLA: on the CPU in CI, on a GPU where JAX has one (JAX chooses).

    python -m unittest discover -s test/xla -v
"""

import unittest

import support
from support import exphil, plain_scan, problem, relative_error

import jax
import jax.numpy as jnp
import numpy as np


class SelectiveScan(unittest.TestCase):
    @unittest.skipIf(support.SHARED is None, "the shared data is not there")
    def test_goldens(self):
        cases = support.goldens()
        self.assertGreaterEqual(len(cases), 30)
        for name, t, metadata in cases:
            with self.subTest(name):
                given = {k: t[k] for k in ("d", "z", "dt_bias", "initial_state") if k in t}
                y, final = jax.jit(
                    lambda x, dt, a, b, c, g, m=metadata: exphil.selective_scan(
                        x, dt, a, b, c, **g, discretization=m["discretization"], return_state=True,
                        dt_softplus=m["dt_softplus"] == "true", reverse=m["reverse"] == "true",
                    )
                )(t["x"], t["dt"], t["a"], t["b"], t["c"], given)  # fmt: skip
                self.assertLessEqual(relative_error(y, t["y"]), 1e-5)
                self.assertLessEqual(relative_error(final, t["final_state"]), 1e-5)

    def test_plain_scan_of_many_shapes(self):
        for key, (batch, seq, dim, state) in enumerate(
            [(1, 1, 1, 1), (2, 7, 5, 3), (3, 60, 33, 16), (1, 257, 20, 8), (2, 64, 64, 128), (2, 0, 4, 2)]
        ):
            with self.subTest((batch, seq, dim, state)):
                main, extra = problem(key, batch, seq, dim, state)
                wide = lambda tree: jax.tree.map(lambda v: v.astype(np.float64), tree)  # noqa: E731
                with jax.enable_x64(True):
                    plain = jax.jit(lambda m, e: plain_scan(*m, **e, dt_softplus=True))
                    y, final = plain(wide(main), wide(extra))
                    y, final = np.asarray(y), np.asarray(final)
                out, state_out = exphil.selective_scan(*main, **extra, dt_softplus=True, return_state=True)
                self.assertLessEqual(relative_error(out, y), 1e-5)
                self.assertLessEqual(relative_error(state_out, final), 1e-5)

    def test_halves(self):
        for dtype, limit in ((jnp.float16, 2e-3), (jnp.bfloat16, 1.5e-2)):
            main, extra = problem(5, 2, 60, 16, 8, dtype)
            expected, _ = plain_scan(*(jnp.asarray(t, jnp.float32) for t in main))
            out = exphil.selective_scan(*main)
            self.assertEqual(out.dtype, dtype)
            self.assertLessEqual(relative_error(np.asarray(out, np.float32), np.asarray(expected)), limit)

    def test_transformations(self):
        main, _ = problem(6, 2, 30, 8, 4)
        y = exphil.selective_scan(*main)
        np.testing.assert_array_equal(jax.jit(exphil.selective_scan)(*main), y)

        stacked = [jnp.stack([t, 0.5 * t]) for t in main]
        mapped = jax.vmap(exphil.selective_scan)(*stacked)
        np.testing.assert_array_equal(mapped[0], y)
        np.testing.assert_array_equal(mapped[1], exphil.selective_scan(*(t[1] for t in stacked)))

        def again(x, _):
            return exphil.selective_scan(x, *main[1:]), x.sum()

        twice, _ = jax.lax.scan(again, main[0], None, length=2)
        np.testing.assert_array_equal(twice, exphil.selective_scan(y, *main[1:]))

        donated = jax.jit(exphil.selective_scan, donate_argnums=0)(jnp.array(main[0]), *main[1:])
        np.testing.assert_array_equal(donated, y)

    def test_reverse_and_range(self):
        main, _ = problem(7, 2, 41, 6, 4)
        flipped = [np.flip(t, 1) if t.ndim == 3 else t for t in main]
        y = exphil.selective_scan(*main, reverse=True)
        np.testing.assert_allclose(np.flip(y, 1), exphil.selective_scan(*flipped), rtol=1e-6, atol=1e-6)
        clipped = [main[0], np.clip(main[1], 0.05, 0.1), *main[2:]]
        ranged = exphil.selective_scan(*main, dt_range=(0.05, 0.1))
        np.testing.assert_array_equal(ranged, exphil.selective_scan(*clipped))

    def refused(self, words, *arguments, **options):
        with self.assertRaises(Exception) as caught:
            jax.block_until_ready(exphil.selective_scan(*arguments, **options))
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_bad_calls_are_errors_that_name_the_argument(self):
        (x, dt, a, b, c), extra = problem(8, 2, 9, 6, 4)
        self.refused(["dt must be {batch, seq, dim}"], x, dt[:, :-1], a, b, c)
        self.refused(["dt must be f32 like x"], x, dt.astype(np.float16), a, b, c)
        self.refused(["b must be"], x, dt, a, b[..., :-1], c)
        self.refused(["a must be"], x, dt, a[:-1], b, c)
        self.refused(["d must be {dim}"], x, dt, a, b, c, d=extra["d"][:-1])
        self.refused(["discretization", "zoh", "rk4"], x, dt, a, b, c, discretization="euler")
        self.refused(["dt_range"], x, dt, a, b, c, dt_range=(2.0, 1.0))
        # The process continues: a valid call works afterwards.
        self.assertEqual(exphil.selective_scan(x, dt, a, b, c).shape, x.shape)

    def test_calls_that_the_module_does_not_make(self):
        (x, dt, a, b, c), _ = problem(9, 1, 4, 3, 2)
        like = lambda t: jax.ShapeDtypeStruct(t.shape, t.dtype)  # noqa: E731
        calls = [
            ("exphil_selective_scan", [like(x)], (x, dt, a, b), {}, "no argument 4 for c"),
            ("exphil_selective_scan", [like(x)], (x, dt, a, b, c, x), {}, "operands"),
            ("exphil_selective_scan", [like(x)], (x, dt, a, b, c, x), {"operands": "w"}, "operands must list"),
            ("exphil_selective_scan", [like(x), like(x)], (x, dt, a, b, c), {}, "results"),
            ("exphil_selective_scan", [like(dt[:, :1])], (x, dt, a, b, c), {}, "the result y must be"),
            ("exphil_selective_scan", [like(x)], (x, dt, a, b, c), {"softplus": True}, "unknown attribute softplus"),
            ("exphil_selective_scan", [like(x)], (x, dt, a, b, c), {"direction": "both"}, "y_reverse"),
            ("exphil_scan_cumulative", [like(x)], (x,), {"op": "cumsun"}, "cumsun"),
            ("exphil_scan_cumulative", [like(x)], (x,), {"axis": np.int64(3)}, "axis"),
            ("exphil_linear_recurrence", [like(x)], (x, dt[:, :-1]), {}, "must have the shape of b"),
        ]
        for target, results, arguments, attributes, words in calls:
            with self.subTest(words), self.assertRaises(Exception) as caught:
                jax.block_until_ready(jax.ffi.ffi_call(target, results)(*arguments, **attributes))
            self.assertIn(words, str(caught.exception))


class Types(unittest.TestCase):
    def refused(self, words, target, outs, *arguments, **attributes):
        with self.subTest((target, words)), self.assertRaises(Exception) as caught:
            jax.block_until_ready(jax.ffi.ffi_call(target, outs)(*arguments, **attributes))
        self.assertIn(words, str(caught.exception))

    def test_types_that_a_handler_does_not_take(self):
        (x, _, a, b, c), _ = problem(10, 1, 4, 3, 2)
        for dtype, words in ((np.int8, "no operator supports"), (np.bool_, "no operator supports"), (np.int32, "got s32")):
            t = x.astype(dtype)
            like = jax.ShapeDtypeStruct(t.shape, t.dtype)
            self.refused(words, "exphil_selective_scan", [like], t, t, a, b, c)
            self.refused(words, "exphil_selective_scan_grad", [like], t, t, t, a, b, c, results="x")
            self.refused(words, "exphil_scan_cumulative", [like], t, op="cumprod")
            self.refused(words, "exphil_linear_recurrence", [like], t, t)
            self.refused(words, "exphil_linear_recurrence_grad", [like, like], t, t, t)

    def test_types_of_attributes(self):
        (x, dt, a, b, c), _ = problem(11, 1, 4, 3, 2)
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        scan = ("exphil_selective_scan", [like], x, dt, a, b, c)
        self.refused("discretization must be a string", *scan, discretization=np.int32(3))
        self.refused("dt_softplus must be a number or a boolean", *scan, dt_softplus="yes")
        self.refused("axis must be a 32- or 64-bit integer", "exphil_scan_cumulative", [like], x, axis=np.float32(1))
        self.refused("empty or initial_state", "exphil_linear_recurrence", [like], x, x, operands="h0")


class AssociativeScans(unittest.TestCase):
    def test_cumulative(self):
        x = np.random.default_rng(1).uniform(0.5, 1.5, (3, 70, 5)).astype(np.float32)
        for name in ("cumsum", "cumprod", "cummax", "cummin"):
            plain = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
                     "cummin": np.minimum.accumulate}[name]  # fmt: skip
            for axis in (0, 1, 2, -1):
                out = jax.jit(lambda v: getattr(exphil, name)(v, axis=axis))(x)
                self.assertLessEqual(relative_error(out, plain(x.astype(np.float64), axis=axis)), 1e-6)
            back = getattr(exphil, name)(x, axis=1, reverse=True)
            expected = np.flip(plain(np.flip(x.astype(np.float64), 1), axis=1), 1)
            self.assertLessEqual(relative_error(back, expected), 1e-6)

    def test_linear_recurrence(self):
        rng = np.random.default_rng(2)
        a = rng.uniform(0.2, 0.99, (2, 300, 6)).astype(np.float32)
        b = rng.standard_normal(a.shape).astype(np.float32)
        expected, h = np.empty(a.shape), np.zeros((2, 6))
        for t in range(300):
            h = a[:, t].astype(np.float64) * h + b[:, t]
            expected[:, t] = h
        self.assertLessEqual(relative_error(exphil.linear_recurrence(a, b, axis=1), expected), 1e-6)
        z = exphil.linear_recurrence(a + 0j, b + 0j, axis=1)
        self.assertEqual(z.dtype, np.complex64)
        self.assertLessEqual(relative_error(np.real(z), expected), 1e-6)

    def test_initial_state(self):
        rng = np.random.default_rng(4)
        for dtype in (np.float32, np.complex64):
            for axis, shape in ((1, (2, 300, 6)), (0, (40, 3)), (2, (2, 3, 70)), (0, (9,))):
                a = rng.uniform(0.2, 0.99, shape).astype(dtype)
                b = rng.standard_normal(shape).astype(dtype)
                start = rng.standard_normal(shape[:axis] + shape[axis + 1 :]).astype(dtype)
                if dtype == np.complex64:
                    a, b, start = a * np.exp(0.3j), b * (1 - 2j), start * (2 + 1j)
                for reverse in (False, True):
                    with self.subTest((dtype, shape, reverse)):
                        order = (lambda t: np.flip(t, axis)) if reverse else (lambda t: t)  # noqa: E731
                        rows, h = [], start.astype(np.complex128)
                        for a_t, b_t in zip(np.moveaxis(order(a), axis, 0), np.moveaxis(order(b), axis, 0)):
                            h = a_t * h + b_t
                            rows.append(h)
                        expected = order(np.stack(rows, axis))
                        out = jax.jit(exphil.linear_recurrence, static_argnums=(2, 3))(a, b, axis, reverse, start)
                        self.assertEqual(out.dtype, dtype)
                        self.assertLessEqual(relative_error(out, expected), 1e-6)

    def test_halves_of_the_recurrence(self):
        rng = np.random.default_rng(6)
        a, b = rng.uniform(0.2, 0.99, (2, 2, 50, 6)).astype(np.float32)
        start = rng.standard_normal((2, 6)).astype(np.float32)
        for dtype, limit in ((jnp.float16, 2e-3), (jnp.bfloat16, 1.5e-2)):
            half = [jnp.asarray(t, dtype) for t in (a, b, start)]
            out = exphil.linear_recurrence(*half[:2], axis=1, initial_state=half[2])
            wide = [t.astype(jnp.float32) for t in half]
            expected = exphil.linear_recurrence(*wide[:2], axis=1, initial_state=wide[2])
            self.assertEqual(out.dtype, dtype)
            self.assertLessEqual(relative_error(np.asarray(out, np.float32), np.asarray(expected)), limit)

    def test_empty(self):
        self.assertEqual(exphil.cumsum(jnp.zeros((0, 3)), axis=1).shape, (0, 3))


class ManyCalls(unittest.TestCase):
    def test_random_shapes(self):
        rng = np.random.default_rng(3)
        run, plain = jax.jit(exphil.selective_scan), jax.jit(plain_scan)
        for key in range(40):
            batch, seq, dim, state = (int(v) for v in rng.integers(1, 24, 4))
            main, _ = problem(key, batch, seq, dim, state)
            expected, _ = plain(*main)
            self.assertLessEqual(relative_error(run(*main), np.asarray(expected)), 2e-5)


if __name__ == "__main__":
    unittest.main()
