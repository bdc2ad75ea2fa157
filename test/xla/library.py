"""The library of the handlers and their names, for tests that run it in processes of their own: unlike support.py, this
registers nothing in the process that imports it."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "priv" / "exphil_native_xla.so"
HANDLERS = (
    "exphil_selective_scan",
    "exphil_selective_scan_grad",
    "exphil_scan_cumulative",
    "exphil_linear_recurrence",
    "exphil_linear_recurrence_grad",
    "exphil_diagonal_recurrence",
    "exphil_diagonal_recurrence_grad",
    "exphil_dense_recurrence",
    "exphil_dense_recurrence_grad",
)
