"""Diffusers folders that fit pulse_train's sd_tiny, written by diffusers and transformers.

`write` raises ImportError where a package is missing; WHEELS is where PyPI's packages are, or nothing.
"""

import json
import os
import sys
import warnings


def silence(wheels):
    """Makes the packages importable, and quiet but for what they have to say about weights."""
    sys.path[:0] = [str(wheels)] if wheels else []
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", USE_TF="0",
                      TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    warnings.filterwarnings("ignore")


# CLIP's vocabulary is its 256 bytes, inside a word and at its end, merges, and the two ends of a text.
MERGES = [("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o</w>"), ("o", "f</w>"), ("r", "e"), ("re", "d</w>"), ("c", "a"),
          ("ca", "t</w>")]


def write_tokenizer(folder):
    from transformers import CLIPTokenizer
    from transformers.models.clip.tokenization_clip import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    words = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in MERGES]
    words += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=7)


def unet():
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24, attention_head_dim=(1, 2), use_linear_projection=True)


def scheduler(**options):
    from diffusers import DDIMScheduler

    usual = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012, "clip_sample": False,
             "set_alpha_to_one": False, "steps_offset": 1, "prediction_type": "v_prediction"}
    return DDIMScheduler(**{**usual, **options})


def write(folder, seed=14, **scheduling):
    """A StableDiffusionPipeline of random weights, which is returned."""
    import torch
    from diffusers import AutoencoderKL, StableDiffusionPipeline
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(seed)
    vae = AutoencoderKL(
        block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    text = CLIPTextModel(CLIPTextConfig(
        vocab_size=640, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=7))
    pipeline = StableDiffusionPipeline(
        vae=vae, text_encoder=text, tokenizer=write_tokenizer(folder.parent / (folder.name + ".tokenizer")), unet=unet(),
        scheduler=scheduler(**scheduling), safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    pipeline.save_pretrained(folder)
    return pipeline
