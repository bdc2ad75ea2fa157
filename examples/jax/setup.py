"""Puts the library with the XLA handlers, what it needs and the kernels into the package, as exphil_native_jax/native.

They are those of priv/ of this checkout, or of the folder that EXPHIL_NATIVE_PRIV names, such as an unpacked package of
`make package`. An editable install copies nothing and uses priv/ itself.
"""

import os
import pathlib
import shutil
import subprocess

import setuptools
from setuptools.command.build_py import build_py

LIBRARY = "exphil_native_xla.so"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        here = pathlib.Path(__file__).resolve().parent
        priv = pathlib.Path(os.environ.get("EXPHIL_NATIVE_PRIV", here.parents[1] / "priv"))
        if not (priv / LIBRARY).exists():
            raise SystemExit(
                f"{priv / LIBRARY} was not found: run `make jax` in the checkout, or name an unpacked package of "
                "`make package` with EXPHIL_NATIVE_PRIV"
            )
        native = pathlib.Path(self.build_lib) / "exphil_native_jax" / "native"
        shutil.rmtree(native, ignore_errors=True)
        native.mkdir(parents=True)
        shutil.copy2(priv / LIBRARY, native)
        for folder in ("kernels", "lib"):
            if (priv / folder).is_dir():
                shutil.copytree(priv / folder, native / folder)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", native / LIBRARY], check=True)


class BinaryDistribution(setuptools.Distribution):
    """So that the wheel is one for this platform."""

    def has_ext_modules(self):
        return True


setuptools.setup(cmdclass={"build_py": BuildWithLibrary}, distclass=BinaryDistribution)
