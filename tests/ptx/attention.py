"""Compares the attention kernels, run from their PTX, with double precision.   attention.py LIBRARY"""

import ctypes

import numpy as np

from compare import Numbers, check, main
from ptx import from_bfloat16


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("tokens", "heads", "head_size", "context_tokens")]


def heads_of(array, heads):
    """[batch][tokens][width] as [batch][head][tokens][numbers], in double precision."""
    batch, tokens, width = array.shape
    return from_bfloat16(array).astype(np.float64).reshape(batch, tokens, heads, -1).transpose(0, 2, 1, 3)


def attention(device, numbers, batch, tokens, keys, heads, head_size):
    where = f"batch {batch}, {tokens} tokens, {keys} keys, {heads} heads of {head_size}"
    shape = Shape(tokens, heads, head_size, 0 if keys == tokens else keys)
    width = heads * head_size
    memory = device.memory
    q, dout = [memory.put(numbers.bfloat16(batch, tokens, width)) for _ in range(2)]
    k, v = [memory.put(numbers.bfloat16(batch, keys, width)) for _ in range(2)]
    o, dq = [memory.allocate(batch * tokens * width, np.uint16).reshape(q.shape) for _ in range(2)]
    dk, dv = [memory.allocate(batch * keys * width, np.uint16).reshape(k.shape) for _ in range(2)]
    lse = memory.allocate(batch * heads * tokens, np.float32).reshape(batch, heads, tokens)
    device.call("forward_attention", device.queue(), shape, batch, q, k, v, o, lse)
    device.call("backward_attention", device.queue(device.call("attention_scratch", shape, batch)), shape, batch, q, k,
                v, o, lse, dout, dq, dk, dv)

    of = lambda array: heads_of(array, heads)
    scale = head_size**-0.5
    scores = of(q) @ of(k).transpose(0, 1, 3, 2) * scale
    most = scores.max(-1, keepdims=True)
    log_sums = most + np.log(np.exp(scores - most).sum(-1, keepdims=True))
    weights = np.exp(scores - log_sums)
    ds = weights * (of(dout) @ of(v).transpose(0, 1, 3, 2) - (of(dout) * of(o)).sum(-1, keepdims=True))
    # Weights and their gradients are rounded to bfloat16 before they are multiplied, and so are results.
    check(where + ": lse", lse, log_sums[..., 0], 4e-6)
    for name, got, want in (("o", o, weights @ of(v)), ("dv", dv, weights.transpose(0, 1, 3, 2) @ of(dout)),
                            ("dk", dk, ds.transpose(0, 1, 3, 2) @ of(q) * scale), ("dq", dq, ds @ of(k) * scale)):
        check(f"{where}: {name}", of(got), want, 3e-3)


def run(device):
    numbers = Numbers(3)
    for case in ((1, 128, 128, 1, 64), (2, 150, 77, 2, 64), (1, 33, 70, 2, 64), (1, 256, 192, 1, 56)):
        attention(device, numbers, *case)


main(run, "attention_")
