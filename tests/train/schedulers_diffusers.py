"""What diffusers' schedulers make of a fixed network, for schedulers_parity.cpp.

    schedulers_diffusers.py FOLDER WHEELS            (WHEELS: where PyPI's packages are, or nothing)
Ends with 77 when a package is missing. Each line of FOLDER/cases is a JSON object: class, steps and config.
FOLDER/start holds the noise, and an image, as float32. FOLDER/out gets, for each case, alphas_cumprod; of each time in
TIMES add_noise and get_velocity of image and noise; then time and images of each step, and the images at the end: all
float32.
"""

import json
import os
import sys
import warnings
from pathlib import Path

FOLDER = Path(sys.argv[1])
sys.path[:0] = sys.argv[2:]
os.environ.update(HF_HUB_OFFLINE="1", DIFFUSERS_VERBOSITY="critical")
warnings.filterwarnings("ignore")
try:
    import diffusers
    import numpy
    import torch
except ImportError as missing:
    sys.exit(print(missing) or 77)

TIMES = [0, 1, 400, 998, 999]
noise, image = torch.from_numpy(numpy.fromfile(FOLDER / "start", dtype=numpy.float32)).chunk(2)


def network(x, t):
    return 0.7 * torch.tanh(x) + 0.2 * torch.sin(3 * x + 0.01 * float(t))


with open(FOLDER / "out", "wb") as out:
    for line in (FOLDER / "cases").read_text().splitlines():
        case = json.loads(line)
        scheduler = getattr(diffusers, case["class"])(**case["config"])
        # DPM-Solver changes this table for its own steps, and has no get_velocity
        table = diffusers.DDIMScheduler.from_config(scheduler.config)
        values = [table.alphas_cumprod]
        for t in map(torch.tensor, TIMES):
            values += [table.add_noise(image, noise, t), table.get_velocity(image, noise, t)]
        x = noise
        scheduler.set_timesteps(case["steps"])
        for t in scheduler.timesteps:
            values += [t[None].float(), x]
            x = scheduler.step(network(x, t), t, x).prev_sample
        out.write(torch.cat([*values, x]).float().numpy().tobytes())
