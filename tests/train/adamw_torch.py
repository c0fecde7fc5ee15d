"""Runs torch.optim.AdamW on given weights and gradients, for adamw.cpp.

    adamw_torch.py FOLDER N STEPS (LR BETA1 BETA2 EPS WEIGHT_DECAY)...
Ends with 77 without torch. FOLDER/in holds N weights and N gradients per step as float32; FOLDER/out gets, for each set
of constants, the weights and their two moments after all steps.
"""
import struct
import sys
from pathlib import Path

try:
    import torch
except ImportError as missing:
    sys.exit(print(missing) or 77)

folder, n, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
constants = [float(text) for text in sys.argv[4:]]
values = torch.tensor(struct.unpack(f"<{n * (steps + 1)}f", (folder / "in").read_bytes()))
with open(folder / "out", "wb") as file:
    for at in range(0, len(constants), 5):
        lr, beta1, beta2, eps, decay = constants[at : at + 5]
        weight = torch.nn.Parameter(values[:n].clone())
        optimizer = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
        for step in range(1, steps + 1):
            weight.grad = values[n * step : n * (step + 1)].clone()
            optimizer.step()
        state = optimizer.state[weight]
        out = torch.cat([weight.detach(), state["exp_avg"], state["exp_avg_sq"]]).tolist()
        file.write(struct.pack(f"<{3 * n}f", *out))
