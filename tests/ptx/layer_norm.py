"""Compares the LayerNorm kernels, run from their PTX, with double precision.   layer_norm.py LIBRARY"""

import ctypes

import numpy as np

from compare import Numbers, check, main
from ptx import from_bfloat16


class Shape(ctypes.Structure):
    _fields_ = [("features", ctypes.c_int), ("epsilon", ctypes.c_double)]


def layer_norm(device, numbers, rows, features):
    where = f"{rows} rows of {features}"
    shape = Shape(features, 1e-5)
    count = ctypes.c_int64(rows)
    memory = device.memory
    x, dy = [memory.put(numbers.bfloat16(rows, features, mean=mean)) for mean in (3, 0)]
    gamma, beta = [memory.put(numbers.bfloat16(features, mean=mean)) for mean in (1, 0)]
    y, dx = [memory.allocate(rows * features, np.uint16).reshape(x.shape) for _ in range(2)]
    statistics = memory.allocate(rows * 2, np.float32).reshape(rows, 2)
    dgamma, dbeta = [memory.put(numbers.float32(features)) for _ in range(2)]
    before = dgamma.copy(), dbeta.copy()
    device.call("forward_layer_norm", device.queue(), shape, count, x, gamma, beta, y, statistics)
    device.call("backward_layer_norm", device.queue(device.call("layer_norm_scratch", shape, count)), shape, count, x,
                gamma, statistics, dy, dx, dgamma, dbeta)

    values, slope, shift, given = [from_bfloat16(array).astype(np.float64) for array in (x, gamma, beta, dy)]
    mean = values.mean(1, keepdims=True)
    inverse = 1 / np.sqrt(values.var(1, keepdims=True) + 1e-5)
    normal = (values - mean) * inverse
    moved = given * slope
    moved = moved - moved.mean(1, keepdims=True) - normal * (moved * normal).mean(1, keepdims=True)
    check(where + ": mean", statistics[:, 0], mean[:, 0], 1e-6)
    check(where + ": 1 / sigma", statistics[:, 1], inverse[:, 0], 1e-6)
    check(where + ": y", from_bfloat16(y), normal * slope + shift, 2e-3)
    check(where + ": dx", from_bfloat16(dx), moved * inverse, 2e-3)
    check(where + ": dgamma", dgamma, before[0] + (given * normal).sum(0), 1e-6)
    check(where + ": dbeta", dbeta, before[1] + given.sum(0), 1e-6)


def run(device):
    numbers = Numbers(7)
    # As many accesses per lane as kernels have registers for, more, and single scalars.
    for case in ((37, 320), (21, 640), (18, 1280), (9, 2048), (5, 2816), (70, 100), (12, 33)):
        layer_norm(device, numbers, *case)


main(run, "layer_norm_|column_sums_kernelIf")
