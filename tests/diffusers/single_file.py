"""Single-file checkpoints, for single_file.cpp.

    single_file.py WHEELS FOLDER write            (WHEELS: where PyPI's packages are)
    single_file.py WHEELS FOLDER check
Ends with 77 if a package is missing. `write` creates the pipelines FOLDER/sd1, sd2 and sdxl with diffusers. `check`
reads FOLDER/NAME.safetensors, which pulse wrote for each, by diffusers' own conversion: every tensor must equal the
folder's, bit for bit. Then it writes FOLDER/published/NAME.safetensors in half precision, with everything else that
published files contain, and FOLDER/half/NAME, the folder with the same numbers.
"""

import sys
from pathlib import Path

from wheels import needed

FOLDER, TASK = Path(sys.argv[2]), sys.argv[3]
with needed():
    import diffusers
    import torch
    import transformers
    from diffusers.loaders import single_file_utils
    from safetensors.torch import load_file, save_file
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

for library in (diffusers, transformers):
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()


def text(kind, width, activation):
    return kind(
        CLIPTextConfig(
            vocab_size=40, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=3, num_attention_heads=2,
            max_position_embeddings=7, bos_token_id=0, eos_token_id=2, hidden_act=activation, projection_dim=width,
        )
    )


def unet(context, **options):
    down = ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D")
    return diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(4, 8, 16), layers_per_block=2, norm_num_groups=2, attention_head_dim=2,
        down_block_types=down, up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=context, **options,
    )


def parts():
    """Yields each pipeline's components that have weights."""
    torch.manual_seed(5)
    for name, context, second in (("sd1", 12, None), ("sd2", 16, None), ("sdxl", 12, 16)):
        more = {}
        if name != "sd1":
            more["use_linear_projection"] = True
        if second:
            more |= {"addition_embed_type": "text_time", "addition_time_embed_dim": 4,
                     "transformer_layers_per_block": (1, 1, 2), "projection_class_embeddings_input_dim": second + 6 * 4}
        made = {
            "unet": unet(context + (second or 0), **more),
            "vae": diffusers.AutoencoderKL(
                block_out_channels=(4, 8, 8), layers_per_block=2, norm_num_groups=2,
                down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
            ),
            "text_encoder": text(CLIPTextModel, context, "gelu" if name == "sd2" else "quick_gelu"),
        }
        if second:
            made["text_encoder_2"] = text(CLIPTextModelWithProjection, second, "gelu")
        for model in made.values():
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter)  # biases, too
        yield name, made


def save(folder, made):
    """Writes a folder without tokenizers and scheduler, which have no weights."""
    folder.mkdir(parents=True)
    lines = []
    for component, model in made.items():
        model.save_pretrained(folder / component)
        library = "transformers" if component.startswith("text") else "diffusers"
        lines.append(f'"{component}": ["{library}", "{type(model).__name__}"]')
    kind = "StableDiffusionXLPipeline" if "text_encoder_2" in made else "StableDiffusionPipeline"
    (folder / "model_index.json").write_text(f'{{"_class_name": "{kind}", {", ".join(lines)}}}')


def converted(component, model, checkpoint):
    """A component of a checkpoint, converted by diffusers; None if it has no function for that."""
    utils = single_file_utils
    if component == "unet":
        return utils.convert_ldm_unet_checkpoint(dict(checkpoint), config=dict(model.config))
    if component == "vae":
        return utils.convert_ldm_vae_checkpoint(dict(checkpoint), config=dict(model.config))
    if not hasattr(utils, "convert_open_clip_checkpoint"):
        return None  # diffusers 0.27, whose classes convert while they load
    prefix = {"text_encoder": "cond_stage_model.model.", "text_encoder_2": "conditioner.embedders.1.model."}[component]
    if any(key.startswith(prefix) for key in checkpoint):
        return utils.convert_open_clip_checkpoint(model, dict(checkpoint), prefix=prefix)
    return utils.convert_ldm_clip_checkpoint(dict(checkpoint))


def bare(tensors):
    """Removes the prefix that transformers 5.6 and later omit, and tensors that are no weights."""
    return {key.removeprefix("text_model."): value
            for key, value in tensors.items() if not key.endswith("position_ids")}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


if TASK == "write":
    for name, made in parts():
        save(FOLDER / name, made)
    sys.exit()

compared = 0
(FOLDER / "published").mkdir()
for name, made in parts():
    checkpoint = load_file(FOLDER / f"{name}.safetensors")
    for component, model in made.items():
        found = converted(component, model, checkpoint)
        if found is None:
            continue
        wanted, found = bare(model.state_dict()), bare(found)
        wrong = [key for key in wanted.keys() | found.keys()
                 if key not in wanted or key not in found or not same(wanted[key], found[key])]
        assert not wrong, f"{name}, {component}: {len(wrong)} of {len(wanted)} differ: {sorted(wrong)[:5]}"
        compared += len(wanted)
    # Published files have convolutions here; diffusers accepts matrices, too.
    assert checkpoint["first_stage_model.encoder.mid.attn_1.q.weight"].shape[2:] == (1, 1)
    # diffusers detects the kind of a model by this key.
    assert single_file_utils.LDM_UNET_KEY + "input_blocks.0.0.weight" in checkpoint

    published = {key: value.half() for key, value in checkpoint.items()}
    for key in [key for key in published if key.startswith("model.diffusion_model.")]:
        published["model_ema." + key[len("model."):].replace(".", "")] = published[key] + 1
    published["alphas_cumprod"] = torch.ones(5)
    if name == "sd2":  # the layer behind the states that are read; diffusers has none
        for key in [key for key in published if ".resblocks.2." in key]:
            published[key.replace(".resblocks.2.", ".resblocks.3.")] = published[key] + 1
        published["cond_stage_model.model.text_projection"] = torch.ones(4, 4).half()
        published["cond_stage_model.model.logit_scale"] = torch.tensor(1.0)
    else:
        prefix = "cond_stage_model.transformer." if name == "sd1" else "conditioner.embedders.0.transformer."
        published[prefix + "text_model.embeddings.position_ids"] = torch.arange(7).unsqueeze(0)
    if name == "sdxl":
        published["conditioner.embedders.1.model.logit_scale"] = torch.tensor(1.0)
    save_file({key: value.contiguous().clone() for key, value in published.items()},
              FOLDER / "published" / f"{name}.safetensors")
    save(FOLDER / "half" / name, {component: model.half() for component, model in made.items()})
print(compared, "tensors of checkpoints of one file equal diffusers' conversion")
