"""Folders of ControlNetModel written by pulse and diffusers, for control_folder.cpp.

    control_folder.py WHEELS FOLDER               (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing. FOLDER/models/NAME/mine is a ControlNet that pulse wrote over the UNet of
pipeline/unet; in has its numbers, as listed by names.json. theirs becomes the folder of from_unet's ControlNet, and out
its numbers in the same order. FOLDER/configs/NAME has configs alone: a UNet's in unet, and that of pulse's ControlNet
over it in control; from_unet's goes to theirs.
"""

import json
import sys
from pathlib import Path

from wheels import needed

FOLDER = Path(sys.argv[2])
with needed():
    import numpy
    import torch
    from diffusers import ControlNetModel, UNet2DConditionModel


def require_same(mine, theirs):
    """Asserts that two ControlNets have one config, apart from notes such as the version."""
    mine, theirs = (json.loads(one.to_json_string()) for one in (mine, theirs))
    for key, value in theirs.items():
        assert key in ("_diffusers_version", "_name_or_path") or mine[key] == value, (key, mine[key], value)


for folder in FOLDER.glob("models/*"):
    names = json.loads((folder / "names.json").read_text())
    numbers = torch.from_numpy(numpy.fromfile(folder / "in", dtype=numpy.float32))
    mine, found = ControlNetModel.from_pretrained(folder / "mine", low_cpu_mem_usage=False, output_loading_info=True)
    assert not any(found.values()), found
    tensors = mine.state_dict()
    assert sorted(tensors) == sorted(names), sorted(set(tensors) ^ set(names))
    assert torch.equal(torch.cat([tensors[name].reshape(-1) for name in names]), numbers)

    unet = UNet2DConditionModel.from_pretrained(folder / "pipeline" / "unet", low_cpu_mem_usage=False)
    theirs = ControlNetModel.from_unet(unet)
    require_same(mine, theirs)
    theirs.save_pretrained(folder / "theirs")
    tensors = theirs.state_dict()
    torch.cat([tensors[name].reshape(-1) for name in names]).numpy().tofile(folder / "out")

for folder in FOLDER.glob("configs/*"):
    unet = UNet2DConditionModel.from_config(UNet2DConditionModel.load_config(folder / "unet"))
    theirs = ControlNetModel.from_unet(unet, load_weights_from_unet=False)
    require_same(ControlNetModel.from_config(ControlNetModel.load_config(folder / "control")), theirs)
    theirs.save_config(folder / "theirs")
