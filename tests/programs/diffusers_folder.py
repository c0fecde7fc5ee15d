"""Shared by tests of pulse_train with a diffusers folder: folders, captioned pictures, and PyTorch's results for them.

Each is started with PROGRAM WHEELS [unittest arguments]     (WHEELS: where PyPI's packages are)
and ends with 77 when diffusers, transformers or PyTorch is missing.
"""

import json
import pathlib
import random
import shutil
import sys

import chance
import tiny_pipeline
from drawn_plans import scattered

WHEELS = sys.argv.pop(2)
from pulse_train import ROOM, Case, fresh, report
from files import Safetensors

tiny_pipeline.silence(WHEELS)
MODEL = {"model": "sd_tiny", "data": "synthetic"}
UNET = "unet/diffusion_pytorch_model.safetensors"
try:
    # The same noise that pulse_train uses by default: a run from these weights is the run that drew them.
    FROM = ROOM / "diffusers"
    PIPELINE = tiny_pipeline.write(FROM, beta_schedule="squaredcos_cap_v2", timestep_spacing="trailing")
    SDXL = ROOM / "sdxl"
    SDXL_PIPELINE = tiny_pipeline.write_sdxl(SDXL)
    import torch

    sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))
    import old_torch

    old_torch.mend(torch)
except ImportError as missing:
    sys.exit(print(f"skipped: {missing}") or 77)


def changed(folder=FROM):
    """A copy of the folder, to be modified."""
    copy = fresh()
    shutil.copytree(folder, copy)
    return copy


def plan_of(folder):
    return json.loads((folder / "plan.json").read_text())


def trains_alike_scattered(case, alone, *options, **what):
    """Whichever layers of the frozen networks a rank has: the bits of the run alone, in the planned memory."""
    profile, file = fresh(), fresh()
    options = ("--encode", "bubbles", *options)
    made = case.train(*options, "--ranks", 3, "--profile-out", profile, **what)
    parts = json.loads(profile.read_text())["frozen"]
    for number in range(2):
        plan = scattered(random.Random(number), plan_of(made), parts)
        file.write_text(json.dumps(plan))
        out = case.train(*options, "--plan", file, size=(), **what)
        case.assertEqual(plan_of(out)["frozen_tasks"], plan["frozen_tasks"])
        case.same_training(alone, out)
        case.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])


def encoded_in(cache):
    """The shards in a cache, without notes, which depend on the times of files."""
    return {name: content for name, content in files_of(cache).items() if name.endswith(".safetensors")}


def write_tensors(path, tensors, shapes):
    import numpy
    from safetensors.numpy import save_file

    save_file({name: numpy.frombuffer(content, "<f4").reshape(shapes[name]) for name, content in tensors.items()}, path,
              {"format": "pt"})


def with_weights(tensors, shapes):
    """A copy of the folder with other UNet weights."""
    folder = changed()
    write_tensors(folder / UNET, tensors, shapes)
    return folder


def first_weights(model, seed=5):
    """The checkpoint of a run with zero steps."""
    out = Case().train("--steps", 0, "--seed", seed, model=model, data="synthetic")
    return Safetensors(out / "checkpoint.safetensors")


def with_transformer(config, tensors, shapes):
    """A folder without text encoders for a backbone that this version of diffusers does not have."""
    folder = changed()
    for other in ("text_encoder", "tokenizer", "unet"):
        shutil.rmtree(folder / other)
    (folder / "transformer").mkdir()
    (folder / "transformer/config.json").write_text(json.dumps(config))
    weights = {name: content for name, content in tensors.items() if not name.startswith(("optimizer.", "ema."))}
    write_tensors(folder / "transformer/diffusion_pytorch_model.safetensors", weights, shapes)
    (folder / "model_index.json").write_text(json.dumps({
        "_class_name": "Pipeline", "scheduler": ["diffusers", "DDIMScheduler"], "vae": ["diffusers", "AutoencoderKL"],
        "transformer": ["diffusers", config["_class_name"]]}))
    return folder


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CAPTIONS = ["a photo of red", "photo", "a cat", "of a red cat", "caterpillar", "red red red", "", "of",
            "a red photo of a cat", "car"]
SEED = 3


