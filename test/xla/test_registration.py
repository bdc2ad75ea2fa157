"""How the library registers its handlers with an XLA that is already in the process, as EXLA's is: against a substitute.

Each case is a process of its own, because the library looks for XLA once, when it is loaded.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jax.ffi

from library import HANDLERS, LIBRARY, ROOT


# Opens the substitute in local scope, as EXLA opens XLA, then the library; prints what both say.
PROGRAM = """
import ctypes, os, sys
if sys.argv[1]:
    xla = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL | os.RTLD_NOW)
library = ctypes.CDLL(sys.argv[2])
library.exphil_native_xla_status.restype = ctypes.c_char_p
print(library.exphil_native_xla_status().decode())
for name in sys.argv[3:]:
    print(library.exphil_native_xla_registered(name.encode()))
if sys.argv[1]:
    xla.registered_handlers.restype = ctypes.c_char_p
    print(xla.registered_handlers().decode(), end="")
"""


class Registration(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def substitute(self, name, *flags):
        path = pathlib.Path(self.folder.name) / name
        compiler = os.environ.get("CXX", "g++").split()
        source = pathlib.Path(__file__).with_name("substitute.cpp")
        subprocess.run(
            [*compiler, "-std=c++17", "-shared", "-fPIC", "-I", jax.ffi.include_dir(), *flags, source, "-o", path],
            check=True,
        )
        return path

    def loaded(self, xla, *names):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(xla), str(LIBRARY), *names], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.splitlines()

    def test_every_handler_is_registered_by_name(self):
        queries = [f"{name} Host" for name in HANDLERS] + ["exphil_other Host"]
        status, *lines = self.loaded(self.substitute("libxla_substitute.so"), *queries)
        self.assertEqual(status, "registered")
        self.assertEqual(lines[: len(queries)], ["1"] * len(HANDLERS) + ["0"])
        recorded = lines[len(queries) :]
        for name in HANDLERS:
            self.assertIn(f"{name} Host traits=0 execute", recorded)
        # 1: XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE, for the one without scratch memory. Kernels are compiled in
        # the initialise stage.
        for line in recorded:
            if " CUDA " in line:
                traits = 1 if line.startswith("exphil_selective_scan CUDA") else 0
                self.assertTrue(line.endswith(f"traits={traits} initialize execute"), line)

    def test_refused(self):
        status, answer = self.loaded(self.substitute("libxla_refuses.so", "-DREFUSE"), "exphil_selective_scan Host")
        self.assertIn("exphil_selective_scan on Host: the substitute refuses it", status)
        self.assertEqual(answer, "0")

    def test_no_xla(self):
        self.assertEqual(self.loaded("", "exphil_selective_scan Host"), ["no XLA is loaded in this process", "0"])
        without_symbol = self.substitute("libxla_other.so", "-DNO_API")
        self.assertEqual(self.loaded(without_symbol)[0], "no XLA is loaded in this process")


if __name__ == "__main__":
    unittest.main()
