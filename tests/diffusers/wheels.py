"""Puts the PyPI packages that this room's scripts compare with, in sys.argv[1], on the path."""

import contextlib
import os
import sys
import warnings

sys.path.insert(0, sys.argv[1])
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
warnings.filterwarnings("ignore")


@contextlib.contextmanager
def needed():
    """Ends the script with 77 if an import inside fails: a package is missing, or too old."""
    try:
        yield
    except ImportError as missing:
        sys.exit(print(missing) or 77)