def write_pictures(captions=CAPTIONS, widths=(16,), alpha=False):
    """A folder of pictures that the autoencoder takes unresized, cropped at the sides at most; with `alpha`, two out of
    three have an alpha channel."""
    import numpy
    from PIL import Image

    folder = fresh()
    folder.mkdir()
    source = numpy.random.default_rng(len(captions))
    lines = []
    for index, text in enumerate(captions):
        channels = 4 if alpha and index % 3 else 3
        pixels = source.integers(0, 256, (16, widths[index % len(widths)], channels), dtype=numpy.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        lines.append(json.dumps({"file_name": f"{index}.png", "text": text}))
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return folder


def write_classes(classes, widths=(16,)):
    """The same pictures in one folder per class."""
    flat, folder = write_pictures(widths=widths), fresh()
    for index in range(len(CAPTIONS)):
        of_class = folder / f"class{index % classes}"
        of_class.mkdir(parents=True, exist_ok=True)
        shutil.copy(flat / f"{index}.png", of_class)
    return folder


def sd_conditions(pipeline, caption, _picture, _seen):
    ids = pipeline.tokenizer(caption, padding="max_length", truncation=True, return_tensors="pt").input_ids
    return {"encoder_hidden_states": pipeline.text_encoder(ids)[0]}


def long_conditions(pipeline, caption, _picture, _seen):
    """States of two chunks, as in kohya-ss/sd-scripts: those of a tokenizer for texts as long as both together."""
    import torch

    inner = pipeline.tokenizer.model_max_length - 2
    text = pipeline.tokenizer(caption, padding="max_length", truncation=True, max_length=2 * inner + 2,
                              return_tensors="pt")
    ids = text.input_ids[0]
    end, pad = pipeline.tokenizer.eos_token_id, pipeline.tokenizer.pad_token_id
    chunks = []
    for first in (1, 1 + inner):
        chunk = torch.cat([ids[:1], ids[first:first + inner], ids[-1:]])
        if pad != end and chunk[-2] not in (end, pad):
            chunk[-1] = end
        if chunk[1] == pad:
            chunk[1] = end
        chunks.append(chunk)
    states = pipeline.text_encoder(torch.stack(chunks))[0]
    return {"encoder_hidden_states": torch.cat([states[0, :-1], states[1, 1:]])[None]}


def sdxl_conditions(pipeline, caption, picture, seen):
    import torch

    states, _, pooled, _ = pipeline.encode_prompt(caption, device="cpu", num_images_per_prompt=1,
                                                  do_classifier_free_guidance=False)
    sizes = torch.tensor([[*picture, (picture[0] - seen[0]) // 2, (picture[1] - seen[1]) // 2, *seen]])
    return {"encoder_hidden_states": states, "added_cond_kwargs": {"text_embeds": pooled, "time_ids": sizes}}


def hunyuan_conditions(pipeline, caption, picture, seen):
    import torch
    from diffusers.models.embeddings import get_2d_rotary_pos_embed

    names = {"": ("encoder_hidden_states", "text_embedding_mask"),
             "_2": ("encoder_hidden_states_t5", "text_embedding_mask_t5")}
    given = {}
    for place, (states, mask) in names.items():
        tokenizer = getattr(pipeline, "tokenizer" + place)
        text = tokenizer(caption, padding="max_length", truncation=True, return_tensors="pt")
        given[states] = getattr(pipeline, "text_encoder" + place)(text.input_ids, attention_mask=text.attention_mask)[0]
        given[mask] = text.attention_mask
    rotary = get_2d_rotary_pos_embed(8, ((0, 0), (4, 4)), (4, 4), output_type="pt")
    return {**given, "image_meta_size": torch.tensor([[*map(float, picture), *seen, 0, (picture[1] - 16) // 2]]),
            "style": torch.tensor([0]), "image_rotary_emb": rotary}


def expected_loss(data, captions, positions, pipeline=PIPELINE, conditions=sd_conditions, seen_at=None, most=8 * 8,
                  seed=SEED, at=None, level=None, masked=False):
    """PyTorch's mean loss over a step's samples; random choices are drawn here. seen_at(position) gives the height and
    width in which a picture is seen, and its number; latents have at most `most` pixels. `at`: the timestep of all
    samples. level(at), for processes without betas: the factors of image and noise, the time that the backbone reads,
    and the factors of both in its answer. `masked`: errors are weighted by the mean alpha of the pixels under them."""
    import numpy
    import torch
    from PIL import Image

    levels = pipeline.scheduler.alphas_cumprod
    losses = []
    with torch.no_grad():
        for position in positions:
            seen, index = seen_at(position) if seen_at else ((16, 16), chance.index_at(seed, position, len(captions)))
            stored = numpy.asarray(Image.open(data / f"{index}.png").convert("RGBA"), dtype=numpy.int32)
            picture = stored.shape[:2]
            top, left = ((whole - part) // 2 for whole, part in zip(picture, seen))
            stored = stored[top:, left:][:seen[0], :seen[1]]
            colours, alpha = stored[..., :3], stored[..., 3:]
            pixels = numpy.float32((colours * alpha + 255 * (255 - alpha) + 127) // 255) / 127.5 - 1
            height, width = seen[0] // 2, seen[1] // 2
            moments = pipeline.vae.encode(torch.tensor(pixels).permute(2, 0, 1)[None]).latent_dist

            def drawn(stream):
                normals = chance.normals(seed, stream, 4 * most * position, 4 * height * width)
                return torch.tensor(normals).view(1, height, width, 4).permute(0, 3, 1, 2)

            latents = pipeline.vae.config.scaling_factor * (moments.mean + moments.std * drawn(chance.POSTERIOR))
            time = chance.below(seed, chance.TIMESTEPS, len(levels), position) if at is None else at
            signal, noise = levels[time].sqrt(), (1 - levels[time]).sqrt()
            of_image, of_noise = -noise, signal
            if level:
                signal, noise, time, of_image, of_noise = level(time)
            noisy = signal * latents + noise * drawn(chance.NOISE)
            backbone = pipeline.unet if hasattr(pipeline, "unet") else pipeline.transformer
            condition = conditions(pipeline, captions[index], picture, seen)
            answer = backbone(noisy, torch.tensor([float(time)]), **condition).sample[:, :4]
            errors = (answer - (of_noise * drawn(chance.NOISE) + of_image * latents)).square()
            if masked:
                opaque = torch.tensor(numpy.float32(alpha[..., 0]) / 255)[None, None]
                errors = errors * torch.nn.functional.interpolate(opaque, size=(height, width), mode="area")
            losses.append(float(errors.mean()))
    return sum(losses) / len(losses)
