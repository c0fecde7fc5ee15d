"""Draws configs of diffusers' backbones, for drawn_configs.cpp.

    drawn_configs.py WHEELS FOLDER                (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing. FOLDER/N gets the config.json that diffusers writes for random network N; `names`,
with the name and shape of a parameter per line; and, for a network that pulse has no layers for, `keys`: the
responsible keys, one of which pulse must name. Other UNets get `run`, as float32 with channels last: height, width, the
parameters' values, a sample, its time, text states, pooled text and six sizes, and the answer.
"""

import inspect
import json
import random
import sys
from pathlib import Path

from wheels import needed

FOLDER = Path(sys.argv[2])
with needed():
    import diffusers
    import torch
    from diffusers import UNet2DConditionModel, UNet2DModel
    from diffusers.utils import logging
logging.set_verbosity_error()
sys.path.append(str(Path(__file__).parents[1] / "support"))
import old_torch

old_torch.mend(torch)

COUNT = 200
HunyuanDiT2DModel = getattr(diffusers, "HunyuanDiT2DModel", None)  # newer than the other classes
draw = random.Random(20)

# Settings that pulse has no layers for, by class: a key, or keys that belong together.
UNKNOWN = {
    UNet2DConditionModel: [
        {"resnet_time_scale_shift": "scale_shift"}, {"act_fn": "gelu"}, {"dropout": 0.25},
        {"center_input_sample": True}, {"time_embedding_type": "fourier"}, {"class_embed_type": "timestep"},
        {"num_class_embeds": 5}, {"conv_in_kernel": 5}, {"conv_out_kernel": 1}, {"only_cross_attention": True},
        {"dual_cross_attention": True}, {"time_cond_proj_dim": 8}, {"time_embedding_dim": 40},
        {"timestep_post_act": "silu"}, {"resnet_out_scale_factor": 2.0},
        {"encoder_hid_dim": 6, "encoder_hid_dim_type": "text_image_proj", "cross_attention_dim": 6},
        {"encoder_hid_dim": 6, "encoder_hid_dim_type": "image_proj"}, {"mid_block_scale_factor": 2.0},
        {"mid_block_only_cross_attention": True}, {"time_embedding_act_fn": "silu"}, {"addition_embed_type": "text"}],
    UNet2DModel: [
        {"resnet_time_scale_shift": "scale_shift"}, {"act_fn": "gelu"}, {"dropout": 0.25},
        {"downsample_type": "resnet"}, {"upsample_type": "resnet"}, {"class_embed_type": "timestep"},
        {"num_class_embeds": 5}, {"center_input_sample": True}, {"time_embedding_type": "fourier"},
        {"mid_block_scale_factor": 2.0}],
    HunyuanDiT2DModel: [{"norm_type": "ada_norm"}, {"activation_fn": "gelu"}],
}


def one_or_each(levels, choose):
    return choose() if draw.random() < 0.5 else [choose() for _ in range(levels)]


def unet():
    """A UNet without text."""
    levels = draw.randint(1, 4)
    attends = [draw.random() < 0.4 for _ in range(levels)]
    return UNet2DModel, {
        "sample_size": draw.choice([16, (16, 24), None]), "in_channels": draw.randint(1, 4),
        "out_channels": draw.randint(1, 6), "block_out_channels": [draw.choice([8, 16, 24]) for _ in range(levels)],
        "layers_per_block": draw.randint(1, 3),
        "down_block_types": ["AttnDownBlock2D" if one else "DownBlock2D" for one in attends],
        "up_block_types": ["AttnUpBlock2D" if one else "UpBlock2D" for one in reversed(attends)],
        "attention_head_dim": draw.choice([8, 4, None]), "norm_num_groups": draw.choice([2, 4]),
        "norm_eps": draw.choice([1e-5, 1e-6]), "add_attention": draw.random() < 0.5,
        "downsample_padding": draw.randint(0, 1), "flip_sin_to_cos": draw.random() < 0.5,
        "freq_shift": draw.randint(0, 1)}


def unet_with_text():
    levels = draw.randint(1, 4)
    kinds = [draw.choice(["CrossAttn", "CrossAttn", "", "Attn"]) for _ in range(levels)]
    layers = one_or_each(levels, lambda: draw.randint(1, 3))
    down = [layers] * levels if isinstance(layers, int) else layers
    blocks, up = one_or_each(levels, lambda: draw.randint(1, 3)), None
    if draw.random() < 0.4:
        blocks = [[draw.randint(1, 2) for _ in range(n)] for n in down]
        up = [[draw.randint(1, 3) for _ in range(n + 1)] for n in reversed(down)]
    added = draw.random() < 0.3
    heads = one_or_each(levels, lambda: draw.choice([1, 2, 4] if "Attn" not in kinds else [2, 4]))
    return UNet2DConditionModel, {
        "sample_size": draw.choice([16, (16, 24), None]), "in_channels": draw.randint(1, 9),
        "out_channels": draw.randint(1, 6), "block_out_channels": [draw.choice([8, 16, 24]) for _ in range(levels)],
        "layers_per_block": layers, "down_block_types": [f"{one}DownBlock2D" for one in kinds],
        "up_block_types": [f"{one}UpBlock2D" for one in reversed(kinds)],
        "mid_block_type": draw.choice(["UNetMidBlock2DCrossAttn"] * 2 + ["UNetMidBlock2D", None]),
        "transformer_layers_per_block": blocks, "reverse_transformer_layers_per_block": up, "attention_head_dim": heads,
        "cross_attention_dim": draw.choice([6, 10]), "norm_num_groups": draw.choice([2, 4]),
        "use_linear_projection": draw.random() < 0.5, "downsample_padding": draw.randint(0, 1),
        "flip_sin_to_cos": draw.random() < 0.5, "freq_shift": draw.randint(0, 1),
        "encoder_hid_dim": draw.choice([None, None, 7]), "addition_embed_type": "text_time" if added else None,
        "addition_time_embed_dim": 4 if added else None, "projection_class_embeddings_input_dim": 30 if added else None}


