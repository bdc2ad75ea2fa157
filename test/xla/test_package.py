"""examples/jax as a package: pip installs it with the library, which it finds wherever it is called."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from library import LIBRARY, ROOT

PROGRAM = """
import jax, jax.numpy as jnp
import exphil_native_jax as exphil

print(exphil.find())
ones = jnp.ones((2, 5, 4))
loss = lambda x: exphil.selective_scan(x, ones, -jnp.ones((4, 3)), jnp.ones((2, 5, 3)), jnp.ones((2, 5, 3))).sum()
print(jax.jit(jax.grad(loss))(ones).shape, exphil.cumsum(jnp.arange(4.0))[-1])
"""
SOURCES = ROOT / "examples" / "jax"


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.site = cls.folder / "site"
        # A copy, because setuptools builds beside the sources.
        cls.sources = shutil.copytree(
            SOURCES, cls.folder / "sources", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        )

    def pip(self, priv):
        command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"]
        return subprocess.run(
            [*command, "--disable-pip-version-check", "--target", self.site, self.sources],
            env={**os.environ, "EXPHIL_NATIVE_PRIV": str(priv)}, capture_output=True, text=True,
        )  # fmt: skip

    def run_program(self, python_path, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("EXPHIL_")}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=self.folder, capture_output=True, text=True,
            env={**clean, "PYTHONPATH": str(python_path), **environment},
        )  # fmt: skip

    def test_the_installed_package_has_the_library(self):
        done = self.pip(LIBRARY.parent)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        native = self.site / "exphil_native_jax" / "native"
        self.assertTrue(any((native / "kernels").rglob("*.cu")))
        self.assertLess((native / LIBRARY.name).stat().st_size, LIBRARY.stat().st_size)
        done = self.run_program(self.site)
        self.assertEqual(done.stdout, f"{native / LIBRARY.name}\n(2, 5, 4) 6.0\n", done.stderr)

    def test_a_checkout_uses_priv(self):
        done = self.run_program(SOURCES)
        self.assertEqual(done.stdout, f"{LIBRARY}\n(2, 5, 4) 6.0\n", done.stderr)

    def test_a_missing_library_is_named(self):
        done = self.pip(self.folder / "none")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{self.folder / 'none' / LIBRARY.name} was not found: run `make jax`", done.stdout + done.stderr)
        done = self.run_program(SOURCES, EXPHIL_NATIVE_XLA="/nowhere/library.so")
        self.assertIn("exphil_native_xla.so was not found in /nowhere: EXPHIL_NATIVE_XLA names it", done.stderr)


if __name__ == "__main__":
    unittest.main()
