"""Where the packages of PyPI are found that this room's scripts compare with: sys.argv[1]."""

import contextlib
import os
import sys
import warnings

sys.path.insert(0, sys.argv[1])
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
warnings.filterwarnings("ignore")


@contextlib.contextmanager
def needed():
    """Imports inside end the script with 77 where a package is missing, or is older than what is asked of it."""
    try:
        yield
    except ImportError as missing:
        sys.exit(print(missing) or 77)
