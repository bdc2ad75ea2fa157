"""Sharding, vmap and export of the calls, over four CPU devices: sharding_cases.py in a process of its own, because JAX counts its
devices once."""

import os
import pathlib
import subprocess
import sys
import unittest


class OnFourDevices(unittest.TestCase):
    def test_the_cases(self):
        here = pathlib.Path(__file__).resolve().parent
        environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", "unittest", "sharding_cases"], cwd=here, env=environment, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran [1-9]\d* tests")


if __name__ == "__main__":
    unittest.main()
