"""Compares the kernels of GEGLU, patches, padding, bias gradients, AdamW and 8-bit moments, run from their PTX, with
double precision, and codes with the host's formulas.   updates.py LIBRARY"""

import ctypes
import math

import numpy as np

from compare import Numbers, check, main
from ptx import from_bfloat16, to_bfloat16

BLOCK = 256  # neighbours that share a scale


class Update(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double)
                for name in ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay")] + [
                    ("step", ctypes.c_int64), ("gradient_scale", ctypes.c_double), ("average_decay", ctypes.c_double),
                    ("seed", ctypes.c_uint64)]


class Arrays(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_void_p)
        for name in ("gradients", "weights", "first_moment", "second_moment", "average", "compute", "first_codes",
                     "second_codes", "first_scales", "second_scales", "left_over")] + [("number", ctypes.c_uint64),
                                                                                    ("rows", ctypes.c_size_t)]


UPDATE = Update(1e-2, 0.9, 0.99, 1e-8, 0.1, 7, 0.5, 0.99, 11)


def geglu(device, numbers, rows, features):
    where = f"GEGLU, {rows} rows of {features}"
    memory = device.memory
    x = memory.put(numbers.bfloat16(rows, 2 * features))
    dy = memory.put(numbers.bfloat16(rows, features))
    y = memory.allocate(dy.size, np.uint16).reshape(dy.shape)
    dx = memory.allocate(x.size, np.uint16).reshape(x.shape)
    device.call("forward_geglu", device.queue(), ctypes.c_int64(rows), features, x, y)
    device.call("backward_geglu", device.queue(), ctypes.c_int64(rows), features, x, dy, dx)

    value, gate = np.split(from_bfloat16(x).astype(np.float64), 2, 1)
    given = from_bfloat16(dy).astype(np.float64)
    phi = 0.5 * (1 + np.vectorize(math.erf)(gate / math.sqrt(2)))
    bell = np.exp(-(gate**2) / 2) / math.sqrt(2 * math.pi)
    check(where + ": y", from_bfloat16(y), value * gate * phi, 2e-3)
    check(where + ": dx", from_bfloat16(dx),
          np.concatenate([given * gate * phi, given * value * (phi + gate * bell)], 1), 2e-3)


def same(what, got, want):
    check(what, got, np.asarray(want, np.float64), 0)


class PatchShape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("rows", "columns", "patch", "channels", "leading")]


def patches(device, numbers, rows, columns, patch, channels):
    where = f"{rows} x {columns} patches of {channels} channels"
    shape = PatchShape(rows, columns, patch, channels, 1)
    tokens = device.memory.put(numbers.bfloat16(2, 1 + rows * columns, patch * patch * channels))
    image = device.memory.allocate(2 * rows * columns * patch * patch * channels, np.uint16)
    again = device.memory.allocate(tokens.size, np.uint16).reshape(tokens.shape)
    device.call("move_to_image", device.queue(), shape, 2, tokens, image)
    device.call("move_to_patches", device.queue(), shape, 2, image, again)
    want = tokens[:, 1:].reshape(2, rows, columns, patch, patch, channels).transpose(0, 1, 3, 2, 4, 5).reshape(-1)
    same(where, image, want)
    same(where + ", back", again[:, 1:], tokens[:, 1:])
    same(where + ", the leading tokens", again[:, 0], np.zeros(again[:, 0].shape))


def padding(device, numbers, batch, tokens, features):
    where = f"padding of {batch} x {tokens} tokens of {features}"
    mask = device.memory.put((numbers.float32(batch, tokens) > 0).astype(np.float32))
    dy = device.memory.put(numbers.bfloat16(batch, tokens, features))
    dx = device.memory.allocate(dy.size, np.uint16).reshape(dy.shape)
    sums = device.memory.put(numbers.float32(tokens, features))
    want = sums + (from_bfloat16(dy).astype(np.float64) * (mask == 0)[..., None]).sum(0)
    device.call("backward_padding", device.queue(), batch, tokens, features, mask, dy, dx, sums)
    same(where + ": dx", from_bfloat16(dx), from_bfloat16(dy) * (mask != 0)[..., None])
    check(where + ": gradients", sums, want, 1e-6)


