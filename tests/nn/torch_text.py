"""The parts of diffusers' UNet2DConditionModel that read a text, in plain PyTorch, written from their architecture with
its state-dict names: the transformer over the pixels of an image and SDXL's second embedding.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


def waves(numbers, features, shift=0.0):
    """Cosines first; `numbers` may have any shape, and gets a last dimension."""
    half = features // 2
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=numbers.dtype) / (half - shift))
    angles = numbers[..., None] * frequencies
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class TextAttention(nn.Module):
    """Attention of `width` features over tokens of `context` features; `prepare` maps queries, keys per head."""

    def __init__(self, width, heads, context, bias):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=bias)
        self.to_k = nn.Linear(context, width, bias=bias)
        self.to_v = nn.Linear(context, width, bias=bias)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def prepare(self, q, k, crosses):
        return q, k

    def forward(self, x, context=None):
        crosses = context is not None
        context = context if crosses else x

        def split(t):
            return t.reshape(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context))
        q, k = self.prepare(q, k, crosses)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
        return self.to_out[0]((weights @ v).transpose(1, 2).reshape(x.shape))


class GatedFeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([nn.ModuleDict({"proj": nn.Linear(width, 8 * width)}), nn.Identity(),
                                  nn.Linear(4 * width, width)])

    def forward(self, x):
        value, gate = self.net[0]["proj"](x).chunk(2, dim=-1)
        return self.net[2](value * F.gelu(gate))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn1 = TextAttention(width, heads, width, False)
        self.attn2 = TextAttention(width, heads, context, False)
        self.ff = GatedFeedForward(width)

    def forward(self, x, text):
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class SpatialTransformer(nn.Module):
    def __init__(self, channels, heads, context, depth, groups, linear):
        super().__init__()
        self.linear = linear
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        make = (lambda: nn.Linear(channels, channels)) if linear else (lambda: nn.Conv2d(channels, channels, 1))
        self.proj_in, self.proj_out = make(), make()
        self.transformer_blocks = nn.ModuleList([TransformerBlock(channels, heads, context) for _ in range(depth)])

    def forward(self, x, text):
        batch, channels, height, width = x.shape

        def to_tokens(t):
            return t.permute(0, 2, 3, 1).reshape(batch, height * width, channels)

        def to_image(t):
            return t.reshape(batch, height, width, channels).permute(0, 3, 1, 2)

        y = self.norm(x)
        y = self.proj_in(to_tokens(y)) if self.linear else to_tokens(self.proj_in(y))
        for block in self.transformer_blocks:
            y = block(y, text)
        y = to_image(self.proj_out(y)) if self.linear else self.proj_out(to_image(y))
        return x + y


class Embedding(nn.Module):
    """Two linear layers with SiLU between them."""

    def __init__(self, features, hidden, width):
        super().__init__()
        self.linear_1 = nn.Linear(features, hidden)
        self.linear_2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.linear_2(F.silu(self.linear_1(x)))
