"""Hunyuan-DiT (Li et al. 2024) in plain PyTorch, written from its architecture with diffusers' state-dict names.

The config has sample_size, in_channels, patch, width, depth, heads, hidden, text_len, text_len_t5, text_width,
t5_width, span and v11.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_text import Embedding, TextAttention, waves


def rotations(grid, head_size, span):
    """Cosines and sines [tokens][head_size] of each feature's angle: columns rotate the first half, rows the second."""
    positions = torch.arange(grid, dtype=torch.float64) * (span / grid)
    quarter = head_size // 4
    frequencies = 10000.0 ** (-torch.arange(quarter, dtype=torch.float64) * 2 / (head_size // 2))
    rows, columns = torch.meshgrid(positions, positions, indexing="ij")
    angles = [places.reshape(-1)[:, None] * frequencies for places in (columns, rows)]
    angles = torch.cat([a.repeat_interleave(2, dim=1) for a in angles], dim=1)
    return torch.cos(angles), torch.sin(angles)


class NormedAttention(TextAttention):
    def __init__(self, width, heads, context, turns):
        super().__init__(width, heads, context, True)
        self.norm_q = nn.LayerNorm(width // heads, eps=1e-6)
        self.norm_k = nn.LayerNorm(width // heads, eps=1e-6)
        self.turns = turns

    def turned(self, x):
        cosines, sines = self.turns
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        partners = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1).reshape(x.shape)
        return x * cosines + partners * sines

    def prepare(self, q, k, crosses):
        q, k = self.turned(self.norm_q(q)), self.norm_k(k)
        return q, k if crosses else self.turned(k)


class ShiftedNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x, temb):
        return self.norm(x) + self.linear(F.silu(temb))[:, None, :]


class DitBlock(nn.Module):
    def __init__(self, c, turns, joins):
        super().__init__()
        width = c["width"]
        if joins:
            self.skip_norm = nn.LayerNorm(2 * width, eps=1e-6)
            self.skip_linear = nn.Linear(2 * width, width)
        self.norm1 = ShiftedNorm(width)
        self.attn1 = NormedAttention(width, c["heads"], width, turns)
        self.attn2 = NormedAttention(width, c["heads"], c["text_width"], turns)
        self.norm2, self.norm3 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.ff = nn.Module()
        self.ff.net = nn.ModuleList([nn.ModuleDict({"proj": nn.Linear(width, c["hidden"])}), nn.Identity(),
                                     nn.Linear(c["hidden"], width)])

    def forward(self, x, temb, text, skip=None):
        if skip is not None:
            x = self.skip_linear(self.skip_norm(torch.cat([x, skip], dim=-1)))
        x = x + self.attn1(self.norm1(x, temb))
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff.net[2](F.gelu(self.ff.net[0]["proj"](self.norm3(x)), approximate="tanh"))


class Pooler(nn.Module):
    """A single query, the text's mean, attends to the text."""

    def __init__(self, tokens, features, width):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.zeros(tokens + 1, features))
        self.k_proj, self.q_proj = nn.Linear(features, features), nn.Linear(features, features)
        self.v_proj, self.c_proj = nn.Linear(features, features), nn.Linear(features, width)

    def forward(self, text):
        x = torch.cat([text.mean(dim=1, keepdim=True), text], dim=1) + self.positional_embedding
        q, k, v = (t.reshape(t.shape[0], t.shape[1], 8, -1).transpose(1, 2)
                   for t in (self.q_proj(x[:, :1]), self.k_proj(x), self.v_proj(x)))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(x.shape[0], -1))


class TimeAndMore(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["width"]
        self.timestep_embedder = Embedding(256, width, width)
        self.pooler = Pooler(c["text_len_t5"], c["t5_width"], c["text_width"])
        features = c["text_width"]
        if c["v11"]:
            self.style_embedder = nn.Embedding(1, width)
            features += 6 * 256 + width
        self.extra_embedder = Embedding(features, 4 * width, width)

    def forward(self, timesteps, t5, sizes, style):
        extra = self.pooler(t5)
        if sizes is not None:
            extra = torch.cat([extra, waves(sizes, 256).flatten(1), self.style_embedder(style.long())], dim=1)
        return self.timestep_embedder(waves(timesteps, 256)) + self.extra_embedder(extra)


class HunyuanDiT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        width, patch = c["width"], c["patch"]
        grid = c["sample_size"] // patch
        turns = rotations(grid, width // c["heads"], c["span"])
        self.time_extra_emb = TimeAndMore(c)
        self.text_embedder = Embedding(c["t5_width"], 4 * c["t5_width"], c["text_width"])
        self.text_embedding_padding = nn.Parameter(torch.zeros(c["text_len"] + c["text_len_t5"], c["text_width"]))
        self.pos_embed = nn.ModuleDict({"proj": nn.Conv2d(c["in_channels"], width, patch, stride=patch)})
        self.blocks = nn.ModuleList([DitBlock(c, turns, i > c["depth"] // 2) for i in range(c["depth"])])
        self.norm_out = nn.ModuleDict({"linear": nn.Linear(width, 2 * width)})
        self.proj_out = nn.Linear(width, patch * patch * c["out_channels"])

    def take_conditions(self, take, batch):
        c = self.config
        clip = take([batch, c["text_len"], c["text_width"]])
        t5 = take([batch, c["text_len_t5"], c["t5_width"]])
        mask = take([batch, c["text_len"] + c["text_len_t5"]])
        return clip, t5, mask, take([batch, 6]) if c["v11"] else None, take([batch]) if c["v11"] else None

    def forward(self, x, timesteps, conditions):
        clip, t5, mask, sizes, style = conditions
        temb = self.time_extra_emb(timesteps, t5, sizes, style)
        text = torch.cat([clip, self.text_embedder(t5)], dim=1)
        text = torch.where(mask[:, :, None] != 0, text, self.text_embedding_padding)
        c = self.config
        x = self.pos_embed["proj"](x).flatten(2).transpose(1, 2)
        skips = []
        for i, block in enumerate(self.blocks):
            x = block(x, temb, text, skips.pop() if i > c["depth"] // 2 else None)
            if i < c["depth"] // 2 - 1:
                skips.append(x)
        scale, shift = self.norm_out["linear"](F.silu(temb)).chunk(2, dim=1)
        x = F.layer_norm(x, (c["width"],), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
        grid, patch = c["sample_size"] // c["patch"], c["patch"]
        x = self.proj_out(x).reshape(-1, grid, grid, patch, patch, c["out_channels"])
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, c["out_channels"], grid * patch, grid * patch)
