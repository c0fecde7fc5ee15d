"""One training step of ControlNetModel on UNet2DConditionModel, for control_step.cpp.

    control_step.py WHEELS FOLDER...              (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing. FOLDER/pipeline is what pulse wrote. FOLDER/in holds numbers, as listed by
shapes.json: images and noise with channels last, times, text states and other conditions of the UNet, hints, then the
ControlNet's parameters. FOLDER/out gets the parameters that diffusers starts with, the loss, and every gradient, in the
order of shapes.json.
"""

import json
import sys
from pathlib import Path

from wheels import needed

with needed():
    import numpy
    import torch
    from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel


def step(folder):
    shapes = json.loads((folder / "shapes.json").read_text())
    numbers = torch.from_numpy(numpy.fromfile(folder / "in", dtype=numpy.float32))
    given, at = {}, 0
    for name, shape in shapes["in"] + shapes["parameters"]:
        count = int(numpy.prod(shape))
        given[name] = numbers[at : at + count].reshape(shape)
        at += count
    assert at == len(numbers)

    unet = UNet2DConditionModel.from_pretrained(folder / "pipeline" / "unet", low_cpu_mem_usage=False)
    unet.requires_grad_(False)
    control = ControlNetModel.from_unet(unet)
    scheduler = DDPMScheduler.from_pretrained(folder / "pipeline" / "scheduler")
    of_model = dict(control.named_parameters())
    names = [name for name, _ in shapes["parameters"]]
    assert sorted(of_model) == sorted(names), sorted(set(of_model) ^ set(names))
    pieces = [of_model[name].detach().clone() for name in names]
    control.load_state_dict({name: given[name] for name in names})

    image, noise, hint = (given[name].permute(0, 3, 1, 2) for name in ("image", "noise", "hint"))
    times, text = given["times"].long(), given["text"]
    sample = scheduler.add_noise(image, noise, times)
    more = {"text_embeds": given["pooled"], "time_ids": given["sizes"]} if "pooled" in given else None
    down, middle = control(sample, times, text, controlnet_cond=hint, added_cond_kwargs=more, return_dict=False)
    answer = unet(sample, times, text, added_cond_kwargs=more, down_block_additional_residuals=down,
                  mid_block_additional_residual=middle).sample
    loss = torch.nn.functional.mse_loss(answer, scheduler.get_velocity(image, noise, times))
    loss.backward()
    pieces += [loss.detach()] + [of_model[name].grad for name in names]
    torch.cat([piece.reshape(-1) for piece in pieces]).numpy().tofile(folder / "out")


for name in sys.argv[2:]:
    step(Path(name))
