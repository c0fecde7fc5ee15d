"""Compares the GroupNorm kernels, run from their PTX, with double precision.   group_norm.py LIBRARY"""

import ctypes

import numpy as np

from compare import Numbers, check, main
from ptx import from_bfloat16


class Shape(ctypes.Structure):
    _fields_ = [("channels", ctypes.c_int), ("second_channels", ctypes.c_int), ("groups", ctypes.c_int),
                ("pixels", ctypes.c_int), ("epsilon", ctypes.c_double), ("silu", ctypes.c_bool)]


def group_norm(device, numbers, batch, pixels, channels, second_channels, groups, silu):
    where = f"batch {batch}, {pixels} pixels of {channels} + {second_channels} channels, {groups} groups"
    shape = Shape(channels, second_channels, groups, pixels, 1e-5, silu)
    count = channels + second_channels
    memory = device.memory
    xa, xb, dy = [memory.put(numbers.bfloat16(batch, pixels, width, mean=mean))
                  for width, mean in ((channels, 8), (second_channels, 8), (count, 0))]
    before = memory.put(numbers.bfloat16(batch, pixels, channels))
    gamma, beta = [memory.put(numbers.bfloat16(count, mean=mean)) for mean in (1, 0)]
    y = memory.allocate(batch * pixels * count, np.uint16).reshape(batch, pixels, count)
    statistics = memory.allocate(batch * groups * 2, np.float32).reshape(batch, groups, 2)
    dxa = memory.put(before)
    dxb = memory.allocate(batch * pixels * second_channels, np.uint16).reshape(xb.shape)
    dgamma, dbeta = [memory.put(numbers.float32(count)) for _ in range(2)]
    sums_before = dgamma.copy(), dbeta.copy()
    device.call("forward_group_norm", device.queue(device.call("group_norm_scratch", shape, batch)), shape, batch, xa,
                xb if second_channels else None, gamma, beta, y, statistics)
    device.call("backward_group_norm", device.queue(device.call("group_norm_backward_scratch", shape, batch)), shape,
                batch, xa, xb if second_channels else None, gamma, beta, statistics, dy, dxa,
                dxb if second_channels else None, dgamma, dbeta)

    x = from_bfloat16(np.concatenate([xa, xb], 2)).astype(np.float64)
    by_group = lambda array: array.reshape(batch, pixels, groups, -1)
    mean_of = lambda array: by_group(array).mean((1, 3), keepdims=True)
    mean = mean_of(x)
    inverse = 1 / np.sqrt(((by_group(x) - mean) ** 2).mean((1, 3), keepdims=True) + 1e-5)
    normal = ((by_group(x) - mean) * inverse).reshape(x.shape)
    slope, shift = from_bfloat16(gamma).astype(np.float64), from_bfloat16(beta).astype(np.float64)
    u = normal * slope + shift
    sigmoid = 1 / (1 + np.exp(-u))
    du = from_bfloat16(dy).astype(np.float64) * (sigmoid * (1 + u * (1 - sigmoid)) if silu else 1)
    moved = by_group(du * slope) - mean_of(du * slope) - by_group(normal) * mean_of(du * slope * normal)
    dx = (moved * inverse).reshape(x.shape)
    check(where + ": mean", statistics[..., 0], mean[:, 0, :, 0], 1e-6)
    check(where + ": 1 / sigma", statistics[..., 1], inverse[:, 0, :, 0], 1e-6)
    check(where + ": y", from_bfloat16(y), u * sigmoid if silu else u, 2e-3)
    check(where + ": dxa", from_bfloat16(dxa), from_bfloat16(before) + dx[..., :channels], 2e-3)
    if second_channels:
        check(where + ": dxb", from_bfloat16(dxb), dx[..., channels:], 2e-3)
    check(where + ": dgamma", dgamma, sums_before[0] + (du * normal).sum((0, 1)), 1e-6)
    check(where + ": dbeta", dbeta, sums_before[1] + du.sum((0, 1)), 1e-6)


def run(device):
    numbers = Numbers(5)
    # Slabs that fit in shared memory and some that do not, of packs and of single scalars.
    for case in ((2, 64, 64, 32, 12, True), (1, 1200, 64, 64, 8, True), (2, 50, 30, 6, 6, False),
                 (1, 1700, 45, 0, 5, True)):
        group_norm(device, numbers, *case)


main(run, "group_norm_")