def bias(device, numbers, rows, features):
    dy = device.memory.put(numbers.bfloat16(rows, features))
    sums = device.memory.put(numbers.float32(features))
    want = sums + from_bfloat16(dy).astype(np.float64).sum(0)
    scratch = device.call("bias_gradient_scratch", ctypes.c_int64(rows), features)
    device.call("bias_gradient", device.queue(scratch), ctypes.c_int64(rows), features, dy, sums)
    check(f"gradients of {features} biases over {rows} rows", sums, want, 1e-6)


def stepped(gradient, weight, first, second):
    """Weight and moments after a step, in the type of the arguments."""
    u = UPDATE
    slope = u.gradient_scale * gradient
    first = u.beta1 * first + (1 - u.beta1) * slope
    second = u.beta2 * second + (1 - u.beta2) * slope**2
    root = np.sqrt(second / (1 - u.beta2**u.step)) + u.epsilon
    rate = u.learning_rate / (1 - u.beta1**u.step)
    return weight * (1 - u.learning_rate * u.weight_decay) - rate * first / root, first, second


class Weights:
    """Random weights of a model, their gradients, moments and averages, in a device's memory."""

    def __init__(self, device, numbers, size, odd=0):
        self.memory = device.memory
        self.size = size
        self.odd = odd  # offset of arrays from an aligned address
        self.gradients, self.weights, self.first, self.average = [self.put(numbers.float32(size)) for _ in range(4)]
        self.second = self.put(numbers.float32(size) ** 2)
        self.compute = self.put(to_bfloat16(self.weights))
        self.before = {name: np.copy(getattr(self, name)).astype(np.float64)
                       for name in ("gradients", "weights", "first", "second", "average")}

    def put(self, values):
        return self.memory.put(np.concatenate([np.zeros(self.odd, values.dtype), values]))[self.odd :]

    def arrays(self, **given):
        at = {"gradients": self.gradients, "average": self.average, "compute": self.compute} | given
        return Arrays(size=self.size, number=1 << 20,
                      **{name: array.ctypes.data for name, array in at.items() if array is not None})

    def want(self, weights=None, first=None, second=None):
        before = self.before
        return stepped(before["gradients"], before["weights"] if weights is None else weights,
                       before["first"] if first is None else first, before["second"] if second is None else second)


def adamw(device, numbers, function, size, odd):
    where = f"{function}, {size} weights, {odd} scalars beside a pack"
    w = Weights(device, numbers, size, odd)
    device.call(function, device.queue(), UPDATE,
                w.arrays(weights=w.weights, first_moment=w.first, second_moment=w.second))
    weights, first, second = w.want()
    check(where + ": weights", w.weights, weights, 1e-6)
    check(where + ": first moments", w.first, first, 1e-6)
    check(where + ": second moments", w.second, second, 1e-6)
    check(where + ": averages", w.average, 0.99 * w.before["average"] + 0.01 * weights, 1e-6)
    same(where + ": the copy", w.compute, to_bfloat16(w.weights))
    same(where + ": gradients", w.gradients, w.before["gradients"])


def codes_of(values, code_map):
    """Codes and scales of blocks, as in train::encode_block."""
    codes, scales = [], []
    for first in range(0, len(values), BLOCK):
        block = values[first : first + BLOCK]
        scale = block[np.argmax(np.abs(block))]
        scaled = block / scale
        at = np.maximum(np.searchsorted(code_map, scaled, "right") - 1, 0)
        following = np.minimum(at + 1, 255)
        at = at + ((at < 255) & (scaled - code_map[at] > code_map[following] - scaled))
        codes.append(np.where((at == 0) & (scaled > 0), 1, at))
        scales.append(scale)
    return np.concatenate(codes).astype(np.uint8), np.array(scales, np.float32)


