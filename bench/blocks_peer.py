"""The torch side of bench_blocks: runs layers and training steps of UNets, and answers each JSON line with another.

usage: blocks_peer.py --mode eager|compile|graphs [--device cuda|cpu] [--precision master|autocast]
       blocks_peer.py --totals        checks the parameter totals of the models on the meta device
Requests: {"what": "about"}, {"what": "layer", "side", "channels", "skip", "conditioning", "text_features", "tokens",
"head_size", "batch", "rounds"} and {"what": "step", "model", "batch", "rounds"}.
Answers have "seconds" and "spread_percent", or "failure" with the reason; "out of memory" is one.

The modules are diffusers' UNet2DConditionModel with its state-dict names, its attention by
scaled_dot_product_attention, images channels last. Weights and inputs are drawn as pulse draws them
(nn/initialise.hpp), so that both sides can compare what they compute: "agreed" has the numbers of a layer or of the
first step.

A step has the precision of pulse's: everything in bfloat16 but master weights, AdamW's moments, the average and the
gradients that they are updated with, which are float32. --precision master keeps bfloat16 copies of the weights, which
leaves norms and activations in bfloat16 and costs one cast of weights and gradients a step, as in pulse; --precision
autocast is torch.autocast over float32 weights, which casts as much and takes norms in float32. Both clip the norm of
the gradient to 1, use AdamW(fused=True) and keep an average of the weights.

Modes: eager; compile: torch.compile with static shapes; graphs: compiled and replayed as CUDA graphs. On the CPU all is
float32.
"""
import argparse
import contextlib
import gc
import json
import math
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

MODELS = {
    "small": {"size": 8, "channels": [8, 16], "depth": 1, "transformers": [0, 1], "mid": 1, "context": 48, "tokens": 7,
              "head": 16, "pooled": 24, "waves": 16, "groups": 4, "total": 73820},
    "sd21": {"size": 96, "channels": [320, 640, 1280, 1280], "depth": 2, "transformers": [1, 1, 1, 0], "mid": 1,
             "context": 1024, "tokens": 77, "head": 64, "pooled": 0, "waves": 0, "groups": 32, "total": 865910724},
    "sdxl": {"size": 128, "channels": [320, 640, 1280], "depth": 2, "transformers": [0, 2, 10], "mid": 10,
             "context": 2048, "tokens": 77, "head": 64, "pooled": 1280, "waves": 256, "groups": 32,
             "total": 2567463684},
}
FLASH = getattr(F, "scaled_dot_product_attention", None)  # torch 1 has none
META = {"device": "meta"}  # modules are made without memory and filled afterwards


def attend(q, k, v):
    if FLASH is not None:
        return FLASH(q, k, v)
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1) @ v


