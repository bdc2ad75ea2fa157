"""The custom calls against the NIF on the same device, bit for bit: every option of the forward, every gradient.

One run of mix answers all calls (answers.exs). Skipped where there is no mix.
"""

import concurrent.futures
import itertools
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import support
from support import exphil, problem

import jax
import jax.numpy as jnp
import numpy as np

MAIN = ("x", "dt", "a", "b", "c")
OPTIONAL = ("d", "z", "dt_bias", "initial_state")
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "int32": "s32"}


class Requests:
    """Calls of the library, with what JAX answered."""

    def __init__(self, folder):
        self.folder, self.terms, self.expected, self.files = folder, [], {}, itertools.count()

    def term(self, value):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float, str)):
            return repr(value) if not isinstance(value, str) else value
        if isinstance(value, tuple):
            return "{" + ",".join(map(self.term, value)) + "}"
        name = f"tensor{next(self.files)}"
        (self.folder / name).write_bytes(np.asarray(value).tobytes())
        shape = ",".join(map(str, value.shape))
        return f'{{tensor,{TYPES[str(value.dtype)]},{{{shape}}},"{name}"}}'

    def add(self, title, module, function, arguments, options, results):
        """results: {key: array}, as the library's answer is keyed."""
        name = f"call{len(self.terms)}"
        given = ",".join(f"{{{key},{self.term(value)}}}" for key, value in options.items())
        listed = ",".join(map(self.term, arguments))
        self.terms.append(f'{{"{name}",{module},{function},[{listed}],[{given}]}}.\n')
        self.expected[name] = (title, {key: np.asarray(value) for key, value in results.items()})
        for key, value in self.expected[name][1].items():
            assert np.isfinite(value.astype(np.complex64)).all(), (title, key)

    def compare(self, test):
        (self.folder / "requests.terms").write_text("".join(self.terms))
        backend = "cuda" if jax.default_backend() == "gpu" else "host"
        run = subprocess.run(
            ["mix", "run", "test/xla/answers.exs", self.folder, backend],
            cwd=support.ROOT, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        test.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for name, (title, results) in self.expected.items():
            for key, value in results.items():
                with test.subTest((title, key)):
                    test.assertEqual((self.folder / f"{name}.{key}").read_bytes(), value.tobytes())


def tensors(seed, kind, dtype=np.float32):
    """x, dt, a, b, c and the optional operands of one layout."""
    main, extra = problem(seed, 2, 37, 6, 4, dtype)
    # A negative dt grows beyond float32; a conjugate may change the sign of the NaN that follows, which is no result.
    extra["dt_bias"] = np.abs(extra["dt_bias"])
    rng = np.random.default_rng(seed)
    if kind == "groups":
        main[3:] = [rng.standard_normal((2, 37, 3, 4)).astype(dtype), rng.standard_normal((2, 37, 2, 4)).astype(dtype)]
    elif kind == "constant":
        main[3:] = [rng.standard_normal((6, 4)).astype(dtype) for _ in range(2)]
    elif kind == "complex":
        turn = np.exp(1j * rng.uniform(0, 6, (2, 37, 4)))
        main[2] = (main[2] + 1j * rng.standard_normal((6, 4))).astype(np.complex64)
        main[3:] = [(t * turn).astype(np.complex64) for t in main[3:]]
        extra["initial_state"] = (extra["initial_state"] * (1 + 2j)).astype(np.complex64)
    elif kind == "matrix":
        main[2] = (rng.standard_normal((6, 4, 4)) * 0.3 - 2 * np.eye(4)).astype(np.float32)
    return main, extra


def scan_cases():
    """(title, main, options) with the operands among the options."""
    rules = ("zoh", "foh", "bilinear", "highorder", "poly", "rk4")
    for seed, rule in enumerate(rules):
        for kind in ("plain", "complex"):
            yield f"{rule} {kind}", *tensors(seed, kind), {"discretization": rule}
    for seed, kind in enumerate(("plain", "groups", "constant", "complex")):
        main, extra = tensors(20 + seed, kind)
        for name in OPTIONAL:
            yield f"{kind} with {name}", main, {name: extra[name]}, {}
        yield f"{kind} with all", main, extra, {"dt_softplus": True, "dt_range": (0.01, 0.9)}
        yield f"{kind} from the end", main, extra, {"dt_softplus": True, "reverse": True}
    for dtype in (jnp.float16, jnp.bfloat16):
        main, extra = tensors(30, "groups", dtype)
        yield f"{dtype.__name__}", main, extra, {"dt_softplus": True}
    main, extra = tensors(31, "matrix")
    yield "matrix", main, {"initial_state": extra["initial_state"]}, {"discretization": "bilinear"}
    main, extra = problem(32, 1, 2000, 16, 16)
    yield "long", main, extra, {"dt_softplus": True}


def at_once(function, cases):
    """The function of each case, on several threads: most of the time goes into compiling kernels."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(function, cases))


@unittest.skipIf(shutil.which("mix") is None, "there is no mix")
class Bits(unittest.TestCase):
    def requests(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Requests(pathlib.Path(folder.name))

    def test_scans(self):
        requests = self.requests()
        cases = list(scan_cases())

        def answer(case):
            _, main, given, options = case
            return jax.jit(lambda m, g: exphil.selective_scan(*m, **g, **options, return_state=True))(main, given)

        for (title, main, given, options), (y, final) in zip(cases, at_once(answer, cases)):
            requests.add(title, "scan", "scan", main, {**given, **options, "return_state": True}, {0: y, 1: final})
        main, _ = tensors(40, "plain")
        for algorithm in ("sequential", "chunked"):
            y = exphil.selective_scan(*main, algorithm=algorithm)
            requests.add(algorithm, "scan", "scan", main, {"algorithm": algorithm}, {0: y})
        self.add_calls_beside_the_module(requests, main)
        requests.compare(self)

    def add_calls_beside_the_module(self, requests, main):
        like = jax.ShapeDtypeStruct(main[0].shape, np.float32)
        states = jax.ShapeDtypeStruct((2, 37, 6, 4), np.float32)
        y, all_states = jax.ffi.ffi_call("exphil_selective_scan", [like, states])(*main, results="states")
        requests.add("states", "scan", "scan_with_states", main, {}, {0: y, 1: all_states})
        dy = np.cos(main[0])
        grads = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in (main[0], main[1], main[3], main[4])]
        call = jax.ffi.ffi_call("exphil_selective_scan_grad", grads)
        out = call(dy, *main, all_states, operands="states", results="x dt b c")
        arguments = (dy, main[0], all_states, *main[1:])
        requests.add("backward", "scan", "backward", arguments, {}, dict(enumerate(out)))

    def test_gradients(self):
        requests = self.requests()
        cases = list(enumerate(scan_cases()))

        def answer(numbered):
            number, (_, main, given, options) = numbered
            rng = np.random.default_rng(number)
            run = lambda m, g: exphil.selective_scan(*m, **g, **options, return_state=True)  # noqa: E731
            y, final = jax.eval_shape(run, main, given)
            dy = jnp.asarray(rng.standard_normal(y.shape), y.dtype)
            d_final = jnp.asarray(rng.standard_normal(final.shape), final.dtype)
            pull = jax.jit(lambda m, g, c: jax.vjp(run, m, g)[1](c))
            return dy, d_final, *pull(main, given, (dy, jnp.conj(d_final)))

        for (_, case), (dy, d_final, of_main, of_given) in zip(cases, at_once(answer, cases)):
            title, main, given, options = case
            # JAX's cotangent of a complex tensor is the conjugate of the library's gradient.
            results = {key: np.conj(v) for key, v in (dict(zip(MAIN, of_main)) | of_given).items()}
            requests.add(title, "scan", "grad", (dy, *main), {**given, **options, "d_final_state": d_final}, results)
        requests.compare(self)

    def test_associative_scans(self):
        requests = self.requests()
        rng = np.random.default_rng(60)
        x = rng.uniform(0.5, 1.5, (3, 70, 5)).astype(np.float32)
        for name, dtype in itertools.product(("cumsum", "cumprod", "cummax", "cummin"), (np.float32, jnp.float16, jnp.bfloat16)):
            for axis, reverse in itertools.product((0, 1, 2), (False, True)):
                given = jnp.asarray(x, dtype)
                out = getattr(exphil, name)(given, axis=axis, reverse=reverse)
                requests.add((name, dtype, axis), "associative", name, (given,), {"axis": axis, "reverse": reverse}, {0: out})
        for given in (x, (x * (1 + 2j)).astype(np.complex64)):
            options = {"axis": 1, "compensated": True}
            out = exphil.cumsum(given, **options)
            requests.add("compensated", "associative", "cumsum", (given,), options, {0: out})
        for name in ("cumsum", "cummax", "cummin"):
            given = (100 * x).astype(np.int32)
            requests.add("s32", "associative", name, (given,), {"axis": 1}, {0: getattr(exphil, name)(given, axis=1)})
        for dtype, reverse in itertools.product((np.float32, jnp.float16, jnp.bfloat16, np.complex64), (False, True)):
            a, b = jnp.asarray(x / 2, dtype), jnp.asarray(x - 1, dtype)
            out = exphil.linear_recurrence(a, b, 1, reverse)
            options = {"axis": 1, "reverse": reverse}
            requests.add(("recurrence", dtype), "associative", "linear_recurrence", (a, b), options, {0: out})
            dy = jnp.asarray(np.cos(x), dtype)
            pulled = jax.vjp(lambda a, b, r=reverse: exphil.linear_recurrence(a, b, 1, r), a, b)[1](jnp.conj(dy))
            gradients = {key: jnp.conj(value) for key, value in enumerate(pulled)}
            arguments = ("linear_recurrence", dy, a, b)
            requests.add(("recurrence's gradient", dtype), "associative", "grad", arguments, options, gradients)
        for name, dtype in itertools.product(("cumsum", "cumprod", "cummax", "cummin"), (np.float32, jnp.bfloat16)):
            given, dy = jnp.asarray(x, dtype), jnp.asarray(np.cos(x), dtype)
            pulled = jax.vjp(lambda v, f=getattr(exphil, name): f(v, axis=1), given)[1](dy)
            arguments = (name, dy, given)
            requests.add((name, "gradient"), "associative", "grad", arguments, {"axis": 1}, {0: pulled[0]})
        both = jax.ffi.ffi_call("exphil_scan_cumulative", [jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)
        out = both(x, op="cumsum", axis=np.int64(1), direction="both")
        requests.add("both", "associative", "bidirectional", (x,), {"axis": 1}, dict(enumerate(out)))
        requests.compare(self)


if __name__ == "__main__":
    unittest.main()
