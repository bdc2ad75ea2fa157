"""The operator of Mamba-2 under real XLA, against a plain JAX program in float64 and jax.grad of it.

    python -m unittest discover -s test/xla -v
"""

import unittest

from support import exphil, relative_error

import jax
import jax.numpy as jnp
import numpy as np


def plain(x, dt, a, b, c, d=None, z=None, dt_bias=None, initial_state=None, dt_softplus=False, dt_range=None, return_state=False):
    dt = dt if dt_bias is None else dt + dt_bias
    dt = jax.nn.softplus(dt) if dt_softplus else dt
    dt = dt if dt_range is None else jnp.clip(dt, *dt_range)
    each = x.shape[2] // b.shape[2]
    b, c = jnp.repeat(b, each, 2), jnp.repeat(c, each, 2)

    def step(state, inputs):
        x, dt, b, c = inputs
        state = jnp.exp(a * dt)[..., None, None] * state + jnp.einsum("bh,bhp,bhn->bhpn", dt, x, b)
        return state, jnp.einsum("bhpn,bhn->bhp", state, c)

    start = jnp.zeros((x.shape[0], *x.shape[2:], b.shape[3]), x.dtype) if initial_state is None else initial_state
    final, y = jax.lax.scan(step, start, tuple(jnp.moveaxis(t, 1, 0) for t in (x, dt, b, c)))
    y = jnp.moveaxis(y, 0, 1)
    if d is not None:
        y = y + (d if d.ndim == 2 else d[:, None]) * x
    y = y if z is None else y * jax.nn.silu(z)
    return (y, final) if return_state else y


def tensors(batch, seq, heads, headdim, groups, state, key=1, wide_d=False):
    """Random x, dt, a, b, c, and the optional operands, float32."""
    rng = np.random.default_rng(key)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    keys = (batch, seq, groups, state)
    main = [normal(batch, seq, heads, headdim), normal(batch, seq, heads), -np.exp(normal(heads)), normal(*keys), normal(*keys)]
    optional = {
        "d": normal(heads, headdim) if wide_d else normal(heads),
        "z": normal(batch, seq, heads, headdim),
        "dt_bias": normal(heads),
        "initial_state": normal(batch, heads, headdim, state),
    }
    return main, optional


def wide(tree):
    return jax.tree.map(lambda v: v.astype(np.float64), tree)


SIZES = [(1, 1, 1, 1, 1, 1), (2, 7, 4, 5, 2, 3), (3, 61, 6, 33, 1, 16)]


class Duality(unittest.TestCase):
    def test_results_and_final_states(self):
        for sizes in SIZES:
            for given in (False, True):
                with self.subTest((sizes, given)):
                    main, optional = tensors(*sizes, wide_d=given)
                    options = {"dt_softplus": True, "return_state": True}
                    run = lambda f, m, o, options=options: f(*m, **o, **options)  # noqa: E731
                    optional = optional if given else {}
                    with jax.enable_x64(True):
                        expected = jax.tree.map(np.asarray, run(plain, wide(main), wide(optional)))
                    out = jax.jit(lambda m, o, run=run: run(exphil.state_space_duality, m, o))(main, optional)
                    for one, reference in zip(out, expected, strict=True):
                        self.assertEqual(one.shape, reference.shape)
                        self.assertLessEqual(relative_error(one, reference), 1e-5)

    def test_gradients_and_those_of_the_states(self):
        for sizes in SIZES:
            for given in (False, True):
                for final in (False, True):
                    with self.subTest((sizes, given, final)):
                        main, optional = tensors(*sizes, wide_d=given)
                        optional = optional if given else {}

                        def loss(f, m, o, final=final):
                            out = f(*m, **o, dt_softplus=True, return_state=final)
                            y, state = out if final else (out, 0.0)
                            return jnp.sum(jnp.sin(y)) + jnp.sum(jnp.cos(state))

                        with jax.enable_x64(True):
                            expected = jax.grad(lambda m, o: loss(plain, m, o), (0, 1))(wide(main), wide(optional))
                            expected = jax.tree.map(np.asarray, expected)
                        out = jax.jit(jax.grad(lambda m, o: loss(exphil.state_space_duality, m, o), (0, 1)))(main, optional)
                        for one, reference in zip(jax.tree.leaves(out), jax.tree.leaves(expected), strict=True):
                            self.assertLessEqual(relative_error(one, reference), 1e-4)

    def test_options_halves_vmap_and_parts(self):
        main, optional = tensors(2, 9, 4, 5, 2, 3)
        clipped = exphil.state_space_duality(*main, dt_softplus=True, dt_range=(0.2, 0.9))
        self.assertLessEqual(relative_error(clipped, plain(*main, dt_softplus=True, dt_range=(0.2, 0.9))), 1e-5)
        y = exphil.state_space_duality(*main, **optional, dt_softplus=True)
        for dtype in (jnp.float16, jnp.bfloat16):
            halves = [t if i == 2 else jnp.asarray(t, dtype) for i, t in enumerate(main)]
            out = exphil.state_space_duality(*halves, **{**optional, "z": jnp.asarray(optional["z"], dtype)}, dt_softplus=True)
            self.assertEqual(out.dtype, dtype)
            self.assertLessEqual(relative_error(out.astype(np.float32), y), 0.05)
        scan = lambda x: exphil.state_space_duality(x, *main[1:])  # noqa: E731
        mapped = jax.vmap(scan)(jnp.stack([main[0], 0.5 * main[0]]))
        np.testing.assert_array_equal(mapped[1], scan(0.5 * main[0]))
        cut = lambda first, last: [t if i == 2 else t[:, first:last] for i, t in enumerate(main)]  # noqa: E731
        start, middle = exphil.state_space_duality(*cut(0, 4), return_state=True)
        end = exphil.state_space_duality(*cut(4, 9), initial_state=middle)
        np.testing.assert_array_equal(jnp.concatenate([start, end], 1), exphil.state_space_duality(*main))

    def test_bad_calls_are_errors_that_name_the_argument(self):
        main, optional = tensors(2, 9, 4, 5, 2, 3)
        x, dt, a, b, c = main

        def refused(word, *inputs, **options):
            with self.assertRaises(Exception) as caught:
                jax.block_until_ready(exphil.state_space_duality(*inputs, **options))
            self.assertIn(word, str(caught.exception))

        refused("a must be {heads} = {4}", x, dt, a[:-1], b, c)
        refused("b must be {batch, seq, groups, state} with groups dividing heads = 4", x, dt, a, b[:, :, [0, 1, 1]], c)
        refused("initial_state must be {batch, heads, headdim, state}", *main, initial_state=optional["z"])
        refused("z must be f32 like x", *main, z=optional["z"].astype(np.float16))
        refused(":dt_range must be {min, max}", *main, dt_range=(1, 0))
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        target = "exphil_state_space_duality"
        for name, attributes, message in [
            (target, {"results": "states"}, "results must list what the scan has"),
            (target, {"operands": "z"}, "the call has no argument 5 for z"),
            (target, {"reverse": True}, "unknown attribute reverse"),
            (target + "_grad", {"results": "x"}, "operands must list dy"),
        ]:
            with self.subTest(message), self.assertRaises(Exception) as caught:
                jax.block_until_ready(jax.ffi.ffi_call(name, [like])(*main, **attributes))
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
