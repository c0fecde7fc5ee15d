"""torch.optim.AdamW on given weights and gradients, in raw float32 files.

IN OUT N STEPS LR BETA1 BETA2 EPS WEIGHT_DECAY."""
import struct
import sys

import torch

source, target, n, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lr, beta1, beta2, eps, decay = (float(text) for text in sys.argv[5:10])
with open(source, "rb") as file:
    values = torch.tensor(struct.unpack(f"<{n * (steps + 1)}f", file.read()))
weight = torch.nn.Parameter(values[:n].clone())
optimizer = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
for step in range(1, steps + 1):
    weight.grad = values[n * step : n * (step + 1)].clone()
    optimizer.step()
state = optimizer.state[weight]
out = torch.cat([weight.detach(), state["exp_avg"], state["exp_avg_sq"]]).tolist()
with open(target, "wb") as file:
    file.write(struct.pack(f"<{3 * n}f", *out))