def waves(numbers, features):
    """Cosines, then sines, in an additional last dimension."""
    half = features // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32, device=numbers.device) / half)
    angles = numbers[..., None] * rates
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class ResnetBlock(nn.Module):
    """`conditioning` already has its SiLU, which is the same for all blocks."""

    def __init__(self, inputs, outputs, conditioning, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs, eps=1e-5, **META)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, **META)
        self.time_emb_proj = nn.Linear(conditioning, outputs, **META)
        self.conv_shortcut = nn.Conv2d(inputs, outputs, 1, **META) if inputs != outputs else None
        self.norm2 = nn.GroupNorm(groups, outputs, eps=1e-5, **META)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, **META)

    def forward(self, x, conditioning):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(conditioning)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False, **META)
        self.to_k = nn.Linear(context, width, bias=False, **META)
        self.to_v = nn.Linear(context, width, bias=False, **META)
        self.to_out = nn.ModuleList([nn.Linear(width, width, **META)])

    def forward(self, x, context):
        def split(t):
            return t.view(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)

        mixed = attend(split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context)))
        return self.to_out[0](mixed.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([nn.ModuleDict({"proj": nn.Linear(width, 8 * width, **META)}), nn.Identity(),
                                  nn.Linear(4 * width, width, **META)])

    def forward(self, x):
        value, gate = self.net[0]["proj"](x).chunk(2, dim=-1)
        return self.net[2](value * F.gelu(gate))


class TransformerBlock(nn.Module):
    """Its parts in pulse's order."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, **META)
        self.attn1 = Attention(width, heads, width)
        self.norm2 = nn.LayerNorm(width, **META)
        self.attn2 = Attention(width, heads, context)
        self.norm3 = nn.LayerNorm(width, **META)
        self.ff = FeedForward(width)

    def forward(self, x, text):
        h = self.norm1(x)
        x = x + self.attn1(h, h)
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class Transformer(nn.Module):
    def __init__(self, width, heads, context, blocks, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, width, eps=1e-6, **META)
        self.proj_in = nn.Linear(width, width, **META)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(width, heads, context) for _ in range(blocks)])
        self.proj_out = nn.Linear(width, width, **META)

    def forward(self, x, text):
        batch, width, rows, columns = x.shape
        # moves nothing with channels last
        y = self.proj_in(self.norm(x).permute(0, 2, 3, 1).reshape(batch, rows * columns, width))
        for block in self.transformer_blocks:
            y = block(y, text)
        return x + self.proj_out(y).view(batch, rows, columns, width).permute(0, 3, 1, 2)


class Resample(nn.Module):
    def __init__(self, width, up):
        super().__init__()
        self.up = up
        self.conv = nn.Conv2d(width, width, 3, stride=1 if up else 2, padding=1, **META)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest") if self.up else x)


class Embedding(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.linear_1 = nn.Linear(features, width, **META)
        self.linear_2 = nn.Linear(width, width, **META)

    def forward(self, x):
        return self.linear_2(F.silu(self.linear_1(x)))


class Level(nn.Module):
    """ResNet blocks, each followed by a transformer if there are any, then a resampler if there is one."""

    def __init__(self, resnets, attentions, down=None, up=None):
        super().__init__()
        self.resnets = nn.ModuleList(resnets)
        self.attentions = nn.ModuleList(attentions)
        if down is not None:
            self.downsamplers = nn.ModuleList([down])
        if up is not None:
            self.upsamplers = nn.ModuleList([up])

    def step(self, at, x, conditioning, text):
        x = self.resnets[at](x, conditioning)
        return self.attentions[at](x, text) if at < len(self.attentions) else x


class UNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        channels, depth, embedding, groups = c["channels"], c["depth"], 4 * c["channels"][0], c["groups"]
        last = len(channels) - 1

        def transformers(count, width, blocks):
            return [Transformer(width, width // c["head"], c["context"], blocks, groups) for _ in range(count)] \
                if blocks else []

        self.conv_in = nn.Conv2d(4, channels[0], 3, padding=1, **META)
        self.time_embedding = Embedding(channels[0], embedding)
        if c["pooled"]:
            self.add_embedding = Embedding(c["pooled"] + 6 * c["waves"], embedding)
        self.down_blocks, self.up_blocks = nn.ModuleList(), nn.ModuleList()
        skips, width = [channels[0]], channels[0]
        for i, out in enumerate(channels):
            resnets = [ResnetBlock(width if j == 0 else out, out, embedding, groups) for j in range(depth)]
            down = Resample(out, False) if i != last else None
            self.down_blocks.append(Level(resnets, transformers(depth, out, c["transformers"][i]), down=down))
            skips += [out] * (depth + (i != last))
            width = out
        self.mid_block = Level([ResnetBlock(width, width, embedding, groups) for _ in range(2)],
                               transformers(1, width, c["mid"]))
        for i, out in reversed(list(enumerate(channels))):
            resnets = []
            for _ in range(depth + 1):
                resnets.append(ResnetBlock(width + skips.pop(), out, embedding, groups))
                width = out
            up = Resample(out, True) if i != 0 else None
            self.up_blocks.append(Level(resnets, transformers(depth + 1, out, c["transformers"][i]), up=up))
        self.conv_norm_out = nn.GroupNorm(groups, width, eps=1e-5, **META)
        self.conv_out = nn.Conv2d(width, 4, 3, padding=1, **META)

    def forward(self, x, times, text, pooled, sizes):
        kind = x.dtype
        embedding = self.time_embedding(waves(times, self.config["channels"][0]).to(kind))
        if pooled is not None:
            more = waves(sizes, self.config["waves"]).flatten(1).to(kind)
            embedding = embedding + self.add_embedding(torch.cat([pooled, more], dim=1))
        conditioning = F.silu(embedding)
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            for j in range(len(level.resnets)):
                x = level.step(j, x, conditioning, text)
                skips.append(x)
            if hasattr(level, "downsamplers"):
                x = level.downsamplers[0](x)
                skips.append(x)
        x = self.mid_block.step(0, x, conditioning, text)
        x = self.mid_block.step(1, x, conditioning, text)
        for level in self.up_blocks:
            for j in range(len(level.resnets)):
                x = level.step(j, torch.cat([x, skips.pop()], dim=1), conditioning, text)
            if hasattr(level, "upsamplers"):
                x = level.upsamplers[0](x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


# The functions below draw numbers as nn/initialise.hpp does, in 64-bit words that wrap around.
GOLDEN = 0x9e3779b97f4a7c15
WORD = (1 << 64) - 1


def mixed(z):
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & WORD
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & WORD
    return z ^ (z >> 31)


def sequence_of(name):
    state = mixed(1 + GOLDEN & WORD)
    for c in name.encode():
        state = mixed(state ^ c) + GOLDEN & WORD
    return state


def signed(word):
    return word - (1 << 64) if word >> 63 else word


def draw(name, into, bound=1.0):
    """Fills a tensor of floats with the sequence of that name, uniform in +-bound, in pieces to save memory."""
    sequence, flat = sequence_of(name), into.view(-1)
    for begin in range(0, flat.numel(), 1 << 24):
        piece = flat[begin:begin + (1 << 24)]
        z = (torch.arange(begin + 1, begin + 1 + piece.numel(), dtype=torch.int64, device=into.device)
             * signed(GOLDEN) + signed(sequence))
        for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb), (31, 1)):
            z = (z ^ ((z >> shift) & ((1 << (64 - shift)) - 1))) * signed(factor)
        piece.copy_((((z >> 11) & ((1 << 53) - 1)).double() * 2.0 ** -52 - 1.0) * bound)
    return into


def drawn(name, shape, device):
    return draw(name, torch.empty(shape, dtype=torch.float32, device=device))


def image(name, batch, channels, side, device):
    """Drawn channels last, returned as a view with channels first."""
    return drawn(name, (batch, side, side, channels), device).permute(0, 3, 1, 2)


PERIOD = 10007


def signature(tensors):
    """The numbers of bench/signature.hpp for concatenated tensors, images channels last."""
    flat = torch.cat([(t.permute(0, 2, 3, 1) if image else t).detach().reshape(-1).double() for t, image in tensors])
    folded = F.pad(flat, (0, -flat.numel() % PERIOD)).view(-1, PERIOD).sum(dim=0)
    probes = [drawn(f"probe {k}", (PERIOD,), flat.device).double() for k in range(4)]
    return [float(flat.square().sum().sqrt())] + [math.sqrt(3.0) * float(folded @ probe) for probe in probes]


def initialise(module, device, root=""):
    """Gives a module on the meta device memory and the initial weights of pulse."""
    module.to_empty(device=device)
    fans = {name: p.numel() // p.shape[0] for name, p in module.named_parameters()
            if name.endswith(".weight") and p.dim() >= 2}
    with torch.no_grad():
        for name, p in module.named_parameters():
            fan = fans.get(name.rsplit(".", 1)[0] + ".weight")
            if fan is None:
                p.fill_(1.0 if name.endswith(".weight") else 0.0)
            else:
                draw(root + name, p, 1.0 / math.sqrt(fan))
    return module


class Peer:
    def __init__(self, options):
        self.mode, self.device = options.mode, options.device
        self.cpu = self.device == "cpu"
        self.autocast = options.precision == "autocast" and not self.cpu
        self.kind = torch.float32 if self.cpu else torch.bfloat16
        if not self.cpu and not torch.cuda.is_available():
            raise RuntimeError("torch has no CUDA device")
        if self.mode != "eager" and not hasattr(torch, "compile"):
            raise RuntimeError("torch " + torch.__version__ + " has no torch.compile")
        torch.backends.cudnn.benchmark = True

    def about(self, _):
        device = "CPU" if self.cpu else torch.cuda.get_device_name()
        return {"torch": torch.__version__, "device": device, "precision": str(self.kind)[6:] if self.cpu else
                "autocast" if self.autocast else "bfloat16 with float32 master weights"}

    def compiled(self, call, mode=None):
        return call if self.mode == "eager" else torch.compile(call, dynamic=False, mode=mode)

    def timed(self, calls, warm_up, rounds):
        """Median seconds and spread of the calls, run in turn, by events on a GPU."""
        seconds = []
        for i in range(-warm_up, rounds):
            call = calls[i % len(calls)]
            if self.cpu:
                start = time.perf_counter()
                call()
                taken = time.perf_counter() - start
            else:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                call()
                end.record()
                end.synchronize()
                taken = 1e-3 * begin.elapsed_time(end)
            if i >= 0:
                seconds.append(taken)
        middle = statistics.median_high(seconds)
        ordered = sorted(seconds)
        spread = 50 * (ordered[rounds * 3 // 4] - ordered[rounds // 4]) / middle
        return {"seconds": middle, "spread_percent": spread}

    def layer(self, r):
        """Forward and backward pass of a layer with bfloat16 weights; four sets of inputs in turn, no step between."""
        side, channels, batch = r["side"], r["channels"], r["batch"]
        transformer = r["text_features"] != 0
        if transformer:
            block = Transformer(channels, channels // r["head_size"], r["text_features"], 1, 32)
        else:
            block = ResnetBlock(channels + r["skip"], channels, r["conditioning"], 32)
        if not transformer and r["skip"] != 0 and block.conv_shortcut is None:
            raise ValueError("a block with a skip has a shortcut")
        block = initialise(block, self.device, "block.").to(self.kind, memory_format=torch.channels_last)

        def leaf(t, wanted=True):
            return t.to(self.kind).contiguous(memory_format=torch.channels_last if t.dim() == 4 else
                                              torch.contiguous_format).requires_grad_(wanted)

        def inputs():
            made = [leaf(image("input", batch, channels, side, self.device))]
            if r["skip"]:
                made.append(leaf(image("skip", batch, r["skip"], side, self.device)))
            beside = leaf(drawn("context", (batch, r["tokens"], r["text_features"]), self.device), False) \
                if transformer else leaf(drawn("conditioning", (batch, r["conditioning"]), self.device))
            return made, beside, leaf(image("output_gradient", batch, channels, side, self.device), False)

        def whole(images, beside):
            return block(images[0] if len(images) == 1 else torch.cat(images, dim=1), beside)

        forward = self.compiled(whole)

        def run(images, beside, gradient):
            for t in [*images, beside, *block.parameters()]:
                t.grad = None
            y = forward(images, beside)
            y.backward(gradient)
            return y.detach()  # a live autograd graph of one stream cannot be captured in another

        sets = [inputs() for _ in range(1 if self.cpu else 4)]
        y = run(*sets[0])
        agreed = signature([(y, True)]) + signature([(x.grad, True) for x in sets[0][0]]) + \
            signature([(p.grad, False) for p in block.parameters()])
        calls = [lambda s=s: run(*s) for s in sets]
        if self.mode == "graphs":
            calls = [self.captured(call) for call in calls]
        return {**self.timed(calls, 4, r["rounds"]), "agreed": agreed}

    @staticmethod
    def captured(call):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def step(self, r):
        c, batch = MODELS[r["model"]], r["batch"]
        if not self.cpu:
            torch.cuda.reset_peak_memory_stats()
        model = initialise(UNet(c), self.device).to(memory_format=torch.channels_last)
        count = sum(p.numel() for p in model.parameters())
        if count != c["total"]:
            raise ValueError(f"{count} parameters")
        weights = list(model.parameters())
        casts = not self.cpu and not self.autocast
        if casts:
            masters = [nn.Parameter(p.detach().clone()) for p in weights]
            model.to(self.kind)
            weights = list(model.parameters())
            for master in masters:
                master.grad = torch.empty_like(master)
        else:
            masters = weights
        averages = [m.detach().clone() for m in masters]
        optimizer = torch.optim.AdamW(masters, lr=1e-5, weight_decay=0.01, **({} if self.cpu else {"fused": True}))

        x = image("input", batch, 4, c["size"], self.device).to(self.kind)
        target = image("target", batch, 4, c["size"], self.device).to(self.kind).float()
        text_count = batch * c["tokens"] * c["context"]
        all_text = drawn("text", (text_count + batch * c["pooled"],), self.device).to(self.kind)
        text = all_text[:text_count].view(batch, c["tokens"], c["context"])
        pooled = all_text[text_count:].view(batch, c["pooled"]) if c["pooled"] else None
        times = torch.tensor([float((321 + 37 * i) % 1000) for i in range(batch)], device=self.device)
        sizes = torch.tensor([[1024.0, 1024.0, 0.0, 0.0, 1024.0, 1024.0]] * batch, device=self.device)
        cast = torch.autocast("cuda", dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext()

        def loss_of():
            with cast:
                y = model(x, times, text, pooled, sizes)
            return F.mse_loss(y.float(), target), y.detach()

        loss_of = self.compiled(loss_of, "reduce-overhead" if self.mode == "graphs" else None)
        found = {}

        def step():
            if self.mode == "graphs":
                torch.compiler.cudagraph_mark_step_begin()
            for p in weights:
                p.grad = None
            loss, y = loss_of()
            loss.backward()
            if not found:
                conditioning = [(p.grad, False) for name, p in model.named_parameters() if "_embedding." in name]
                found["agreed"] = [float(loss), 0.0, count, *signature([(y, True)]), *signature(conditioning)]
            with torch.no_grad():
                if casts:
                    torch._foreach_copy_([m.grad for m in masters], [p.grad for p in weights])
                norm = nn.utils.clip_grad_norm_(masters, 1.0)
                optimizer.step()
                if hasattr(torch, "_foreach_lerp_"):
                    torch._foreach_lerp_(averages, masters, 1e-3)
                else:
                    for average, master in zip(averages, masters):
                        average.lerp_(master, 1e-3)
                if casts:
                    torch._foreach_copy_(weights, masters)
            if "loss" not in found:
                found.update(loss=float(loss), gradient_norm=float(norm))
                found["agreed"][1] = float(norm)

        result = self.timed([step], 4, r["rounds"])
        held = 0 if self.cpu else torch.cuda.max_memory_reserved()
        return {**result, **found, "bytes": held, "parameters": count}

    def answer(self, request):
        try:
            return {"about": self.about, "layer": self.layer, "step": self.step}[request["what"]](request)
        except Exception as e:  # the next request may still succeed
            if isinstance(e, getattr(torch.cuda, "OutOfMemoryError", ())) or "out of memory" in str(e):
                return {"failure": "out of memory"}
            return {"failure": f"{type(e).__name__}: {e}".splitlines()[0][:150]}

    def clean(self):
        if self.mode != "eager":
            torch._dynamo.reset()
            if self.mode == "graphs":  # CUDA graphs hold their memory
                from torch._inductor.cudagraph_trees import reset_cudagraph_trees
                reset_cudagraph_trees()
        gc.collect()
        if not self.cpu:
            torch.cuda.empty_cache()


def totals():
    for name, config in MODELS.items():
        count = sum(p.numel() for p in UNet(config).parameters())
        print(name, count)
        if count != config["total"]:
            raise SystemExit(f"{name} has {count} parameters instead of {config['total']}")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--mode", choices=["eager", "compile", "graphs"], default="eager")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--precision", choices=["master", "autocast"], default="master")
    options.add_argument("--totals", action="store_true")
    options = options.parse_args()
    if options.totals:
        return totals()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps what libraries print out of the answers
    try:
        peer = Peer(options)
    except RuntimeError as e:
        print(json.dumps({"failure": str(e)}), file=answers, flush=True)
        return None
    for line in sys.stdin:
        print(json.dumps(peer.answer(json.loads(line))), file=answers, flush=True)
        peer.clean()
    return None


if __name__ == "__main__":
    main()
