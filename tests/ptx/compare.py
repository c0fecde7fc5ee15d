"""Shared by tests of kernels: random numbers, comparisons, the end of a test."""

import re
import sys
import time

import numpy as np

from device import Device
from ptx import Fault, to_bfloat16

failures = []


class Numbers:
    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)

    def float32(self, *shape, mean=0.0):
        return (self.draw.standard_normal(shape) + mean).astype(np.float32)

    def bfloat16(self, *shape, mean=0.0):
        return to_bfloat16(self.float32(*shape, mean=mean))


def check(what, got, want, tolerance):
    """Checks that the RMS difference is at most `tolerance` of the RMS wanted value, and the greatest difference at
    most twice that share of the greatest wanted value."""
    difference = np.asarray(got, np.float64) - want
    mean = np.sqrt((difference**2).mean() / max((want**2).mean(), 1e-300))
    most = np.abs(difference).max() / max(np.abs(want).max(), 1e-300)
    good = mean <= tolerance and most <= 2 * tolerance
    print(f"{'' if good else 'WRONG '}{what}: {mean:.1e} in the mean, {most:.1e} at most, of {tolerance:.1e}")
    if not good:
        failures.append(what)


def main(run, names):
    """Runs a test on a device with the library that the command names; every kernel that matches `names` must run."""
    start = time.time()
    np.seterr(all="ignore")
    try:
        device = Device(sys.argv[1])
        run(device)
        failures.extend(f"{kernel} has not run" for kernel in device.kernels.keys() - device.launched
                        if re.search(names, kernel))
    except Fault as fault:
        failures.append(str(fault))
    print("\n".join("WRONG " + what for what in failures) + f"\n{time.time() - start:.1f} s")
    sys.exit(1 if failures else 0)
