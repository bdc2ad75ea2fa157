"""The Python code of docs/xla.md runs unchanged, in the repository's root."""

import os
import re
import unittest

import support

import numpy as np


class Guide(unittest.TestCase):
    def test_the_code_of_the_guide(self):
        text = (support.ROOT / "docs" / "xla.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 1)
        before, names = os.getcwd(), {}
        self.addCleanup(os.chdir, before)
        os.chdir(support.ROOT)
        for block in blocks:
            exec(compile(block, "docs/xla.md", "exec"), names)
        self.assertEqual(names["gradient"].shape, (2, 60, 8))
        self.assertTrue(np.all(np.isfinite(names["gradient"])))


if __name__ == "__main__":
    unittest.main()
