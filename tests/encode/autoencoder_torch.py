"""Runs diffusers' AutoencoderKL on the random data of autoencoder_parity.cpp.

    autoencoder_torch.py FOLDER WHEELS           (WHEELS: where PyPI's packages are, or nothing)
Ends with 77 if a package is missing. FOLDER/run.json has the config, the batch and the parameters' names and shapes.
FOLDER/in has float32 numbers: parameters in that order, images, noise for latents, latents (channels last). Writes to
FOLDER/out, as float64: moments, posterior samples times the scaling factor, and the decoded latents.
"""

import json
import math
import os
import sys
import warnings

FOLDER = sys.argv[1]
sys.path[:0] = sys.argv[2:]
os.environ.update(HF_HUB_OFFLINE="1", DIFFUSERS_VERBOSITY="error")
warnings.filterwarnings("ignore")
try:
    import numpy
    import torch
    from diffusers import AutoencoderKL
except ImportError as missing:
    sys.exit(print(missing) or 77)

torch.set_num_threads(1)
torch.set_grad_enabled(False)
with open(FOLDER + "/run.json", encoding="utf-8") as file:
    run = json.load(file)
numbers = torch.from_numpy(numpy.fromfile(FOLDER + "/in", dtype=numpy.float32)).double()
position = 0


def take(shape):
    global position
    count = math.prod(shape)
    position += count
    return numbers[position - count : position].reshape(shape)


def images(channels, size):
    return take([run["batch"], size, size, channels]).permute(0, 3, 1, 2)


config = run["config"]
levels = len(config["block_out_channels"])
model = AutoencoderKL(
    down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels, **config
).double()
model.eval()
weights = {name: take(shape) for name, shape in run["parameters"]}
if run["older_names"]:
    model._convert_deprecated_attention_blocks(weights)
model.load_state_dict(weights, strict=True)
pictures = images(config["in_channels"], config["sample_size"])
small = config["sample_size"] >> (levels - 1)
noise = images(config["latent_channels"], small)
latents = images(config["latent_channels"], small)
if position != len(numbers):
    raise SystemExit("numbers are left over")
posterior = model.encode(pictures).latent_dist
drawn = (posterior.mean + posterior.std * noise) * model.config.scaling_factor
made = [posterior.parameters, drawn, model.decode(latents).sample]
torch.cat([one.permute(0, 2, 3, 1).reshape(-1) for one in made]).numpy().tofile(FOLDER + "/out")
