"""The cases of test_sharding.py, which runs them in a process with four CPU devices."""

import unittest

import support
from support import exphil

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

rng = np.random.default_rng(1)


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


def scan_inputs():
    return normal(8, 6, 4), np.abs(normal(8, 6, 4)) * 0.1, -np.abs(normal(4, 3)), normal(8, 6, 3), normal(8, 6, 3)


# name: (function, arguments, which of them have rows)
CALLS = {
    "selective_scan": (exphil.selective_scan, scan_inputs(), (1, 1, 0, 1, 1)),
    "with a state": (
        lambda x, dt, a, b, c, h: exphil.selective_scan(x, dt, a, b, c, initial_state=h, return_state=True)[1],
        (*scan_inputs(), normal(8, 4, 3)), (1, 1, 0, 1, 1, 1),
    ),
    "constant b": (exphil.selective_scan, (*scan_inputs()[:3], normal(4, 3), normal(8, 6, 3)), (1, 1, 0, 0, 1)),
    "cumsum": (lambda x: exphil.cumsum(x, axis=1), (normal(8, 6, 4),), (1,)),
    "linear_recurrence": (
        lambda a, b, h: exphil.linear_recurrence(a, b, axis=1, initial_state=h),
        (normal(8, 6, 4), normal(8, 6, 4), normal(8, 4)), (1, 1, 1),
    ),
    "gru_scan": (lambda wx, r: exphil.recurrent_scan("gru_scan", wx, r), (normal(8, 6, 12), normal(4, 12)), (1, 0)),
    "minlstm": (
        lambda *gates: exphil.recurrent_scan("minlstm", *gates), (normal(8, 6, 4), normal(8, 6, 4), normal(8, 6, 4)), (1, 1, 1),
    ),
    "state_space_duality": (
        lambda x, dt, a, b, c, h: exphil.state_space_duality(x, dt, a, b, c, dt_softplus=True, initial_state=h),
        (normal(8, 6, 4, 3), normal(8, 6, 4), -abs(normal(4)), normal(8, 6, 2, 5), normal(8, 6, 2, 5), normal(8, 4, 3, 5)),
        (1, 1, 0, 1, 1, 1),
    ),
}  # fmt: skip
DOTS = ("all-gather", "all-to-all", "collective-permute")


class Sharding(unittest.TestCase):
    def each(self):
        for kind in (AxisType.Auto, AxisType.Explicit):
            mesh = jax.make_mesh((4,), ("data",), axis_types=(kind,))
            for name, (function, arguments, rows) in CALLS.items():
                specs = tuple(P("data") if row else P() for row in rows)
                with self.subTest(name=name, kind=kind):
                    yield mesh, function, arguments, specs

    def close(self, found, expected):
        for one, other in zip(found, expected):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-5)

    def test_a_sharded_batch_stays_where_it_is(self):
        for mesh, function, arguments, specs in self.each():
            given = [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in zip(arguments, specs)]
            run = jax.jit(function)
            out = run(*given)
            np.testing.assert_array_equal(np.asarray(out), np.asarray(function(*arguments)))
            self.assertEqual(out.sharding.spec[0], "data")
            text = run.lower(*given).compile().as_text()
            self.assertFalse([word for word in DOTS if word in text])
            # The gradient: that of what is not sharded is summed once.
            slope = jax.jit(jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=tuple(range(len(given)))))
            self.close(slope(*given), slope(*arguments))
            text = slope.lower(*given).compile().as_text()
            self.assertFalse([word for word in DOTS if word in text])

    def test_shard_map_with_gradients(self):
        for mesh, function, arguments, specs in self.each():
            mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("data"))
            given = [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in zip(arguments, specs)]
            np.testing.assert_array_equal(np.asarray(jax.jit(mapped)(*given)), np.asarray(function(*arguments)))
            every = tuple(range(len(given)))
            slope = jax.jit(jax.grad(lambda *v: (mapped(*v) ** 2).sum(), argnums=every))(*given)
            self.close(slope, jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=every)(*arguments))

    def test_rows_that_the_devices_do_not_divide(self):
        x, dt, a, b, c = (jnp.asarray(value) for value in scan_inputs())
        mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
        part = lambda *v: exphil.selective_scan(*(t[:6] if t.ndim == 3 else t for t in v))  # noqa: E731
        given = [jax.device_put(t, NamedSharding(mesh, P("data") if t.ndim == 3 else P())) for t in (x, dt, a, b, c)]
        np.testing.assert_array_equal(np.asarray(jax.jit(part)(*given)), np.asarray(part(x, dt, a, b, c)))


class Batching(unittest.TestCase):
    def test_vmap_is_one_call_where_only_rows_differ(self):
        for name, (function, arguments, rows) in CALLS.items():
            with self.subTest(name=name):
                several = [np.stack([value, value + 0.01, value - 0.01]) if row else value for value, row in zip(arguments, rows)]
                mapped = jax.jit(jax.vmap(function, in_axes=tuple(0 if row else None for row in rows)))
                expected = [function(*(v[i] if row else v for v, row in zip(several, rows))) for i in range(3)]
                np.testing.assert_array_equal(np.asarray(mapped(*several)), np.stack(expected))
                self.assertNotIn("while", mapped.lower(*several).as_text())

    def test_vmap_over_weights_and_of_gradients(self):
        function, arguments, _ = CALLS["selective_scan"]
        weights = np.stack([arguments[2], 2 * arguments[2]])
        over = jax.vmap(lambda a: function(*arguments[:2], a, *arguments[3:]))(weights)
        each = [function(*arguments[:2], a, *arguments[3:]) for a in weights]
        np.testing.assert_array_equal(np.asarray(over), np.stack(each))
        slope = jax.grad(lambda x, a: (function(x, arguments[1], a, *arguments[3:]) ** 2).sum(), argnums=(0, 1))
        several = np.stack([arguments[0], -arguments[0] + 1])
        found = jax.vmap(slope, in_axes=(0, None))(several, arguments[2])
        for i in range(2):
            for one, other in zip(found, slope(several[i], arguments[2])):
                np.testing.assert_allclose(np.asarray(one[i]), np.asarray(other), rtol=1e-6, atol=1e-6)

    def test_export(self):
        function, arguments, _ = CALLS["selective_scan"]
        allowed = [jax.export.DisabledSafetyCheck.custom_call("exphil_selective_scan")]
        exported = jax.export.export(jax.jit(function), disabled_checks=allowed)(*arguments)
        again = jax.export.deserialize(exported.serialize())
        np.testing.assert_array_equal(np.asarray(again.call(*arguments)), np.asarray(function(*arguments)))


if __name__ == "__main__":
    unittest.main()
