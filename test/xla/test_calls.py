"""Handlers called as every minor version of XLA's interface calls them, and CUDA's without a GPU: through caller.cpp, in a
process of its own for each call, so that a crash is seen."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jax.ffi

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "priv" / "exphil_native_xla.so"
NAMES = (
    "exphil_selective_scan",
    "exphil_selective_scan_grad",
    "exphil_scan_cumulative",
    "exphil_linear_recurrence",
    "exphil_linear_recurrence_grad",
)
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
        for name in NAMES:
            if name == "exphil_scan_cumulative":
                continue
            for minor in MINORS:
                answers = self.called(minor, name + "_host")[1:]
                for answer in answers:
                    self.assertIn("the call has no argument", answer)

    def test_cuda_without_a_gpu_is_an_error(self):
        without = {"EXPHIL_NATIVE_LIBCUDA": "/nowhere/libcuda.so"}
        for minor in MINORS:
            answers = self.called(minor, "exphil_scan_cumulative_cuda", **without)
            if answers == ["none"]:
                self.skipTest("the library was built without CUDA")
            for answer in answers[1:]:
                # Version 1 has no device number: the stream is asked for, and the caller has none.
                self.assertIn("there is no stream" if minor == 1 else "libcuda", answer)


if __name__ == "__main__":
    unittest.main()
