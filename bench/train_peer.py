"""The torch side of bench_train_peer: trains the UNet of tests/nn/torch_unet.py and answers one request a line.

usage: train_peer.py FOLDER_OF_TORCH_UNET THREADS BATCH. Writes a JSON object about this torch, or one with the
"failure" that keeps it from beginning. Variants are "nchw", "nhwc" and both by torch.compile, "compiled_nchw" and
"compiled_nhwc". Reads "prepare VARIANT" from stdin, takes a first step, which compiles, and writes "ready" or why there
is none; reads "VARIANT", takes one training step (forward, MSE, backward, AdamW, gradients cleared), and writes its
milliseconds.
"""
import json
import os
import sys
import time

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # keeps what libraries and compilers print out of the answers


def answer(line):
    print(line, file=ANSWERS, flush=True)


os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[2]  # read when torch loads its BLAS
sys.path.insert(0, sys.argv[1])
try:
    import torch
    from torch.nn import functional as F
    from torch_unet import UNet
except Exception as e:  # missing or broken
    answer(json.dumps({"failure": str(e).partition("\n")[0]}))
    sys.exit()

CONFIG = {"sample_size": 28, "in_channels": 1, "out_channels": 1, "block_out_channels": [32, 64, 64],
          "layers_per_block": 2, "attention": [False, True, False], "attention_head_dim": 8, "norm_num_groups": 8,
          "norm_eps": 1e-5, "downsample_padding": 1, "flip_sin_to_cos": True, "freq_shift": 0,
          "mid_block_attention": True, "transformers": [0, 0, 0], "mid_block_transformer_layers": 0,
          "cross_attention_dim": 0, "pooled": 0}


def blas_in_use():
    """Which matrix library this process has loaded: with the reference BLAS torch is several times slower."""
    if torch.backends.mkl.is_available():
        return "MKL"
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return "OpenBLAS" if "openblas" in maps.read() else "reference BLAS (install libopenblas0-pthread)"


def adamw(parameters):
    try:
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    except (TypeError, RuntimeError):  # older versions have no fused one, or none on the CPU
        return torch.optim.AdamW(parameters, lr=1e-4)


def loss_of(model, x, times, target):
    return F.mse_loss(model(x, times), target)


def step_of(variant, batch):
    """A function that takes one training step; the first is already taken."""
    loss = torch.compile(loss_of, dynamic=False) if variant.startswith("compiled_") else loss_of
    layout = torch.channels_last if variant.endswith("nhwc") else torch.contiguous_format
    model = UNet(CONFIG).to(memory_format=layout)
    optimizer = adamw(model.parameters())
    x, target = torch.randn(batch, 1, 28, 28).to(memory_format=layout), torch.randn(batch, 1, 28, 28)
    times = torch.full((batch,), 321.0)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(model, x, times, target).backward()
        optimizer.step()

    step()
    return step


def prepare(steps, variant, batch):
    compiled = variant.startswith("compiled_")
    if compiled and not hasattr(torch, "compile"):
        return "not in this torch"
    try:
        steps[variant] = step_of(variant, batch)
    except Exception as e:  # the other variants may still run
        return f"does not {'compile' if compiled else 'run'}: {type(e).__name__}: {e}".splitlines()[0][:200]
    return "ready"


def main():
    batch = int(sys.argv[3])
    torch.set_num_threads(int(sys.argv[2]))
    torch.manual_seed(1)
    count = sum(p.numel() for p in UNet(CONFIG).parameters())
    answer(json.dumps({"torch": torch.__version__, "parameters": count, "blas": blas_in_use()}))
    steps = {}
    for line in sys.stdin:
        *asked, variant = line.split()
        if asked:
            answer(prepare(steps, variant, batch))
            continue
        start = time.perf_counter()
        steps[variant]()
        answer(1e3 * (time.perf_counter() - start))


main()
