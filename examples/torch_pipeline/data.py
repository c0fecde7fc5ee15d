"""What a step reads: (what the backbone is given, what it should answer) of some samples, made up or of captioned pictures."""

import json
import random
from pathlib import Path

import torch
from diffusers import DDPMScheduler

from layers import Refused, kind_of

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def made_up(backbone, samples, size, tokens, source=None, device="cpu"):
    """Inputs of the right shapes, and a target."""
    config = backbone.config

    def normal(*shape):
        return torch.randn(samples, *shape, generator=source, device=device)

    sample, time = normal(config.in_channels, *size), torch.randint(1000, (samples,), generator=source, device=device)
    given = [sample, time]
    if kind_of(backbone) == "HunyuanDiT2DModel":
        texts = [(config.text_len, config.cross_attention_dim), (config.text_len_t5, config.cross_attention_dim_t5)]
        given = [sample, time.float()]
        for length, features in texts:
            mask = torch.randint(2, (samples, length), generator=source, device=device)
            given += [normal(length, features), mask.float()]
        given += [normal(6), torch.zeros(samples, dtype=torch.long, device=device)]
    elif kind_of(backbone) == "UNet2DConditionModel":
        features = config.encoder_hid_dim or config.cross_attention_dim
        given.append(normal(tokens, features if isinstance(features, int) else features[0]))
        if config.addition_embed_type == "text_time":
            given += [normal(config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim), normal(6)]
    return tuple(given), torch.randn(sample.shape, generator=source, device=device)


class MadeUp:
    def __init__(self, backbone, size, tokens, device):
        self.make = lambda samples, source: made_up(backbone, samples, size, tokens, source, device)
        self.source = torch.Generator(device).manual_seed(14)

    def batch(self, samples):
        return self.make(samples, self.source)


class Pictures:
    """Pictures of a folder with their captions (a .txt beside each, or `text` in metadata.jsonl), encoded by the frozen parts
    of a pipeline's folder, before each step or, with `cache`, once."""

    def __init__(self, folder, pipeline, backbone, size, device, cache):
        self.device, self.kind, self.encoded = device, kind_of(backbone), {} if cache else None
        if self.kind == "HunyuanDiT2DModel":
            raise Refused("--data: a HunyuanDiT2DModel is trained on synthetic data alone here")
        named = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines() if line.strip()] \
            if (folder / "metadata.jsonl").is_file() else []
        captions = {folder / one["file_name"]: one.get("text") or "" for one in named}
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
        if not paths:
            raise Refused(f"{folder}: no pictures ({' '.join(PICTURES)})")
        beside = {path: path.with_suffix(".txt") for path in paths}
        self.pairs = [(path, beside[path].read_text().strip() if beside[path].is_file() else captions.get(path, ""))
                      for path in paths]
        self.draw = random.Random(14)
        has_noise = (pipeline / "scheduler" / "scheduler_config.json").is_file()
        self.noise = DDPMScheduler.from_pretrained(pipeline / "scheduler") if has_noise else DDPMScheduler()
        self.size, self.frozen = size, None
        if self.kind == "UNet2DConditionModel":
            from diffusers import DiffusionPipeline  # takes seconds

            self.frozen = DiffusionPipeline.from_pretrained(pipeline, unet=None).to(device)
            self.size = tuple(extent * self.frozen.vae_scale_factor for extent in size)

    @torch.no_grad()
    def encode(self, pair):
        """Latents, and the conditions of one sample."""
        from PIL import Image, ImageOps

        path, caption = pair
        if self.encoded is not None and pair in self.encoded:
            return self.encoded[pair]
        with Image.open(path) as picture:
            picture = ImageOps.fit(picture.convert("RGB"), self.size[::-1])
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(*self.size, 3)
        pixels = pixels.permute(2, 0, 1)[None].to(self.device) / 127.5 - 1
        made = (pixels,)
        if self.frozen:
            vae = self.frozen.vae
            latents = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor
            texts = self.frozen.encode_prompt(caption, device=self.device, num_images_per_prompt=1,
                                              do_classifier_free_guidance=False)
            made = latents, texts[0]
            if len(texts) == 4:  # SDXL
                made += texts[2], torch.tensor([[*self.size, 0, 0, *self.size]], device=self.device).float()
        if self.encoded is not None:
            self.encoded[pair] = made
        return made

    def batch(self, samples):
        latents, *conditions = (torch.cat(each) for each in zip(*map(self.encode, self.draw.choices(self.pairs, k=samples))))
        noise = torch.randn_like(latents)
        time = torch.randint(self.noise.config.num_train_timesteps, (samples,), device=self.device)
        target = self.noise.get_velocity(latents, noise, time) if self.noise.config.prediction_type == "v_prediction" else noise
        return (self.noise.add_noise(latents, noise, time), time, *conditions), target
