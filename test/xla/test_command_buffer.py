"""The forward scan inside a command buffer (a CUDA graph), on a GPU only. In a process of its own: XLA reads its flags when it
starts, and writes what it makes of the program into a folder."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import jax

PROGRAM = """
import support
from support import exphil, problem
import jax, numpy as np

main, _ = problem(1, 2, 60, 64, 16)
program = lambda x, *rest: exphil.selective_scan(exphil.selective_scan(2 * x, *rest) + 1, *rest)
run = jax.jit(program)
for factor in (1, 2, 3, 4, 5):  # other data in every replay
    x = factor * main[0]
    y = exphil.selective_scan(2 * x, *main[1:])
    np.testing.assert_array_equal(run(x, *main[1:]), exphil.selective_scan(y + 1, *main[1:]))
"""


@unittest.skipIf(jax.default_backend() != "gpu", "JAX has no GPU")
class CommandBuffer(unittest.TestCase):
    def test_the_forward_replays_in_a_command_buffer(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = (
                "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1 "
                f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
            )
            run = subprocess.run(
                [sys.executable, "-c", PROGRAM], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True,
                timeout=300, env={**os.environ, "XLA_FLAGS": flags},
            )  # fmt: skip
            self.assertEqual(run.returncode, 0, run.stderr)
            lines = []
            for path in pathlib.Path(folder).glob("*lambda*"):
                if path.suffix == ".txt":
                    text = path.read_text(errors="replace")
                    lines += [f"{path.name}: {line.strip()}" for line in text.splitlines() if re.search("command_?buffer", line, re.I)]
            print("\n".join(lines[:20]), flush=True)
            self.assertTrue(lines, "no dump mentions a command buffer")


if __name__ == "__main__":
    unittest.main()
