"""The data of a step: the backbone's inputs and targets for some samples, made up or from pictures."""

import json
from functools import cache, cached_property

import torch
from diffusers import DDPMScheduler

from layers import Refused, kind_of

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


def made_up(backbone, samples, size, tokens, device):
    """Random inputs of the right shapes, and a target."""
    config = backbone.config

    def normal(*shape):
        return torch.randn(samples, *shape, device=device)

    sample, time = normal(config.in_channels, *size), torch.randint(1000, (samples,), device=device)
    given = [sample, time]
    if kind_of(backbone) == "HunyuanDiT2DModel":
        given = [sample, time.float()]
        for length, features in ((config.text_len, config.cross_attention_dim),
                                 (config.text_len_t5, config.cross_attention_dim_t5)):
            given += [normal(length, features), torch.randint(2, (samples, length), device=device).float()]
        given += [normal(6), torch.zeros(samples, dtype=torch.long, device=device)]
    elif kind_of(backbone) == "UNet2DConditionModel":
        features = config.encoder_hid_dim or config.cross_attention_dim
        given.append(normal(tokens, features if isinstance(features, int) else features[0]))
        if config.addition_embed_type == "text_time":
            pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            given += [normal(pooled), normal(6)]
    return tuple(given), torch.randn_like(sample)


class MadeUp:
    def __init__(self, options):
        self.ghost, self.rest = options.ghost(), (options.sample_size, options.tokens, options.device)

    def batch(self, samples):
        return made_up(self.ghost, samples, *self.rest)


class Pictures:
    """A folder's pictures and captions (a .txt beside each, or `text` in metadata.jsonl), encoded by the frozen parts
    of a pipeline folder before each step or, with --cache, once."""

    def __init__(self, folder, options):
        self.root, self.device, self.size = options.root, options.device, options.sample_size
        self.kind = options.kind.__name__
        if self.kind == "HunyuanDiT2DModel":
            raise Refused(f"--data {folder}: a {self.kind} can only be trained on synthetic data here")
        if self.kind == "UNet2DConditionModel" and not (self.root / "model_index.json").is_file():
            raise Refused(f"--data {folder}: pictures need encoders, but {self.root} is not a whole pipeline")
        table = folder / "metadata.jsonl"
        # Not splitlines, which also splits at separators that a caption may have.
        lines = table.read_text(encoding="utf-8-sig").split("\n") if table.is_file() else []
        rows = [json.loads(line) for line in lines if line.strip()]
        captions = {folder / row["file_name"]: row.get("text") or "" for row in rows}
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
        if not paths:
            raise Refused(f"--data {folder}: no pictures ({' '.join(PICTURES)})")
        beside = [path.with_suffix(".txt") for path in paths]
        self.pairs = [(path, text.read_text(encoding="utf-8-sig").strip() if text.is_file() else captions.get(path, ""))
                      for path, text in zip(paths, beside)]
        self.encode = cache(self.encoded) if options.cache else self.encoded

    @cached_property
    def noise(self):
        has_one = (self.root / "scheduler" / "scheduler_config.json").is_file()
        return DDPMScheduler.from_pretrained(self.root / "scheduler") if has_one else DDPMScheduler()

    @cached_property
    def frozen(self):
        from diffusers import DiffusionPipeline  # importing it takes seconds

        unused = {"unet", "safety_checker", "feature_extractor", "image_encoder"}
        parts = unused & json.loads((self.root / "model_index.json").read_text(encoding="utf-8")).keys()
        return DiffusionPipeline.from_pretrained(self.root, **dict.fromkeys(parts)).to(self.device)

    @torch.no_grad()
    def encoded(self, pair):
        """Latents or pixels of one sample, and its conditions."""
        from PIL import Image, ImageOps

        path, caption = pair
        latent = self.kind == "UNet2DConditionModel"
        size = tuple(extent * (self.frozen.vae_scale_factor if latent else 1) for extent in self.size)
        with Image.open(path) as picture:
            picture = ImageOps.fit(picture.convert("RGB"), size[::-1])
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(1, *size, 3).permute(0, 3, 1, 2)
        pixels = pixels.to(self.device) / 127.5 - 1
        if not latent:
            return (pixels,)
        vae = self.frozen.vae
        texts = self.frozen.encode_prompt(caption, device=self.device, num_images_per_prompt=1,
                                          do_classifier_free_guidance=False)
        sizes = torch.tensor([[*size, 0, 0, *size]], device=self.device).float()
        return (vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor, texts[0],
                *((texts[2], sizes) if len(texts) == 4 else ()))  # pooled text and sizes, for SDXL

    def batch(self, samples):
        chosen = [self.pairs[at] for at in torch.randint(len(self.pairs), (samples,))]
        latents, *conditions = (torch.cat(each) for each in zip(*map(self.encode, chosen)))
        noise, config = torch.randn_like(latents), self.noise.config
        time = torch.randint(config.num_train_timesteps, (samples,), device=self.device)
        targets = {"epsilon": lambda: noise, "sample": lambda: latents,
                   "v_prediction": lambda: self.noise.get_velocity(latents, noise, time)}
        return (self.noise.add_noise(latents, noise, time), time, *conditions), targets[config.prediction_type]()
