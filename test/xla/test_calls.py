"""Handlers called as every minor version of XLA's interface calls them, and CUDA's without a GPU: through caller.cpp, in a
process of its own for each call, so that a crash is seen."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jax.ffi

from library import HANDLERS, LIBRARY, ROOT

MINORS = (1, 2, 3, 4)

PROGRAM = """
import ctypes, sys
caller, library = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
caller.caller_cumsum.restype = ctypes.c_char_p
minor = int(sys.argv[3])
for name in sys.argv[4:]:
    handler = getattr(library, name, None)
    if handler is None:
        print("none")
        continue
    print(caller.caller_metadata(handler, minor))
    x, y = (ctypes.c_float * 3)(1, 2, 4), (ctypes.c_float * 3)()
    for execute in (0, 1):
        print(caller.caller_cumsum(handler, minor, execute, x, y, ctypes.c_int64(3)), list(y))
"""

FAKE_CUDA = ROOT / "build" / "libfake_cuda.so"

# Both stages on a stream of the fake driver; how often the driver was asked for a stream's context; and a call on a stream
# that is not there any more.
OVER_FAKE_CUDA = """
import ctypes, sys
caller, library, driver = (ctypes.CDLL(sys.argv[i]) for i in (1, 2, 4))
caller.caller_cumsum.restype = ctypes.c_char_p
minor = int(sys.argv[3])
handler = getattr(library, "exphil_scan_cumulative_cuda", None)
if handler is None:
    sys.exit(print("none: the library was built without CUDA"))
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxPushCurrent_v2(context)
assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
caller.caller_stream(stream)
block = ctypes.c_uint64()
assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(256)) == 0
x, y = ctypes.c_void_p(block.value), ctypes.c_void_p(block.value + 128)
for execute in (0, 1):
    print(caller.caller_cumsum(handler, minor, execute, x, y, ctypes.c_int64(3)))
controls = (ctypes.c_void_p * 2).in_dll(driver, "fake_cuda")  # fake_cuda.hpp: the second counts calls
print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(controls[1])(b"cuStreamGetCtx"))
driver.cuStreamDestroy_v2(stream)
print(caller.caller_cumsum(handler, minor, 0, x, y, ctypes.c_int64(3)))
"""


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.caller = pathlib.Path(folder.name) / "caller.so"
        compiler = os.environ.get("CXX", "g++").split()
        source = pathlib.Path(__file__).with_name("caller.cpp")
        command = [*compiler, "-std=c++17", "-shared", "-fPIC", "-I", jax.ffi.include_dir(), source, "-o", cls.caller]
        subprocess.run(command, check=True)

    def called(self, minor, name, **variables):
        """Metadata, then the answers in the initialise and the execute stage."""
        command = [sys.executable, "-c", PROGRAM, str(self.caller), str(LIBRARY), str(minor), name]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.splitlines()

    def test_every_minor_version_on_the_host(self):
        for minor in MINORS:
            metadata, prepared, done = self.called(minor, "exphil_scan_cumulative_host")
            self.assertEqual(metadata, "1000")  # version 1, no traits
            self.assertEqual(prepared, "None [0.0, 0.0, 0.0]")
            self.assertEqual(done, "None [1.0, 3.0, 7.0]")

    def test_a_call_without_arguments_is_an_error(self):
        for name in HANDLERS:
            if name == "exphil_scan_cumulative":
                continue
            # What the arguments are depends on the attribute op.
            named = "diagonal" in name or "dense" in name
            expected = "op must be one of" if named else "the call has no argument"
            for minor in MINORS:
                answers = self.called(minor, name + "_host")[1:]
                for answer in answers:
                    self.assertIn(expected, answer)

    def test_cuda_without_a_gpu_is_an_error(self):
        without = {"EXPHIL_NATIVE_LIBCUDA": "/nowhere/libcuda.so"}
        for minor in MINORS:
            answers = self.called(minor, "exphil_scan_cumulative_cuda", **without)
            if answers == ["none"]:
                self.skipTest("the library was built without CUDA")
            for answer in answers[1:]:
                # Version 1 has no device number: the stream is asked for, and the caller has none.
                self.assertIn("there is no stream" if minor == 1 else "libcuda", answer)

    def test_the_stream_tells_the_device_where_xla_does_not(self):
        """CUDA's handler over the fake driver, whose kernels do nothing: version 1 of XLA has no device number."""
        if not FAKE_CUDA.exists():
            self.skipTest("there is no fake driver (make build/c_src_tests)")
        for minor in MINORS:
            command = [sys.executable, "-c", OVER_FAKE_CUDA, str(self.caller), str(LIBRARY), str(minor), str(FAKE_CUDA)]
            variables = {**os.environ, "EXPHIL_NATIVE_LIBCUDA": str(FAKE_CUDA)}
            run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)
            self.assertEqual(run.returncode, 0, run.stderr)
            if "NVRTC" in run.stdout or run.stdout.startswith("none"):
                self.skipTest(run.stdout)
            prepared, done, asked, gone = run.stdout.splitlines()
            self.assertEqual((prepared, done), ("None", "None"))
            self.assertEqual(int(asked) > 0, minor == 1)
            if minor == 1:
                self.assertIn("the device of XLA's stream cannot be found", gone)


if __name__ == "__main__":
    unittest.main()
