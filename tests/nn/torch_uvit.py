"""U-ViT (Bao et al. 2023) in plain PyTorch, written from its architecture with the state-dict names of
baofff/U-ViT. The config has sample_size, in_channels, patch, width, depth, heads, classes and conv.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class TokenBlock(nn.Module):
    """One transformer block of U-ViT; `joins` makes it read a skip first."""

    def __init__(self, width, heads, joins):
        super().__init__()
        self.heads = heads
        if joins:
            self.skip_linear = nn.Linear(2 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width, bias=False), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def attention(self, x):
        batch, tokens, width = x.shape
        parts = self.attn["qkv"](x).chunk(3, dim=-1)
        q, k, v = (t.reshape(batch, tokens, self.heads, -1).transpose(1, 2) for t in parts)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // self.heads), dim=-1)
        return self.attn["proj"]((weights @ v).transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x, skip=None):
        if skip is not None:
            x = self.skip_linear(torch.cat([x, skip], dim=-1))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


class UViT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        width, patch, channels, half = c["width"], c["patch"], c["in_channels"], c["depth"] // 2
        patches = (c["sample_size"] // patch) ** 2
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, width, patch, stride=patch)})
        self.extras = 2 if c["classes"] != 0 else 1
        if c["classes"] != 0:
            self.label_emb = nn.Embedding(c["classes"], width)
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + self.extras, width))
        self.in_blocks = nn.ModuleList([TokenBlock(width, c["heads"], False) for _ in range(half)])
        self.mid_block = TokenBlock(width, c["heads"], False)
        self.out_blocks = nn.ModuleList([TokenBlock(width, c["heads"], True) for _ in range(half)])
        self.norm = nn.LayerNorm(width)
        self.decoder_pred = nn.Linear(width, patch * patch * channels)
        self.final_layer = nn.Conv2d(channels, channels, 3, padding=1) if c["conv"] else None

    def waves(self, timesteps):
        half = self.config["width"] // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=timesteps.dtype) / half)
        angles = timesteps[:, None] * frequencies[None, :]
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)

    def positions(self, rows, columns):
        grid = self.config["sample_size"] // self.config["patch"]
        if (rows, columns) == (grid, grid):
            return self.pos_embed
        leading, of_patches = self.pos_embed[:, :self.extras], self.pos_embed[:, self.extras:]
        image = of_patches.reshape(1, grid, grid, -1).permute(0, 3, 1, 2)
        image = F.interpolate(image, size=(rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([leading, image.flatten(2).transpose(1, 2)], dim=1)

    def take_conditions(self, take, batch):
        return take([batch]) if self.config["classes"] != 0 else None

    def forward(self, x, timesteps, classes):
        patch, channels = self.config["patch"], self.config["in_channels"]
        rows, columns = x.shape[2] // patch, x.shape[3] // patch
        tokens = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = torch.cat([self.waves(timesteps)[:, None, :], tokens], dim=1)
        if classes is not None:
            x = torch.cat([self.label_emb(classes.long())[:, None, :], x], dim=1)
        x = x + self.positions(rows, columns)
        skips = []
        for block in self.in_blocks:
            x = block(x)
            skips.append(x)
        x = self.mid_block(x)
        for block in self.out_blocks:
            x = block(x, skips.pop())
        x = self.decoder_pred(self.norm(x))[:, self.extras:, :].reshape(-1, rows, columns, patch, patch, channels)
        x = x.permute(0, 5, 1, 3, 2, 4).reshape(-1, channels, rows * patch, columns * patch)
        return x if self.final_layer is None else self.final_layer(x)