def hunyuan_dit():
    heads, width = draw.choice([2, 4]), draw.choice([4, 8])
    return HunyuanDiT2DModel, {
        "num_attention_heads": heads, "attention_head_dim": width, "hidden_size": heads * width,
        "in_channels": draw.randint(1, 5), "patch_size": draw.choice([1, 2]), "sample_size": 8,
        "num_layers": draw.choice([4, 6]), "mlp_ratio": draw.choice([2.0, 4.0, 4.3637]), "cross_attention_dim": 6,
        "cross_attention_dim_t5": 16, "pooled_projection_dim": 6, "text_len": 5, "text_len_t5": 3,
        "activation_fn": "gelu-approximate", "use_style_cond_and_image_meta_size": draw.random() < 0.5}


def run(model, file):
    config = model.config
    step = 2 ** (len(config.block_out_channels) - 1)
    height, width = step * draw.randint(1, 2), step * draw.randint(1, 3)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.05 * torch.randn(value.shape))
        sample, time = torch.randn(1, config.in_channels, height, width), torch.tensor([37.0])
        given, text = [sample.permute(0, 2, 3, 1), time], {}
        if isinstance(model, UNet2DConditionModel):
            text["encoder_hidden_states"] = torch.randn(1, 77, config.encoder_hid_dim or config.cross_attention_dim)
            given.append(text["encoder_hidden_states"])
            if config.addition_embed_type:
                sizes = torch.tensor([[30.0, 40.0, 1.0, 2.0, 16.0, 24.0]])
                features = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
                pooled = torch.randn(1, features)
                text["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": sizes}
                given += [pooled, sizes]
        answer = model(sample, time, **text).sample.permute(0, 2, 3, 1)
    numbers = [*model.state_dict().values(), *given, answer]
    file.write_bytes(torch.tensor([height, width], dtype=torch.float32).numpy().tobytes()
                     + b"".join(one.contiguous().float().numpy().tobytes() for one in numbers))


def leave_out_defaults(kind, file):
    """A file may omit the defaults of its class, but pulse requires the levels."""
    usual = {name: json.loads(json.dumps(what.default))
             for name, what in inspect.signature(kind.__init__).parameters.items()
             if what.default is not inspect.Parameter.empty}
    levels = ("block_out_channels", "down_block_types", "up_block_types")
    config = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in config.items()
                                if key in levels or key not in usual or value != usual[key]}))


def forget_projection(file):
    """A file may omit, or set to null, the kind of projection that its class then chooses and always writes."""
    config = json.loads(file.read_text())
    if config.get("encoder_hid_dim_type") == "text_proj":
        del config["encoder_hid_dim_type"]
        config.update(draw.choice([{}, {"encoder_hid_dim_type": None}, {"encoder_hid_dim_type": "text_proj"}]))
        file.write_text(json.dumps(config))


torch.manual_seed(7)
made, faults = 0, []
while made != COUNT:
    kind, config = draw.choice([unet] + [unet_with_text] * 3 + [hunyuan_dit] * (HunyuanDiT2DModel is not None))()
    unknown = draw.choice(UNKNOWN[kind]) if draw.random() < 0.3 else {}
    try:
        model = kind(**{**config, **unknown})
    except Exception as fault:  # diffusers has no such network
        faults.append(fault)
        if len(faults) > 5 * COUNT:
            raise
        continue
    folder = FOLDER / str(made)
    model.save_config(folder)
    if draw.random() < 0.4:
        leave_out_defaults(kind, folder / "config.json")
    forget_projection(folder / "config.json")
    (folder / "names").write_text("".join(f"{name} {' '.join(map(str, one.shape))}\n"
                                          for name, one in model.state_dict().items()))
    keys = list(unknown)
    if kind is UNet2DConditionModel and not any("CrossAttn" in str(config[blocks])
                                                for blocks in ("down_block_types", "mid_block_type")):
        keys.append("no block has a transformer")  # it reads no text
    if kind is UNet2DConditionModel and isinstance(heads := config["attention_head_dim"], list):
        # on the way up, a level that attends to pixels only has the head features of its mirrored level
        alone = [level for level, one in enumerate(config["down_block_types"]) if one == "AttnDownBlock2D"]
        if len({heads[at] for level in alone for at in (level, len(heads) - 1 - level)}) > 1:
            keys.append("attention_head_dim")
    if keys:
        (folder / "keys").write_text("\n".join(keys))
    elif kind is not HunyuanDiT2DModel:
        run(model, folder / "run")
    made += 1
