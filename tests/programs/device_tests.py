"""Tests of a program that needs a CUDA device, emulated or real: skipped if it finds none."""

import os
import subprocess
import sys
import unittest


def main(probe, patience, environment=None):
    """Runs the tests of the calling script. `probe` is a command that names an impossible device: the program's error
    then tells first if there is no device at all."""
    done = subprocess.run([str(word) for word in probe], capture_output=True, text=True, timeout=patience,
                          env=environment)
    if "--backend cuda: there is no CUDA device" in done.stderr:
        print("GPU: none, the tests are skipped")
        sys.exit(1 if os.environ.get("PULSE_REQUIRE_GPU") == "1" else 77)
    unittest.main(verbosity=2)
