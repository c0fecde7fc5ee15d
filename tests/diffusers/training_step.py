"""One training step of UNet2DConditionModel, for training_step.cpp.

    training_step.py WHEELS FOLDER...             (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing. FOLDER/pipeline is what pulse wrote. FOLDER/in holds numbers, as listed by
shapes.json: images and noise with channels last, times, text states and other conditions of the model. FOLDER/out gets
the loss and every gradient, in the order of shapes.json.
"""

import json
import sys
from pathlib import Path

from wheels import needed

with needed():
    import numpy
    import torch
    from diffusers import DDPMScheduler, UNet2DConditionModel


def step(folder):
    shapes = json.loads((folder / "shapes.json").read_text())
    numbers = torch.from_numpy(numpy.fromfile(folder / "in", dtype=numpy.float32))
    given, at = {}, 0
    for name, shape in shapes["in"]:
        count = int(numpy.prod(shape))
        given[name] = numbers[at : at + count].reshape(shape)
        at += count
    assert at == len(numbers)

    model = UNet2DConditionModel.from_pretrained(folder / "pipeline" / "unet", low_cpu_mem_usage=False)
    scheduler = DDPMScheduler.from_pretrained(folder / "pipeline" / "scheduler")
    image, noise = (given[name].permute(0, 3, 1, 2) for name in ("image", "noise"))
    times = given["times"].long()
    more = {"text_embeds": given["pooled"], "time_ids": given["sizes"]} if "pooled" in given else None
    sample = scheduler.add_noise(image, noise, times)
    if "others" in given:
        sample = torch.cat([sample, given["others"].permute(0, 3, 1, 2)], dim=1)
    answer = model(sample, times, given["text"], added_cond_kwargs=more).sample
    loss = torch.nn.functional.mse_loss(answer, scheduler.get_velocity(image, noise, times))
    loss.backward()
    of_model = dict(model.named_parameters())
    assert sorted(of_model) == sorted(shapes["out"])
    pieces = [loss.detach()] + [of_model[name].grad for name in shapes["out"]]
    torch.cat([piece.reshape(-1) for piece in pieces]).numpy().tofile(folder / "out")


for name in sys.argv[2:]:
    step(Path(name))
