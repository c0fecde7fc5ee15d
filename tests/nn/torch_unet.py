"""diffusers' UNet2DModel in plain PyTorch, written from its architecture. Computes the values that pulse is compared
with, also for U-ViT (torch_uvit.py), UNets with text (torch_text.py) and Hunyuan-DiT (torch_dit.py).

usage: torch_unet.py FOLDER. FOLDER/run.json has the config, the batch and the parameters' names and shapes; FOLDER/in
has float64 numbers: parameters in that order, input, timesteps, what the model's take_conditions reads, gradient of the
output (images with channels last).
Writes FOLDER/out: the output, the input's gradient and every parameter's gradient. Modules carry the state-dict names
of diffusers and of baofff/U-ViT and are loaded strictly, so a wrong name or shape is an error.
"""
import json
import math
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from torch_dit import HunyuanDiT
from torch_text import Embedding, SpatialTransformer, waves
from torch_uvit import UViT


class ResnetBlock(nn.Module):
    def __init__(self, inputs, outputs, embedding, groups, eps):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs, eps=eps)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time_emb_proj = nn.Linear(embedding, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs, eps=eps)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Attention(nn.Module):
    def __init__(self, channels, head_dim, groups, eps):
        super().__init__()
        self.heads = 1 if head_dim == 0 else channels // head_dim
        self.group_norm = nn.GroupNorm(groups, channels, eps=eps)
        self.to_q = nn.Linear(channels, channels)
        self.to_k = nn.Linear(channels, channels)
        self.to_v = nn.Linear(channels, channels)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x):
        batch, channels, height, width = x.shape
        tokens = self.group_norm(x).flatten(2).transpose(1, 2)

        def split(t):
            return t.reshape(batch, height * width, self.heads, channels // self.heads).transpose(1, 2)

        q, k, v = split(self.to_q(tokens)), split(self.to_k(tokens)), split(self.to_v(tokens))
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(channels // self.heads), dim=-1)
        mixed = (scores @ v).transpose(1, 2).reshape(batch, height * width, channels)
        return x + self.to_out[0](mixed).transpose(1, 2).reshape(batch, channels, height, width)


class Resample(nn.Module):
    """Holds the convolution of a downsampler or an upsampler."""

    def __init__(self, channels, stride, padding):
        super().__init__()
        self.asymmetric = stride == 2 and padding == 0
        self.up = stride == 1
        self.conv = nn.Conv2d(channels, channels, 3, stride=stride, padding=padding)

    def forward(self, x):
        if self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        if self.asymmetric:
            x = F.pad(x, (0, 1, 0, 1))
        return self.conv(x)


class Block(nn.Module):
    def __init__(self, resnets, attentions=(), downsampler=None, upsampler=None):
        super().__init__()
        self.resnets = nn.ModuleList(resnets)
        if attentions:
            self.attentions = nn.ModuleList(attentions)
        if downsampler is not None:
            self.downsamplers = nn.ModuleList([downsampler])
        if upsampler is not None:
            self.upsamplers = nn.ModuleList([upsampler])

    def attend(self, x, at, text):
        if not hasattr(self, "attentions"):
            return x
        attention = self.attentions[at]
        return attention(x, text) if isinstance(attention, SpatialTransformer) else attention(x)


class TimeEmbedding(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.linear_1 = nn.Linear(features, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, waves):
        return self.linear_2(F.silu(self.linear_1(waves)))


class UNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        channels = c["block_out_channels"]
        embedding, groups, eps = 4 * channels[0], c["norm_num_groups"], c["norm_eps"]
        levels, depth = len(channels), c["layers_per_block"]

        def resnet(inputs, outputs):
            return ResnetBlock(inputs, outputs, embedding, groups, eps)

        def attention(count, width, wanted, transformers):
            if transformers != 0:
                heads = c["transformer_heads"] or width // c["transformer_head_dim"]
                return [SpatialTransformer(width, heads, c["cross_attention_dim"], transformers, groups,
                                           c["use_linear_projection"]) for _ in range(count)]
            return [Attention(width, c["attention_head_dim"], groups, eps) for _ in range(count)] if wanted else []

        self.conv_in = nn.Conv2d(c["in_channels"], channels[0], 3, padding=1)
        self.time_embedding = TimeEmbedding(channels[0], embedding)
        if c["pooled"] != 0:
            self.add_embedding = Embedding(c["pooled"] + 6 * c["addition_time_embed_dim"], embedding, embedding)
        self.down_blocks = nn.ModuleList()
        left = [channels[0]]
        for i, width in enumerate(channels):
            before = channels[max(i - 1, 0)]
            last = i == levels - 1
            down = None if last else Resample(width, 2, c["downsample_padding"])
            self.down_blocks.append(Block([resnet(before if j == 0 else width, width) for j in range(depth)],
                                          attention(depth, width, c["attention"][i], c["transformers"][i]),
                                          downsampler=down))
            left += [width] * (depth if last else depth + 1)
        self.mid_block = Block([resnet(channels[-1], channels[-1]) for _ in range(2)],
                               attention(1, channels[-1], c["mid_block_attention"], c["mid_block_transformer_layers"]))
        self.up_blocks = nn.ModuleList()
        previous = channels[-1]
        for i, width in enumerate(reversed(channels)):
            resnets = []
            for _ in range(depth + 1):
                resnets.append(resnet(previous + left.pop(), width))
                previous = width
            up = None if i == levels - 1 else Resample(width, 1, 1)
            attends, transformers = c["attention"][levels - 1 - i], c["transformers"][levels - 1 - i]
            self.up_blocks.append(Block(resnets, attention(depth + 1, width, attends, transformers), upsampler=up))
        self.conv_norm_out = nn.GroupNorm(groups, channels[0], eps=eps)
        self.conv_out = nn.Conv2d(channels[0], c["out_channels"], 3, padding=1)

    def waves(self, timesteps):
        half = self.config["block_out_channels"][0] // 2
        exponents = -math.log(10000.0) * torch.arange(half, dtype=timesteps.dtype) / (half - self.config["freq_shift"])
        angles = timesteps[:, None] * torch.exp(exponents)[None, :]
        parts = [torch.sin(angles), torch.cos(angles)]
        return torch.cat(parts[::-1] if self.config["flip_sin_to_cos"] else parts, dim=-1)

    def take_conditions(self, take, batch):
        c = self.config
        text = take([batch, c["context_tokens"], c["cross_attention_dim"]]) if c["cross_attention_dim"] != 0 else None
        pooled = take([batch, c["pooled"]]) if c["pooled"] != 0 else None
        return text, pooled, take([batch, 6]) if c["pooled"] != 0 else None

    def forward(self, x, timesteps, conditions=(None, None, None)):
        text, pooled, sizes = conditions
        temb = self.time_embedding(self.waves(timesteps))
        if pooled is not None:
            size_waves = waves(sizes, self.config["addition_time_embed_dim"]).flatten(1)
            temb = temb + self.add_embedding(torch.cat([pooled, size_waves], dim=1))
        x = self.conv_in(x)
        skips = [x]
        for block in self.down_blocks:
            for j, resnet in enumerate(block.resnets):
                x = block.attend(resnet(x, temb), j, text)
                skips.append(x)
            if hasattr(block, "downsamplers"):
                x = block.downsamplers[0](x)
                skips.append(x)
        x = self.mid_block.resnets[0](x, temb)
        x = self.mid_block.resnets[1](self.mid_block.attend(x, 0, text), temb)
        for block in self.up_blocks:
            for j, resnet in enumerate(block.resnets):
                x = block.attend(resnet(torch.cat([x, skips.pop()], dim=1), temb), j, text)
            if hasattr(block, "upsamplers"):
                x = block.upsamplers[0](x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def main(folder):
    torch.set_num_threads(1)
    with open(folder + "/run.json", encoding="utf-8") as file:
        run = json.load(file)
    config, batch = run["config"], run["batch"]
    numbers = torch.from_numpy(numpy.fromfile(folder + "/in", dtype=numpy.float64))
    position = 0

    def take(shape):
        nonlocal position
        count = math.prod(shape)
        position += count
        return numbers[position - count:position].reshape(shape)

    model = {"uvit": UViT, "unet": UNet, "hunyuan_dit": HunyuanDiT}[config["kind"]](config).double()
    model.load_state_dict({name: take(shape) for name, shape in run["parameters"]}, strict=True)
    height, width = run["height"], run["width"]
    x = take([batch, height, width, config["in_channels"]]).permute(0, 3, 1, 2).clone().requires_grad_()
    timesteps = take([batch])
    conditions = model.take_conditions(take, batch)
    weights = take([batch, height, width, config["out_channels"]]).permute(0, 3, 1, 2)
    if position != len(numbers):
        raise SystemExit("numbers are left over")
    y = model(x, timesteps, conditions)
    (y * weights).sum().backward()
    gradients = dict(model.named_parameters())
    pieces = [y.detach().permute(0, 2, 3, 1), x.grad.permute(0, 2, 3, 1)]
    pieces += [gradients[name].grad for name, _ in run["parameters"]]
    torch.cat([piece.reshape(-1) for piece in pieces]).numpy().tofile(folder + "/out")


if __name__ == "__main__":
    main(sys.argv[1])