def coded(device, numbers, size, master):
    where = f"8-bit moments, {size} weights, " + ("with masters" if master else "rounded by chance")
    w = Weights(device, numbers, size)
    maps = []
    for name in ("first_codes", "second_codes"):
        function = getattr(device.library, name)
        function.restype = ctypes.POINTER(ctypes.c_float * 256)
        maps.append(np.array(function().contents))
    codes, scales = zip(*[codes_of(moment, code_map) for moment, code_map in zip((w.first, w.second), maps)])
    codes = [device.memory.put(c) for c in codes]
    scales = [device.memory.put(s) for s in scales]
    decoded = [code_map[c] * np.repeat(s, BLOCK)[:size] for code_map, c, s in zip(maps, codes, scales)]
    start = None if master else from_bfloat16(w.compute).astype(np.float64)
    weights, first, second = w.want(start, *[d.astype(np.float64) for d in decoded])
    device.call("adamw_blocks", device.queue(), UPDATE,
                w.arrays(weights=w.weights if master else None, first_codes=codes[0], second_codes=codes[1],
                         first_scales=scales[0], second_scales=scales[1]))
    for name, moment, c, s, code_map in zip(("first", "second"), (first, second), codes, scales, maps):
        want, want_scales = codes_of(moment, code_map.astype(np.float64))
        check(f"{where}: {name} scales", s, want_scales, 1e-6)
        off = np.abs(c.astype(int) - want)  # off by one if a moment lies half way between two codes
        same(f"{where}: {name} codes", [off.max() <= 1, (off > 0).mean() < 1e-3], [1, 1])
    same(where + ": gradients", w.gradients, w.before["gradients"])
    if master:
        check(where + ": weights", w.weights, weights, 1e-6)
        same(where + ": the copy", w.compute, to_bfloat16(w.weights))
        return
    got = from_bfloat16(w.compute).astype(np.float64)
    step = 2.0 ** (np.floor(np.log2(np.abs(weights))) - 7)  # distance of neighbours in bfloat16
    error = (got - weights) / step
    same(where + ": a neighbour", [np.abs(error).max() < 1.001, abs(error.mean()) < 3 / math.sqrt(6 * size)], [1, 1])


def left_over(device, numbers, size):
    """Checks weights stored as the sum of two bfloat16."""
    where = f"weights in two halves, {size} of them"
    w = Weights(device, numbers, size)
    rest = w.put(to_bfloat16(w.weights - from_bfloat16(w.compute)))
    start = from_bfloat16(w.compute).astype(np.float64) + from_bfloat16(rest)
    device.call("adamw_blocks", device.queue(), UPDATE,
                w.arrays(left_over=rest, first_moment=w.first, second_moment=w.second))
    weights, _, _ = w.want(start)
    check(where, from_bfloat16(w.compute).astype(np.float64) + from_bfloat16(rest), weights, 2.0**-15)
    check(where + ": the first half", from_bfloat16(w.compute), weights, 3e-3)


def run(device):
    numbers = Numbers(9)
    geglu(device, numbers, 40, 96)
    geglu(device, numbers, 13, 21)
    patches(device, numbers, 3, 5, 2, 8)
    patches(device, numbers, 5, 3, 2, 3)
    padding(device, numbers, 3, 5, 16)
    padding(device, numbers, 2, 3, 5)
    bias(device, numbers, 300, 320)
    bias(device, numbers, 40, 5)
    adamw(device, numbers, "adamw", 20001, 0)
    adamw(device, numbers, "adamw", 999, 1)
    adamw(device, numbers, "adamw_blocks", 3000, 0)
    coded(device, numbers, 20000, True)
    coded(device, numbers, 3000, False)
    left_over(device, numbers, 3000)


main(run, "geglu_|patch_|padding_|column_sums_kernelI13|adamw_")
