"""Runs diffusers' schedulers on a fixed network, for schedulers_parity.cpp.

    schedulers_diffusers.py FOLDER WHEELS            (WHEELS: where PyPI's packages are, or nothing)
Ends with 77 if a package is missing. Each line of FOLDER/cases is a JSON object: class, steps and config. FOLDER/start
holds noise and an image, as float32. FOLDER/out gets for each case, as float32: with betas, alphas_cumprod and, for
each time in TIMES, the network's input for image and noise, and v; for flow and EDM, per time, the time that the
network reads, its input, and its ideal answer; then time and input of each step, and the final images.
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


def levels_by_betas(scheduler):
    # DPM-Solver modifies this table for its own steps, and has no get_velocity
    table = diffusers.DDIMScheduler.from_config(scheduler.config)
    yield table.alphas_cumprod
    for t in map(torch.tensor, TIMES):
        yield from (table.add_noise(image, noise, t), table.get_velocity(image, noise, t))


def levels_of_flow(scheduler):
    """Inputs and targets as in diffusers' train_dreambooth_lora_sd3.py."""
    for t in TIMES:
        time = scheduler.timesteps[999 - t]
        yield from (time[None], scheduler.scale_noise(image, time[None], noise), noise - image)


def levels_of_edm(scheduler):
    """Inputs as in train_dreambooth_lora_sdxl.py for EDM; the answer by table 1 of Karras et al."""
    data, sign = scheduler.config.sigma_data, -1 if scheduler.config.prediction_type == "v_prediction" else 1
    for t in TIMES:
        sigma = scheduler.sigmas[999 - t].double()
        noisy = image.double() + sigma * noise.double()
        c_skip, c_out = data**2 / (sigma**2 + data**2), sign * sigma * data / (sigma**2 + data**2).sqrt()
        yield from (scheduler.timesteps[999 - t][None], scheduler.precondition_inputs(noisy, sigma),
                    (image - c_skip * noisy) / c_out)


with open(FOLDER / "out", "wb") as out:
    for line in (FOLDER / "cases").read_text().splitlines():
        case = json.loads(line)
        scheduler = getattr(diffusers, case["class"])(**case["config"])
        flow, edm = case["class"].startswith("Flow"), case["class"].startswith("EDM")
        values = list((levels_of_flow if flow else levels_of_edm if edm else levels_by_betas)(scheduler))
        x = noise * scheduler.init_noise_sigma if edm else noise
        scheduler.set_timesteps(case["steps"], **case.get("steps_by", {}))
        for t in scheduler.timesteps:
            seen = scheduler.scale_model_input(x, t) if edm else x
            values += [t[None].float(), seen]
            x = scheduler.step(network(seen, t), t, x).prev_sample
        out.write(torch.cat([*values, x]).float().numpy().tobytes())
