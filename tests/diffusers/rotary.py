"""Cosines and sines of Hunyuan-DiT's rotary embedding by diffusers' pipeline, for rotary_parity.cpp.

    rotary.py WHEELS FOLDER                       (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing or older than the model. Each line of FOLDER/grids has rows, columns, features per
head and the side of the grid that the model was first trained on. FOLDER/out gets for each line cosines, then sines
[tokens][features], as float32.
"""

import sys
from pathlib import Path

from wheels import needed

FOLDER = Path(sys.argv[2])
with needed():
    from diffusers.models.embeddings import get_2d_rotary_pos_embed
    from diffusers.pipelines.hunyuandit.pipeline_hunyuandit import get_resize_crop_region_for_grid

with open(FOLDER / "out", "wb") as out:
    for line in (FOLDER / "grids").read_text().splitlines():
        rows, columns, features, side = map(int, line.split())
        region = get_resize_crop_region_for_grid((rows, columns), side)
        for table in get_2d_rotary_pos_embed(features, region, (rows, columns), output_type="pt"):
            out.write(table.float().numpy().tobytes())
