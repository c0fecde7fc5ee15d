"""The torch side of bench_train_peer: trains the UNet of tests/nn/torch_unet.py and answers one request a line.

usage: train_peer.py FOLDER_OF_TORCH_UNET THREADS BATCH. Reads "nchw" or "nhwc" from stdin, takes one training step in
that memory format (forward, MSE, backward, AdamW, gradients cleared), and writes its milliseconds.
"""
import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[2]  # read when torch loads its BLAS
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

sys.path.insert(0, sys.argv[1])
from torch_unet import UNet  # noqa: E402

CONFIG = {"sample_size": 28, "in_channels": 1, "out_channels": 1, "block_out_channels": [32, 64, 64],
          "layers_per_block": 2, "attention": [False, True, False], "attention_head_dim": 8, "norm_num_groups": 8,
          "norm_eps": 1e-5, "downsample_padding": 1, "flip_sin_to_cos": True, "freq_shift": 0,
          "mid_block_attention": True, "transformers": [0, 0, 0], "mid_block_transformer_layers": 0,
          "cross_attention_dim": 0, "pooled": 0}


def blas_in_use():
    """Which matrix library this process has loaded: with the reference BLAS torch is several times slower."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return "OpenBLAS" if "openblas" in maps.read() else "reference BLAS (install libopenblas0-pthread)"


def main():
    threads, batch = int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    runs = {}
    for name, layout in (("nchw", torch.contiguous_format), ("nhwc", torch.channels_last)):
        model = UNet(CONFIG).to(memory_format=layout)
        x = torch.randn(batch, 1, 28, 28).to(memory_format=layout)
        runs[name] = (model, torch.optim.AdamW(model.parameters(), lr=1e-4), x, torch.randn(batch, 1, 28, 28))
    times = torch.full((batch,), 321.0)
    count = sum(p.numel() for p in runs["nchw"][0].parameters())
    print(f"{torch.__version__}, {count} parameters, {blas_in_use()}", flush=True)
    for line in sys.stdin:
        model, optimizer, x, target = runs[line.strip()]
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(x, times), target).backward()
        optimizer.step()
        print(1e3 * (time.perf_counter() - start), flush=True)


main()
