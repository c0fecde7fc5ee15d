"""pulse_train with a diffusers folder: begins from one, leaves one, and diffusers writes and reads them.

Usage: pulse_train_folder.py PROGRAM WHEELS [unittest arguments]     (WHEELS: where PyPI's packages are)
Ends with 77 when diffusers, transformers or PyTorch is missing.
"""

import csv
import io
import json
import logging
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest
import zlib

import chance
import tiny_pipeline
from drawn_plans import drawn, scattered

WHEELS = sys.argv.pop(2)
from pulse_train import CLUSTER, PROGRAM, ROOM, Case, command, fresh, report
from files import Safetensors

tiny_pipeline.silence(WHEELS)
MODEL = {"model": "sd_tiny", "data": "synthetic"}
UNET = "unet/diffusion_pytorch_model.safetensors"
try:
    # The noise is that which pulse_train has by itself: a run from these weights is the run that drew them.
    FROM = ROOM / "diffusers"
    PIPELINE = tiny_pipeline.write(FROM, beta_schedule="squaredcos_cap_v2", timestep_spacing="trailing")
    SDXL = ROOM / "sdxl"
    SDXL_PIPELINE = tiny_pipeline.write_sdxl(SDXL)
except ImportError as missing:
    sys.exit(print(f"skipped: {missing}") or 77)


def changed(folder=FROM):
    """A copy of the folder, to be damaged."""
    copy = fresh()
    shutil.copytree(folder, copy)
    return copy


def plan_of(folder):
    return json.loads((folder / "plan.json").read_text())


def trains_alike_scattered(case, alone, *options, **what):
    """Whatever layers of the frozen networks a rank has: the bits of the run alone, in the memory that is planned."""
    profile, file = fresh(), fresh()
    options = ("--encode", "bubbles", *options)
    made = case.train(*options, "--ranks", 3, "--profile-out", profile, **what)
    layers = [len(part["layers"]) for part in json.loads(profile.read_text())["frozen"]]
    for number in range(2):
        plan = scattered(random.Random(number), plan_of(made), layers)
        file.write_text(json.dumps(plan))
        out = case.train(*options, "--plan", file, size=(), **what)
        case.assertEqual(plan_of(out)["frozen_tasks"], plan["frozen_tasks"])
        case.same_training(alone, out)
        case.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])


def encoded_in(cache):
    """What is encoded there, without notes, which know of the times of files."""
    return {name: content for name, content in files_of(cache).items() if name.endswith(".safetensors")}


def write_tensors(path, tensors, shapes):
    import numpy
    from safetensors.numpy import save_file

    save_file({name: numpy.frombuffer(content, "<f4").reshape(shapes[name]) for name, content in tensors.items()}, path,
              {"format": "pt"})


def with_weights(tensors, shapes):
    """The folder with other weights of its UNet."""
    folder = changed()
    write_tensors(folder / UNET, tensors, shapes)
    return folder


def first_weights(model, seed=5):
    """The checkpoint of a run without steps."""
    return Safetensors(Case().train("--steps", 0, "--seed", seed, model=model, data="synthetic") / "checkpoint.safetensors")


def with_transformer(config, tensors, shapes):
    """A folder for a backbone that this version of diffusers does not have, without text encoders."""
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


class Quickstart(Case):
    """A model of pixels, and the folder and captions that examples/fashion_mnist.py writes for it."""

    @classmethod
    def setUpClass(cls):
        script = pathlib.Path(__file__).parents[2] / "examples/fashion_mnist.py"
        cls.folder = ROOM / "fashion-mnist"
        done = subprocess.run([sys.executable, "-B", script, "write", cls.folder, "--count", "30"], capture_output=True, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(done.stderr)

    def test_trains_draws_and_is_what_pytorch_computes(self):
        import numpy
        import tarfile
        import torch
        from diffusers import DDIMScheduler, UNet2DConditionModel
        from PIL import Image
        from transformers import CLIPTextModel, CLIPTokenizer

        exported = fresh()
        options = ("--from", self.folder / "start", "--init", "--seed", SEED, "--lr", 1e-30, "--export", exported, "--prompts",
                   self.folder / "prompts.txt", "--steps", 2)
        what = {"model": "sd_fmnist", "data": self.folder / "pictures"}
        with tarfile.open(self.folder / "pictures/fashion-mnist.tar") as shard:
            members = {member.name: shard.extractfile(member).read() for member in shard}
        alone = self.train(*options, "--ranks", 1, **what)
        out = self.train(*options, "--ranks", 2, **what, sample=20)
        self.same_training(alone, out)
        self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        lines = [json.loads(line) for line in (out / "pictures/metadata.jsonl").read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], 2 * (self.folder / "prompts.txt").read_text().splitlines())
        for name, size in (("pictures/0003.png", (28, 28)), ("samples.png", (2 + 10 * 58, 2 + 2 * 58))):  # a column for each prompt
            with Image.open(out / name) as picture:
                self.assertEqual(picture.size, size)

        unet = UNet2DConditionModel.from_pretrained(exported / "unet", low_cpu_mem_usage=False)
        text = CLIPTextModel.from_pretrained(exported / "text_encoder")
        tokenizer = CLIPTokenizer.from_pretrained(exported / "tokenizer")
        noises = DDIMScheduler.from_pretrained(exported / "scheduler")
        self.assertIn("sneaker</w>", tokenizer.tokenize("a photo of a sneaker"))
        losses = []
        for position in range(16):
            name = f"{chance.index_at(SEED, position, 30):05}"
            pixels = numpy.asarray(Image.open(io.BytesIO(members[name + ".png"])), numpy.float32) / 127.5 - 1
            noise = torch.tensor(chance.normals(SEED, chance.NOISE, 784 * position, 784)).view(1, 1, 28, 28)
            time = chance.below(SEED, chance.TIMESTEPS, 1000, position)
            signal, share = noises.alphas_cumprod[time].sqrt(), (1 - noises.alphas_cumprod[time]).sqrt()
            clean = torch.tensor(pixels)[None, None]
            ids = tokenizer(members[name + ".txt"].decode(), padding="max_length", return_tensors="pt").input_ids
            with torch.no_grad():
                answer = unet(signal * clean + share * noise, time, text(ids)[0]).sample
            losses.append(float((answer - (signal * noise - share * clean)).square().mean()))
        for step, loss in enumerate(report(out)["loss"]):
            expected = sum(losses[8 * step:8 * step + 8]) / 8
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss} {expected}")


class Damaged(Case):
    def test_any_file_gives_one_line_or_is_harmless(self):
        draw = random.Random(14)
        data = write_pictures()
        refused = 0
        for number in range(30):
            folder, pictures = changed(), changed(data)
            file = draw.choice([path for place in (folder, pictures) for path in sorted(place.rglob("*")) if path.is_file()])
            content = bytearray(file.read_bytes())
            at = draw.randrange(min(len(content), 1000))  # where headers are
            how = draw.randrange(4)
            if how == 0:
                del content[at:]
            elif how == 1:
                content[at] = draw.randrange(256)
            elif how == 2:
                content[at:at] = draw.choice((b"\xff\xfe", b"9" * 20, b"{", b"\0"))
            else:
                del content[at:at + draw.randrange(1, 9)]
            file.write_bytes(content)
            with self.subTest(number=number, file=file.name, how=how, at=at):
                line = command("--from", folder, "--steps", 1, "--ranks", 2, out=fresh(), model="sd_tiny", data=pictures)
                done = self.ended(line)
                if done.returncode == 0:
                    continue
                refused += 1
                self.assertRegex(done.stderr, r"\Apulse_train: [^\n]+\n\Z")
                culprit = folder if file.is_relative_to(folder) else pictures
                self.assertIn(str(culprit), done.stderr)
                if file.suffix == ".png":
                    self.assertIn(file.name, done.stderr)
                    done = self.ended([*line, "--on-bad-picture", "skip"])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertRegex(done.stderr, rf"\A(pulse_train: skipped: [^\n]*{file.name}[^\n]*\n)*\Z")
        self.assertGreater(refused, 15)

    def ended(self, line):
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=60)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        return done


class Folders(Case):
    def test_untrained_export_is_the_folder(self):
        out, copy = fresh(), fresh()
        self.train("--from", FROM, "--steps", 0, "--export", copy, out=out, **MODEL)
        self.assertEqual(files_of(copy), files_of(FROM))
        self.assertEqual(list(out.iterdir()), [])  # nothing was planned or trained
        self.train("--from", FROM, "--steps", 0, "--export", copy, "--export-shard", 40000, "--export-type", "fp16", **MODEL)
        shards = sorted(path.name for path in (copy / "unet").glob("*.safetensors"))
        self.assertGreater(len(shards), 2)
        import torch
        from safetensors.torch import load_file
        read = {}
        for shard in shards:  # this version of diffusers does not read them
            read.update(load_file(copy / "unet" / shard))
        self.assertEqual(read.keys(), PIPELINE.unet.state_dict().keys())
        for name, value in PIPELINE.unet.state_dict().items():
            self.assertTrue(torch.equal(read[name], value.half()), name)

    def test_steps_without_a_learning_rate_leave_the_folder(self):
        """Weights and averages begin with those of the folder, on every rank."""
        import numpy

        for ranks, part in ((1, "averages"), (3, "averages"), (2, "weights")):
            exported = fresh()
            self.train("--from", FROM, "--steps", 2, "--ranks", ranks, "--lr", 1e-30, "--export", exported, "--export-of", part,
                       **MODEL)
            written = Safetensors(exported / UNET).tensors
            for name, content in Safetensors(FROM / UNET).tensors.items():
                expected, found = (numpy.frombuffer(data, "<f4") for data in (content, written[name]))
                self.assertLess(float(abs(expected - found).max()), 1e-7, f"{part}: {name}")

    def test_a_run_from_its_own_first_weights_is_the_same_run(self):
        start = self.train("--steps", 0, "--seed", 5, **MODEL) / "checkpoint.safetensors"
        first = Safetensors(start)
        weights = {name: content for name, content in first.tensors.items() if not name.startswith(("optimizer.", "ema."))}
        folder = with_weights(weights, first.shapes)
        for ranks in (1, 2):
            options = ("--steps", 3, "--seed", 5, "--ranks", ranks)
            whole = self.train(*options, **MODEL)
            begun = self.train("--from", folder, *options, **MODEL)
            self.assertEqual(report(begun)["loss"], report(whole)["loss"])
            self.assertEqual(Safetensors(begun / "checkpoint.safetensors").tensors,
                             Safetensors(whole / "checkpoint.safetensors").tensors)
        scratch = self.train("--from", FROM, "--init", *options, **MODEL)
        self.assertEqual(report(scratch)["loss"], report(whole)["loss"])
        other = self.train("--from", FROM, *options, **MODEL)
        self.assertNotEqual(report(other)["loss"][0], report(whole)["loss"][0])

    def test_export_after_training(self):
        from diffusers import StableDiffusionPipeline

        words = []
        handler = logging.Handler()
        handler.emit = lambda record: words.append(record.getMessage())
        for part, prefix in (("weights", ""), ("averages", "ema.")):
            exported = fresh()
            out = self.train("--from", FROM, "--steps", 2, "--export", exported, "--export-of", part, **MODEL)
            kept = Safetensors(out / "checkpoint.safetensors").tensors
            written = Safetensors(exported / UNET).tensors
            self.assertEqual(written, {name: kept[prefix + name] for name in written})
            self.assertNotEqual(files_of(exported)[UNET], files_of(FROM)[UNET])
            self.assertEqual({**files_of(exported), UNET: b""}, {**files_of(FROM), UNET: b""})
            for library in ("diffusers", "transformers"):
                logging.getLogger(library).addHandler(handler)
            read, info = type(PIPELINE.unet).from_pretrained(exported / "unet", low_cpu_mem_usage=False,
                                                             output_loading_info=True)
            self.assertFalse(any(info.values()), info)
            StableDiffusionPipeline.from_pretrained(exported, low_cpu_mem_usage=False)
            self.assertEqual(words, [])

    def test_resumes(self):
        whole = self.train("--from", FROM, "--steps", 4, **MODEL)
        half = self.train("--from", FROM, "--steps", 2, **MODEL)
        rest = self.train("--from", FROM, "--steps", 4, "--resume", half / "checkpoint.safetensors", **MODEL)
        self.same_tensors(rest, whole)
        # the noise of another folder
        other = changed()
        scheduler = other / "scheduler/scheduler_config.json"
        scheduler.write_text(scheduler.read_text().replace("v_prediction", "epsilon"))
        self.refuses("--from", other, "--steps", 4, "--resume", half / "checkpoint.safetensors",
                     names=["--resume", "prediction v", "epsilon"], **MODEL)

    def test_refusals(self):
        def refused(folder, *names, options=()):
            self.refuses("--from", folder, "--export", fresh(), *options, names=["--from", *names], **MODEL)

        refused("stabilityai/stable-diffusion-2-1", "no folder", "hf download", "save_pretrained")
        refused(FROM / UNET, UNET, "is a file", "from_single_file")
        for component in ("unet", "vae/", "scheduler"):
            refused(f"{FROM}/{component}", f"component of '{FROM.resolve()}'")
        folder = changed()
        (folder / "model_index.json").unlink()
        refused(folder, "model_index.json", "save_pretrained")
        for key, value in (("cross_attention_dim", 32), ("norm_eps", 1e-6), ("a_key_of_tomorrow", True)):
            folder = changed()
            config = json.loads((folder / "unet/config.json").read_text())
            before, config[key] = config.get(key), value
            (folder / "unet/config.json").write_text(json.dumps(config))
            refused(folder, "unet/config.json", key, str(value).lower())
        tensors = Safetensors(FROM / UNET)
        name = "mid_block.attentions.0.norm.weight"
        without = {key: value for key, value in tensors.tensors.items() if key != name}
        refused(with_weights(without, tensors.shapes), "unet", name)
        refused(with_weights(tensors.tensors, {**tensors.shapes, name: [4, 4]}), "unet", name, "4")
        folder = changed()
        (folder / UNET).write_bytes((folder / UNET).read_bytes()[:-9])
        refused(folder, UNET)
        folder = changed()
        (folder / UNET).rename(folder / "unet/diffusion_pytorch_model.bin")
        refused(folder, "unet", "diffusion_pytorch_model.bin", "safe_serialization=True")
        for file in (UNET, "vae/config.json", "tokenizer/tokenizer_config.json", "scheduler/scheduler_config.json",
                     "model_index.json"):
            folder = changed()
            (folder / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "5" * 64 + "\nsize 9\n")
            refused(folder, str(folder / file), "git lfs pull")

    def test_what_the_model_does_not_have_is_counted_and_left_out(self):
        import torch
        from safetensors.torch import load_file, save_file

        more = {f"ema.{index}": torch.ones(2, dtype=torch.int64) for index in range(7)}
        folder, exported, alone, out, copy = changed(), fresh(), fresh(), fresh(), fresh()
        for file in (UNET, "text_encoder/model.safetensors"):
            save_file({**load_file(folder / file), **more}, folder / file, {"format": "pt"})
        what = {"model": "sd_tiny", "data": write_pictures()}
        line = command("--from", folder, "--steps", 1, "--ranks", 2, "--export", exported, out=out, **what)
        names = "(ema.0, ema.1, ema.2, ema.3, ema.4, ...)"
        said = "7 tensors that the model does not have are not read " + names
        self.assertEqual(sorted(self.invoke(line, 0).stderr.splitlines()), [
            f"pulse_train: '{folder}/text_encoder': {said}", f"pulse_train: '{folder}/unet': {said}; --export is without them"])
        self.same_training(out, self.train("--from", FROM, "--steps", 1, "--ranks", 2, "--export", alone, **what))
        self.assertEqual({**files_of(exported), "text_encoder/model.safetensors": b""},
                         {**files_of(alone), "text_encoder/model.safetensors": b""})
        self.assertEqual(files_of(exported)["text_encoder/model.safetensors"],
                         files_of(folder)["text_encoder/model.safetensors"])
        # the names that a CLIP has which began without a folder
        file = "text_encoder/model.safetensors"
        save_file({name.removeprefix("text_model."): value for name, value in load_file(FROM / file).items()}, folder / file,
                  {"format": "pt"})
        shutil.copy(FROM / UNET, folder / UNET)
        self.same_training(out, self.train("--from", folder, "--steps", 1, "--ranks", 2, out=copy, **what))

    def test_halves_in_several_files(self):
        """As the newest libraries write variants; those of this version read no shards of one."""
        from safetensors.torch import load_file, save_file

        what = {"model": "sd_tiny", "data": write_pictures()}
        folder, whole = changed(), changed()
        for component, stem in (("unet", "diffusion_pytorch_model"), ("vae", "diffusion_pytorch_model"), ("text_encoder", "model")):
            file = f"{component}/{stem}.safetensors"
            tensors = {name: value.half() if value.is_floating_point() else value for name, value in load_file(FROM / file).items()}
            save_file(tensors, whole / file, {"format": "pt"})
            (folder / file).unlink()
            names, shards = sorted(tensors), {}
            for place, part in enumerate((names[::2], names[1::2]), 1):
                shard = f"{stem}.fp16-0000{place}-of-00002.safetensors"
                save_file({name: tensors[name] for name in part}, folder / component / shard, {"format": "pt"})
                shards.update(dict.fromkeys(part, shard))
            (folder / component / f"{stem}.safetensors.index.fp16.json").write_text(json.dumps({"weight_map": shards}))
        self.same_training(*(self.train("--from", one, "--steps", 1, **what) for one in (folder, whole)))

    def test_any_scheduler_with_betas_trains(self):
        import diffusers

        what = {"model": "sd_tiny", "data": "synthetic"}
        usual = self.train("--from", FROM, "--steps", 1, **what)
        folder = changed()
        betas = {"trained_betas": [float(beta) for beta in PIPELINE.scheduler.betas], "prediction_type": "v_prediction"}
        for name, options in (("EulerAncestralDiscrete", {}), ("UniPCMultistep", {"solver_order": 3, "use_karras_sigmas": True})):
            shutil.rmtree(folder / "scheduler")
            getattr(diffusers, f"{name}Scheduler")(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction",
                                                   **options).save_pretrained(folder / "scheduler")
            exported = fresh()
            self.same_training(usual, self.train("--from", folder, "--steps", 1, "--export", exported, **what))
            file = "scheduler/scheduler_config.json"
            self.assertEqual((exported / file).read_bytes(), (folder / file).read_bytes())
        line = [PROGRAM, "--model", "sd_tiny", "--from", folder, "--out", fresh(), "--steps", 0, "--sample-steps", 1, "--prompt", "a"]
        said = "drawing by --sampler ddim, where the folder's scheduler asks for UniPCMultistepScheduler, use_karras_sigmas true\n"
        self.assertEqual(self.invoke(line, 0).stdout.count(said), 1)
        line[line.index(folder)] = FROM
        self.assertNotIn("asks for", self.invoke(line, 0).stdout)
        # betas of a folder's own are another noise than that of any name
        shutil.rmtree(folder / "scheduler")
        diffusers.DDIMScheduler(**betas).save_pretrained(folder / "scheduler")
        kept = self.train("--from", folder, "--steps", 1, **what)
        self.assertAlmostEqual(report(kept)["loss"][0], report(usual)["loss"][0], delta=1e-5)
        self.refuses("--from", folder, "--steps", 2, "--resume", usual / "checkpoint.safetensors",
                     names=["--resume", "trained_betas", "cosine"], **what)

    def test_wrong_options(self):
        for option in (("--init",), ("--export", fresh())):
            self.refuses(*option, names=[option[0], "--from"], **MODEL)
        for option, value in (("--export-of", "weights"), ("--export-type", "fp16"), ("--export-shard", 5)):
            self.refuses("--from", FROM, option, value, names=[option, "--export"], **MODEL)
        for option, value in (("--prediction", "v"), ("--noise", "linear"), ("--zero-snr", "yes")):
            self.refuses("--from", FROM, option, value, names=[option, "scheduler of --from"], **MODEL)
        self.refuses("--from", FROM, "--export", FROM / "unet" / "here", names=["--export", "inside"], **MODEL)
        full = fresh()
        full.mkdir()
        (full / "letters.txt").write_text("dear")
        self.refuses("--from", FROM, "--export", full, names=["--export", str(full)], **MODEL)


CAPTIONS = ["a photo of red", "photo", "a cat", "of a red cat", "caterpillar", "red red red", "", "of", "a red photo of a cat", "car"]
SEED = 3


def write_pictures(captions=CAPTIONS, widths=(16,)):
    """A folder of pictures that the autoencoder takes as they are but for a crop at their sides."""
    import numpy
    from PIL import Image

    folder = fresh()
    folder.mkdir()
    source = numpy.random.default_rng(len(captions))
    lines = []
    for index, text in enumerate(captions):
        pixels = source.integers(0, 256, (16, widths[index % len(widths)], 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        lines.append(json.dumps({"file_name": f"{index}.png", "text": text}))
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return folder


def sd_conditions(pipeline, caption, _width):
    ids = pipeline.tokenizer(caption, padding="max_length", truncation=True, return_tensors="pt").input_ids
    return {"encoder_hidden_states": pipeline.text_encoder(ids)[0]}


def sdxl_conditions(pipeline, caption, width):
    import torch

    states, _, pooled, _ = pipeline.encode_prompt(caption, device="cpu", num_images_per_prompt=1,
                                                  do_classifier_free_guidance=False)
    sizes = torch.tensor([[16, width, 0, (width - 16) // 2, 16, 16]])
    return {"encoder_hidden_states": states, "added_cond_kwargs": {"text_embeds": pooled, "time_ids": sizes}}


def hunyuan_conditions(pipeline, caption, width):
    import torch
    from diffusers.models.embeddings import get_2d_rotary_pos_embed

    names = {"": ("encoder_hidden_states", "text_embedding_mask"), "_2": ("encoder_hidden_states_t5", "text_embedding_mask_t5")}
    given = {}
    for place, (states, mask) in names.items():
        text = getattr(pipeline, "tokenizer" + place)(caption, padding="max_length", truncation=True, return_tensors="pt")
        given[states] = getattr(pipeline, "text_encoder" + place)(text.input_ids, attention_mask=text.attention_mask)[0]
        given[mask] = text.attention_mask
    rotary = get_2d_rotary_pos_embed(8, ((0, 0), (4, 4)), (4, 4), output_type="pt")
    return {**given, "image_meta_size": torch.tensor([[16.0, width, 16, 16, 0, (width - 16) // 2]]), "style": torch.tensor([0]),
            "image_rotary_emb": rotary}


def expected_loss(data, captions, positions, pipeline=PIPELINE, conditions=sd_conditions):
    """The mean over a step's samples, by PyTorch; what chance decides is drawn here."""
    import numpy
    import torch
    from PIL import Image

    levels = pipeline.scheduler.alphas_cumprod
    losses = []
    with torch.no_grad():
        for position in positions:
            index = chance.index_at(SEED, position, len(captions))
            pixels = numpy.asarray(Image.open(data / f"{index}.png"), dtype=numpy.float32) / 127.5 - 1
            width = pixels.shape[1]
            pixels = pixels[:, (width - 16) // 2:][:, :16]
            moments = pipeline.vae.encode(torch.tensor(pixels).permute(2, 0, 1)[None]).latent_dist

            def drawn(stream):
                return torch.tensor(chance.normals(SEED, stream, 256 * position, 256)).view(1, 8, 8, 4).permute(0, 3, 1, 2)

            latents = pipeline.vae.config.scaling_factor * (moments.mean + moments.std * drawn(chance.POSTERIOR))
            time = chance.below(SEED, chance.TIMESTEPS, len(levels), position)
            signal, noise = levels[time].sqrt(), (1 - levels[time]).sqrt()
            noisy = signal * latents + noise * drawn(chance.NOISE)
            backbone = pipeline.unet if hasattr(pipeline, "unet") else pipeline.transformer
            answer = backbone(noisy, torch.tensor([float(time)]), **conditions(pipeline, captions[index], width)).sample[:, :4]
            losses.append(float((answer - (signal * drawn(chance.NOISE) - noise * latents)).square().mean()))
    return sum(losses) / len(losses)


class Pictures(Case):
    """Training on captioned pictures, which frozen networks encode."""

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures()
        cls.options = {"model": "sd_tiny", "data": cls.data}

    def learn(self, *options, **more):
        return self.train("--from", FROM, "--seed", SEED, *options, **{**self.options, **more})

    def test_the_loss_is_that_of_pytorch(self):
        out = self.learn("--steps", 2, "--lr", 1e-30)
        for step, loss in enumerate(report(out)["loss"]):
            expected = expected_loss(self.data, CAPTIONS, range(8 * step, 8 * step + 8))
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss} {expected}")
        self.assertGreater(report(out)["captions_cut"], 0)

    def test_the_first_screen_of_the_readme(self):
        from diffusers import UNet2DConditionModel

        room = fresh()
        room.mkdir()
        for name, target in (("pulse_train", PROGRAM), ("stable-diffusion-2-1", FROM), ("pictures", self.data)):
            (room / name).symlink_to(pathlib.Path(target).resolve())
        readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
        lines = [line for line in readme.splitlines() if line.startswith("    pulse_train --model sd21 ")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            small = line.replace("sd21", "sd_tiny").replace("--steps 1000", "--steps 2")
            done = subprocess.run(["bash", "-c", 'PATH="$PWD:$PATH"\n' + small], cwd=room, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        UNet2DConditionModel.from_pretrained(room / "tuned", subfolder="unet", local_files_only=True)
        self.assertNotEqual((room / "tuned" / UNET).read_bytes(), (FROM / UNET).read_bytes())
        self.assertEqual(json.loads((room / "drawn/pictures/metadata.jsonl").read_text())["text"], "a red cat")

    def test_every_pipeline_trains_alike(self):
        alone = self.learn("--steps", 3, "--ranks", 1, "--flip", "yes", "--caption-dropout", 0.4)
        for options in ("--ranks 2", "--ranks 3 --placement sequential", "--ranks 2 --recomputation stages"):
            with self.subTest(options):
                out = self.learn("--steps", 3, "--flip", "yes", "--caption-dropout", 0.4, *options.split())
                self.same_training(alone, out, options)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        # what encodes is in the plan: so many bytes more than without
        profile = fresh()
        runs = (self.learn("--steps", 1, "--ranks", 1, "--encode", "each-step", "--profile-out", profile),
                self.train("--steps", 1, "--ranks", 1, "--profile", profile, **MODEL))
        more, less = (report(folder)["planned_peak_bytes"][0] for folder in runs)
        encoders = [PIPELINE.text_encoder, PIPELINE.vae.encoder, PIPELINE.vae.quant_conv]
        self.assertGreater(more - less, 4 * sum(p.numel() for one in encoders for p in one.parameters()))

    def test_encoding_in_the_bubbles_gives_the_same_bits(self):
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        for ranks in ("--ranks 1", "--ranks 3 --placement sequential", "--ranks 4 --replicas 2 --recomputation stages"):
            with self.subTest(ranks):
                before = self.learn("--steps", 3, *options, *ranks.split(), "--encode", "each-step")
                ahead = self.learn("--steps", 3, *options, *ranks.split())
                self.assertNotIn("frozen_tasks", plan_of(before))
                self.assertIn("frozen_tasks", plan_of(ahead)) # nothing is said against it
                self.same_tensors(ahead, before)
                self.assertEqual(report(ahead)["loss"], report(before)["loss"])
                self.assertEqual(report(ahead)["captions_cut"], report(before)["captions_cut"])
                self.assertEqual(report(ahead)["planned_peak_bytes"], report(ahead)["measured_peak_bytes"])
        ahead = (*options, "--ranks", 2, "--encode", "bubbles")
        half = self.learn("--steps", 2, *ahead)
        rest = self.learn("--steps", 3, *ahead, "--resume", half / "checkpoint.safetensors")
        whole = self.learn("--steps", 3, *options, "--ranks", 2, "--encode", "each-step")
        self.same_tensors(rest, whole)

    def test_drawn_plans_encode_alike(self):
        """Whoever runs which layers on which sample, and where a run goes on: the bits and the memory that is planned."""
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        profile = fresh()
        before = {d: self.learn("--steps", 3, *options, "--ranks", d, "--replicas", d, "--encode", "each-step") for d in (1, 2)}
        self.learn("--plan-only", "--ranks", 1, "--profile-out", profile)
        self.assertGreater(len(json.loads(profile.read_text())["frozen"][0]["layers"]), 5)
        draw = random.Random(17)
        for number in range(int(os.environ.get("PULSE_TEST_PLANS", 4))):
            replicas = draw.choice([1, 1, 2])
            plan = (*options, "--profile", profile, "--encode", "bubbles", *drawn(draw, draw.choice([1, 2, 3, 4]), replicas))
            with self.subTest(number=number, plan=plan):
                out = self.learn("--steps", 3, *plan)
                self.same_training(before[replicas], out)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
                self.assertEqual(report(out)["captions_cut"], report(before[replicas])["captions_cut"])
                half = self.learn("--steps", 1, *plan)
                self.same_tensors(before[replicas], self.learn("--steps", 3, *plan, "--resume", half / "checkpoint.safetensors"))

    def test_the_planner_makes_the_same_plan_of_frozen_networks(self):
        """From profile, cluster and request; what it makes runs to the same bits, and a profile of others does not."""
        planner = pathlib.Path(PROGRAM).with_name("pulse_plan")
        if not planner.exists():
            self.skipTest("no pulse_plan")
        whole = self.learn("--steps", 2, "--ranks", 1, "--encode", "each-step", "--microbatch-size", 2, "--microbatches", 8, size=())
        profile = fresh()
        known = ("--profile", profile, "--global-batch", 16)
        self.learn("--plan-only", "--ranks", 3, "--microbatch-size", 2, "--global-batch", 16, "--profile-out", profile, size=())
        measured = json.loads(profile.read_text())
        self.assertEqual([part["feeds"] for part in measured["frozen"]], ["input", "context"])
        for options in ("", "--placement sequential", "--placement folded --schedule gpipe --routing relayed"):
            with self.subTest(options):
                theirs = fresh()
                self.invoke([planner, "--devices", 3, "--cluster", CLUSTER, "--time-limit", 0, "--frozen", "bubbles", "--out", theirs,
                             *known, *options.split()], 0)
                ours = self.learn("--ranks", 3, "--steps", 2, *known, *options.split(), size=())
                made = [plan_of(ours), json.loads(theirs.read_text())]
                for plan in made:
                    plan["predicted"].pop("peak_memory_bytes") # pulse_train has the bytes of the layout
                self.assertEqual(*made)
                read = self.learn("--steps", 2, "--plan", theirs, size=())
                self.assertEqual(plan_of(read)["frozen_tasks"], made[0]["frozen_tasks"])
                for run in (ours, read):
                    self.same_training(whole, run)
                    self.assertEqual(report(run)["planned_peak_bytes"], report(run)["measured_peak_bytes"])
        without = json.loads(theirs.read_text())
        del without["frozen_tasks"], without["frozen_hosts"]
        theirs.write_text(json.dumps(without))
        self.assertNotIn("frozen_tasks", plan_of(self.learn("--steps", 1, "--plan", theirs, size=())))
        out = fresh()
        self.refuses(names=["frozen_tasks", "--encode"], out=out,
                     raw=command("--from", FROM, "--encode", "bubbles", "--plan", theirs, out=out, size=(), **self.options))
        measured["frozen"][0]["layers"][-1]["parameter_bytes"] += 4
        profile.write_text(json.dumps(measured))
        last = len(measured["frozen"][0]["layers"]) - 1
        self.refuses("--from", FROM, "--profile", profile, names=[f"frozen[0].layers[{last}]", "bytes"], **self.options)

    def test_resumes(self):
        whole = self.learn("--steps", 4, "--caption-dropout", 0.5)
        half = self.learn("--steps", 2, "--caption-dropout", 0.5)
        rest = self.learn("--steps", 4, "--caption-dropout", 0.5, "--resume", half / "checkpoint.safetensors")
        self.same_tensors(rest, whole)
        self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(whole)["loss"])
        self.refuses("--from", FROM, "--seed", SEED, "--steps", 4, "--resume", half / "checkpoint.safetensors",
                     names=["images", "dropout 0.5"], **self.options)

    def test_resumes_on_other_data(self):
        data = fresh()
        shutil.copytree(self.data, data)
        half = self.learn("--steps", 2, data=data)
        lines = (data / "metadata.jsonl").read_text().replace("a cat", "a dog").replace("caterpillar", "cater").splitlines()
        shutil.copy(data / "1.png", data / "new.png")
        (data / "0.png").unlink()
        lines[0] = json.dumps({"file_name": "new.png", "text": "photo"})
        (data / "metadata.jsonl").write_text("\n".join(lines))
        what = "1 picture was added ('new.png'), 1 was removed ('0.png'), 3 have other captions ('2.png')"
        for place in ("checkpoints", "checkpoints/step-00000002", "checkpoint.safetensors"):
            self.refuses("--from", FROM, "--seed", SEED, "--steps", 3, "--resume", half / place,
                         names=[what, "--data-changed yes"], model="sd_tiny", data=data)
        on = ("--from", FROM, "--seed", SEED, "--steps", 3, "--resume", half / "checkpoint.safetensors", "--data-changed", "yes")
        once, again = fresh(), fresh()
        done = self.invoke(command(*on, out=once, model="sd_tiny", data=data), 0)
        self.assertIn(what, done.stdout)
        next(half.glob("data-*.txt")).unlink()
        done = self.invoke(command(*on, out=again, model="sd_tiny", data=data), 0)
        self.assertRegex(done.stdout, r"--data has changed since .*: it was 10 pictures \(\w+\), now it is 10 pictures \(\w+\)\n")
        self.same_training(once, again)
        # from there on it is a run on these pictures
        whole = self.learn("--steps", 3, data=data)
        self.assertNotEqual(report(once)["loss"], report(whole)["loss"][2:])
        rest = self.learn("--steps", 4, "--resume", once / "checkpoint.safetensors", data=data)
        self.assertEqual(len(report(rest)["loss"]), 1)
        self.refuses("--from", FROM, "--data-changed", "yes", names=["--data-changed", "--resume"], **self.options)

    def test_what_cannot_be_read_ends_a_run_behind_a_whole_step(self):
        """A picture that is first seen in the third step: the steps before are kept, and a run that goes on has its bits."""
        data = write_pictures([f"{text} {number}" for number in range(2) for text in CAPTIONS])
        bad = data / f"{chance.index_at(SEED, 19, 20)}.png"
        content = bad.read_bytes()
        whole = self.learn("--steps", 4, data=data)
        for options in ("--encode each-step --ranks 1", "--encode each-step --ranks 3 --placement sequential",
                        "--encode bubbles --ranks 2", "--encode bubbles --ranks 3 --placement sequential"):
            with self.subTest(options):
                bad.write_bytes(content[:-30])
                out = fresh()
                line = command("--from", FROM, "--seed", SEED, "--steps", 4, *options.split(), out=out, model="sd_tiny", data=data)
                done = self.invoke(line, 2)
                self.assertRegex(done.stderr, r"\Apulse_train: [^\n]+\n\Z")
                for name in ("--data", bad.name, "--on-bad-picture skip", "step 3", "--resume"):
                    self.assertIn(name, done.stderr)
                self.assertEqual([path.name for path in (out / "checkpoints").iterdir()], ["step-00000002"])
                on = ("--steps", 4, "--resume", out / "checkpoints", *options.split())
                line = command("--from", FROM, "--seed", SEED, *on, "--on-bad-picture", "skip", out=fresh(), model="sd_tiny", data=data)
                done = self.invoke(line, 0)
                self.assertIn(bad.name, done.stderr)
                bad.write_bytes(content)
                rest = self.learn(*on, data=data)
                self.assertEqual(report(rest)["loss"], report(whole)["loss"][2:])
                self.same_tensors(rest, whole)

    def test_dropped_captions_are_empty_ones(self):
        dropped = self.learn("--steps", 1, "--caption-dropout", 1)
        empty = self.learn("--steps", 1, data=write_pictures([""] * len(CAPTIONS)))
        whole = self.learn("--steps", 1)
        self.assertEqual(report(dropped)["loss"], report(empty)["loss"])
        self.assertNotEqual(report(dropped)["loss"], report(whole)["loss"])

    def test_bad_pictures(self):
        data = fresh()
        shutil.copytree(self.data, data)
        bad = data / "4.png"
        bad.write_bytes(bad.read_bytes()[:200])
        line = command("--from", FROM, "--steps", 3, "--ranks", 2, out=fresh(), model="sd_tiny", data=data)
        stopped = self.invoke(line, 2)
        self.assertRegex(stopped.stderr, r"\Apulse_train: [^\n]*4\.png[^\n]+\n\Z")
        skipped = self.invoke([*line, "--on-bad-picture", "skip"], 0)
        self.assertRegex(skipped.stderr, r"\Apulse_train: skipped: [^\n]*4\.png[^\n]+\n\Z")

    def test_bad_headers_are_found_before_anything_is_written(self):
        data = fresh()
        shutil.copytree(self.data, data)
        (data / "4.png").write_bytes(b"no picture")
        large = bytearray((data / "2.png").read_bytes())
        large[16:24] = b"\0\0\x7f\xff" * 2
        large[29:33] = zlib.crc32(large[12:29]).to_bytes(4, "big")
        (data / "2.png").write_bytes(large)
        options = ("--from", FROM, "--steps", 1, "--ranks", 2)
        several = f"2 of {len(CAPTIONS)} pictures"
        self.refuses(*options, names=["2.png", "32767 x 32767", "limit of 134217728", several, "--on-bad-picture skip"],
                     model="sd_tiny", data=data)
        out = fresh()
        skipped = self.invoke(command(*options, "--on-bad-picture", "skip", out=out, model="sd_tiny", data=data), 0)
        self.assertRegex(skipped.stderr, rf"\Apulse_train: {several} cannot be read and are skipped; the first: [^\n]*2\.png")
        self.assertRegex(skipped.stdout, rf"(?m)^pictures: {len(CAPTIONS) - 2} of 16x16; {len(CAPTIONS) - 2} PNG$")
        for file in data.glob("*.png"):
            file.write_bytes(b"no picture")
        self.refuses(*options, "--on-bad-picture", "skip", names=["0.png", "all"], model="sd_tiny", data=data)

    def test_pictures_that_are_damaged_inside_are_counted(self):
        from PIL import Image
        data = fresh()
        shutil.copytree(self.data, data)
        for name in ("0.png", "1.png"):
            file = io.BytesIO()
            Image.open(data / name).resize((64, 64)).save(file, "JPEG")
            whole = file.getvalue()
            scan = whole.index(b"\xff\xda") + 14
            (data / name).write_bytes(whole[:scan + 100] + b"\xff\xd9")
        for options in ((), ("--encode", "once", "--cache", fresh())):
            with self.subTest(options):
                line = command("--from", FROM, "--steps", 2, "--ranks", 2, *options, out=fresh(), model="sd_tiny", data=data)
                done = self.invoke(line, 0)
                self.assertRegex(done.stderr, r"\Apulse_train: damaged inside[^\n]*[01]\.png[^\n]*\n"
                                              r"pulse_train: damaged: 2 pictures were read with damage inside\n\Z")

    def test_refusals(self):
        self.refuses(names=["--data", "--from"], **self.options)
        self.refuses("--from", FROM, names=["--data", "nowhere"], model="sd_tiny", data=ROOM / "nowhere")
        for option, value in (("--flip", "yes"), ("--crop", "random"), ("--caption-dropout", 0.1), ("--on-bad-picture", "skip"),
                              ("--encode", "each-step")):
            self.refuses("--from", FROM, option, value, names=[option, "captioned pictures"], **MODEL)
        for file, key, value in (("text_encoder/config.json", "hidden_act", "gelu"), ("vae/config.json", "layers_per_block", 2)):
            folder = changed()
            config = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**config, key: value}))
            self.refuses("--from", folder, names=["--from", file, key, str(value)], **self.options)
        for file, name in (("text_encoder/model", "text_model.final_layer_norm.bias"),
                           ("vae/diffusion_pytorch_model", "quant_conv.weight")):
            folder = changed()
            tensors = Safetensors(folder / f"{file}.safetensors")
            write_tensors(folder / f"{file}.safetensors", {key: value for key, value in tensors.tensors.items() if key != name},
                          tensors.shapes)
            self.refuses("--from", folder, names=["--from", file.split("/")[0], name], **self.options)
        folder = changed()
        (folder / "tokenizer/merges.txt").unlink()
        self.refuses("--from", folder, names=["--from", "merges.txt"], **self.options)


class Layouts(Case):
    """The same pictures and captions in every layout that is known, and in some that are not."""

    @classmethod
    def setUpClass(cls):
        cls.flat = write_pictures()

    def lay_out(self, kind, folder):
        """The pictures with their captions below a folder, by names that sort alike."""
        folder.mkdir(parents=True)
        rows = []
        for index, text in enumerate(CAPTIONS):
            name = f"{index}.png"
            shutil.copy(self.flat / name, folder / name)
            rows.append((name, text))
            if kind == "text":
                (folder / name).with_suffix((".txt", ".TXT", ".caption")[index % 3]).write_text(text)
            if kind == "json":
                (folder / name).with_suffix(".json").write_text(json.dumps({"url": index, "blip": text, "text": "not this"}))
        if kind == "csv":
            with open(folder / "metadata.csv", "w", newline="", encoding="utf-8-sig") as table:
                csv.writer(table, quoting=csv.QUOTE_ALL).writerows([("file_name", "prompt"), *rows])
        if kind == "jsonl":
            lines = [json.dumps({"file_name": name, "caption": text}) for name, text in rows]
            (folder / "metadata.jsonl").write_text("\n".join(lines))
        return folder

    def learn(self, data, *options, code=0):
        out = fresh()
        done = self.invoke(command("--from", FROM, "--seed", SEED, "--steps", 2, "--ranks", 1, *options, out=out, model="sd_tiny",
                                   data=data), code)
        return report(out)["loss"] if code == 0 else None, done.stdout, done.stderr

    def test_every_layout_trains_alike_and_says_what_it_is(self):
        losses, said, _ = self.learn(self.flat)
        lengths = [len(PIPELINE.tokenizer(text, verbose=False).input_ids) for text in CAPTIONS]
        tokens = (f"captions: tokenizer: {sum(lengths) / len(lengths):.1f} tokens on average, {max(lengths)} at most, "
                  f"{sum(length > 7 for length in lengths)} cut at 7\n")
        self.assertIn("data: 10 pictures, captions of metadata\n" + tokens, said)
        for kind, words in (("csv", "of metadata"), ("jsonl", "of metadata"), ("text", "beside them"), ("json", "beside them")):
            with self.subTest(kind):
                data = fresh()
                self.lay_out(kind, data / "train")
                self.lay_out("none", data / "test")
                (data / "train/0.heic").touch()
                options = ("--caption-column", "blip") if kind == "json" else ()
                again, said, _ = self.learn(data, *options)
                self.assertEqual(again, losses)
                self.assertIn(f"data: 10 pictures, captions {words}\nleft out: 1 .heic, the split test (10)\n" + tokens, said)

    def test_names_of_folders_are_captions_only_where_they_are_asked_for(self):
        data = fresh()
        self.lay_out("none", data / "10_red cat")
        self.lay_out("none", data / "car")
        _, _, refusal = self.learn(data, code=2)
        self.assertRegex(refusal, r"\Apulse_train: --data: [^\n]*10_red cat/0.png' has no caption[^\n]*--captions class[^\n]*"
                                  r"--on-missing-caption[^\n]*\n\Z")
        named, said, _ = self.learn(data, "--captions", "class")
        self.assertIn("data: 20 pictures, captions by the names of 2 folders; repeated by name: 10_red cat 10 times, so that an "
                      "epoch has 110\n", said)
        for path in data.rglob("*.png"):
            path.with_suffix(".txt").write_text(path.parent.name.removeprefix("10_"))
        self.assertEqual(self.learn(data)[0], named)
        self.assertIn("0.txt", self.learn(data, "--captions", "class", code=2)[2])

    def test_a_picture_without_a_caption(self):
        data = self.lay_out("text", fresh())
        (data / "6.txt").unlink()  # the caption that is empty
        whole = self.learn(self.flat)[0]
        self.assertIn("6.png", self.learn(data, code=2)[2])
        losses, said, _ = self.learn(data, "--on-missing-caption", "empty")
        self.assertEqual(losses, whole)
        self.assertIn("data: 10 pictures, captions beside them, 1 without one, which are taken as empty\n", said)
        (data / "6.png").rename(data / "6.tiff")
        without = self.learn(data)[0]
        (data / "6.tiff").rename(data / "6.png")
        losses, said, _ = self.learn(data, "--on-missing-caption", "skip")
        self.assertEqual(losses, without)
        self.assertIn("left out: 1 picture without a caption\n", said)

    def test_refusals(self):
        data = self.lay_out("csv", fresh())
        for options, names in ((("--caption-column", "nothing"), ("nothing", "'prompt'", "--caption-column NAME")),
                               (("--captions", "class"), ("metadata.csv",)),
                               (("--captions", "class", "--caption-column", "a"), ("--caption-column", "--captions class"))):
            self.refuses("--from", FROM, *options, names=names, model="sd_tiny", data=data)
        (data / "metadata.csv").rename(data / "metadata.parquet")
        self.refuses("--from", FROM, names=["--data", "metadata.parquet", "convert it"], model="sd_tiny", data=data)
        text = self.lay_out("text", fresh())
        (text / "3.txt").write_bytes(b"\xff")
        self.refuses("--from", FROM, "--encode", "once", "--cache", fresh(), names=["--data", "3.txt"], model="sd_tiny", data=text)


class Sdxl(Case):
    """Two text encoders, pooled text and sizes."""

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures(widths=(16, 24, 19))

    def learn(self, *options):
        return self.train("--from", SDXL, "--seed", SEED, *options, model="sdxl_tiny", data=self.data)

    def test_the_loss_is_that_of_pytorch(self):
        out = self.learn("--steps", 2, "--lr", 1e-30)
        for step, loss in enumerate(report(out)["loss"]):
            expected = expected_loss(self.data, CAPTIONS, range(8 * step, 8 * step + 8), SDXL_PIPELINE, sdxl_conditions)
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss} {expected}")
        self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])

    def test_the_pooled_token_is_that_of_the_config(self):
        """The id that ends a text, if it is none, one inside of texts or one that most of them lack."""
        losses = set()
        for word in ("<|endoftext|>", "red</w>", None):
            folder = changed(SDXL)
            file = folder / "text_encoder_2/config.json"
            end = 49407 if word is None else SDXL_PIPELINE.tokenizer_2.convert_tokens_to_ids(word)
            file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": end}))
            pipeline = type(SDXL_PIPELINE).from_pretrained(folder, low_cpu_mem_usage=False, add_watermarker=False)
            out = self.train("--from", folder, "--seed", SEED, "--steps", 1, model="sdxl_tiny", data=self.data)
            expected = expected_loss(self.data, CAPTIONS, range(8), pipeline, sdxl_conditions)
            losses.add(report(out)["loss"][0])
            self.assertLess(abs(report(out)["loss"][0] - expected), 1e-5 * expected, f"{word}: {report(out)['loss']} {expected}")
        self.assertEqual(len(losses), 3)

    def test_every_way_trains_alike(self):
        options = ("--steps", 3, "--flip", "yes", "--caption-dropout", 0.4)
        alone = self.learn(*options, "--ranks", 1)
        cache = fresh()
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", cache)):
            with self.subTest(more):
                self.same_training(alone, self.learn(*options, *more), more)
        trains_alike_scattered(self, alone, "--from", SDXL, "--seed", SEED, *options, model="sdxl_tiny", data=self.data)
        self.assertLessEqual({"states", "pooled"}, set(Safetensors(next(cache.glob("captions-*"))).tensors))
        folder = changed(SDXL)
        (folder / "tokenizer_2/merges.txt").write_text((folder / "tokenizer_2/merges.txt").read_text() + "\n")
        line = command("--from", folder, "--seed", SEED, *options, "--encode", "once", "--cache", cache, out=fresh(),
                       model="sdxl_tiny", data=self.data)
        self.assertIn("encoded 0 pictures and 10 captions", self.invoke(line, 0).stdout)  # all that the second encoder has made


class Classes(Case):
    """U-ViT: pictures in folders of classes, which no text encoder reads."""

    CONFIG = {"_class_name": "UViT", "img_size": 8, "patch_size": 2, "in_chans": 4, "embed_dim": 16, "depth": 6, "num_heads": 2,
              "num_classes": 10}

    @classmethod
    def setUpClass(cls):
        cls.options = {"model": "uvit_tiny", "data": cls.write_pictures(3)}
        start = first_weights("uvit_tiny")
        tensors = start.tensors
        cls.folder = with_transformer(cls.CONFIG, tensors, start.shapes)
        labels = bytearray(tensors["label_emb.weight"])
        width = len(labels) // 10
        labels[9 * width:] = labels[:width]  # no class is now what the first one is
        cls.blind = with_transformer(cls.CONFIG, {**tensors, "label_emb.weight": bytes(labels)}, start.shapes)

    @staticmethod
    def write_pictures(classes):
        flat, folder = write_pictures(), fresh()
        for index in range(len(CAPTIONS)):
            of_class = folder / f"class{index % classes}"
            of_class.mkdir(parents=True, exist_ok=True)
            shutil.copy(flat / f"{index}.png", of_class)
        return folder

    def learn(self, folder, *options, **more):
        return self.train("--from", folder, "--seed", SEED, "--steps", 3, *options, **{**self.options, **more})

    def test_every_way_trains_alike(self):
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        alone = self.learn(self.folder, *options, "--ranks", 1)
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", fresh())):
            with self.subTest(more):
                self.same_training(alone, self.learn(self.folder, *options, *more), more)
        trains_alike_scattered(self, alone, "--from", self.folder, "--seed", SEED, "--steps", 3, *options, **self.options)

    def test_the_model_sees_the_class_and_that_there_is_none(self):
        one = self.write_pictures(1)
        for folder, alike in ((self.blind, True), (self.folder, False)):
            losses = [report(self.learn(folder, "--lr", 1e-30, "--caption-dropout", dropped, data=one))["loss"]
                      for dropped in (0, 1)]
            self.assertEqual(losses[0] == losses[1], alike)

    def test_pictures_by_class(self):
        drawn = []
        for options in (("--class", 0), ("--class", 1), ("--class", 0, "--guidance", 1)):
            drawn.append([])
            for folder in (self.folder, self.blind):
                out = fresh()
                self.invoke([PROGRAM, "--model", "uvit_tiny", "--from", folder, "--out", out, "--steps", 0, "--sample-steps", 5,
                             *options], 0)
                self.assertEqual(json.loads((out / "pictures/metadata.jsonl").read_text()),
                                 {"file_name": "0000.png", "class": options[1]})
                drawn[-1].append((out / "pictures/0000.png").read_bytes())
        self.assertEqual(len({drawn[0][0], drawn[1][0], drawn[2][0]}), 3)
        # led away from what it is itself, the first class stays where it is
        self.assertEqual(drawn[0][1], drawn[2][1])

    def test_refusals(self):
        self.refuses("--from", self.folder, names=["--data", "no folders of classes"], model="uvit_tiny", data=write_pictures())
        self.refuses("--from", self.folder, "--on-missing-caption", "skip", names=["--on-missing-caption", "classes"],
                     **self.options)
        self.refuses("--from", self.folder, names=["--data", "10 folders of classes", "9"], model="uvit_tiny",
                     data=self.write_pictures(10))
        more = {"model": "uvit_tiny", "data": "synthetic"}
        self.refuses("--from", self.folder, "--class", 9, names=["--class", "9 is none of 0 to 8"], sample=1, **more)
        self.refuses("--from", self.folder, "--prompt", "a", names=["--prompt", "--class"], sample=1, **more)
        self.refuses("--from", self.folder, names=["--sample", "--class"], sample=1, **more)


class Hunyuan(Case):
    """BERT's and T5's states with their masks; what the backbone makes of them, no version of diffusers here says."""

    CONFIG = {"_class_name": "HunyuanDiT2DModel", "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4,
              "patch_size": 2, "sample_size": 8, "hidden_size": 16, "num_layers": 6, "mlp_ratio": 1.5, "learn_sigma": True,
              "cross_attention_dim": 12, "cross_attention_dim_t5": 16, "pooled_projection_dim": 12, "text_len": 5,
              "text_len_t5": 6}

    @classmethod
    def setUpClass(cls):
        start = first_weights("hunyuan_tiny")
        cls.folder = with_transformer(cls.CONFIG, start.tensors, start.shapes)
        cls.texts = tiny_pipeline.write_hunyuan_texts(cls.folder, CAPTIONS)
        cls.options = {"model": "hunyuan_tiny", "data": write_pictures(widths=(16, 24))}

    def learn(self, *options):
        return self.train("--from", self.folder, "--seed", SEED, *options, **self.options)

    def test_every_way_trains_alike(self):
        import numpy
        import torch

        options = ("--steps", 2, "--caption-dropout", 0.3)
        alone = self.learn(*options, "--ranks", 1)
        self.assertEqual(report(alone)["planned_peak_bytes"], report(alone)["measured_peak_bytes"])
        cache = fresh()
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", cache)):
            with self.subTest(more):
                self.same_training(alone, self.learn(*options, *more), more)
        trains_alike_scattered(self, alone, "--from", self.folder, "--seed", SEED, *options, **self.options)
        encoded = Safetensors(next(cache.glob("captions-*"))).tensors
        masks = []
        rows = ["", *(text for text in CAPTIONS if text)]
        for name, (tokenizer, encoder) in zip(("states", "states_2"), self.texts):
            given = tokenizer(rows, padding="max_length", truncation=True, return_tensors="pt")
            with torch.no_grad():
                expected = encoder(given.input_ids, attention_mask=given.attention_mask)[0].numpy()
            found = numpy.frombuffer(encoded[name], "<f4").reshape(expected.shape)
            self.assertLess(float(abs(found - expected).max()), 1e-5 * float(abs(expected).max()), name)
            masks.append(given.attention_mask.numpy())
        mask = numpy.concatenate(masks, axis=1)
        self.assertTrue(numpy.array_equal(numpy.frombuffer(encoded["mask"], "<f4").reshape(mask.shape), mask))

    def test_pictures_by_prompt(self):
        drawn = []
        for prompt in ("a red cat", "photo"):
            out = fresh()
            self.invoke([PROGRAM, "--model", "hunyuan_tiny", "--from", self.folder, "--out", out, "--steps", 0, "--sample-steps", 3,
                         "--prompt", prompt], 0)
            drawn.append((out / "pictures/0000.png").read_bytes())
        self.assertNotEqual(*drawn)


class Once(Case):
    """Pictures and captions that are encoded once, into a folder."""

    OPTIONS = ("--flip", "yes", "--caption-dropout", 0.4, "--on-bad-picture", "skip")

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures()
        bad = cls.data / "4.png"
        bad.write_bytes(bad.read_bytes()[:200])

    def learn(self, cache, *options, folder=FROM, steps=3, data=None):
        """The folder of a run, what it has printed, and the pictures that it has named."""
        out = fresh()
        once = ("--encode", "once", "--cache", cache) if cache else ()
        line = command("--from", folder, "--seed", SEED, "--steps", steps, *self.OPTIONS, *once, *options, out=out,
                       model="sd_tiny", data=data or self.data)
        done = self.invoke(line, 0)
        return out, done.stdout, done.stderr

    def test_the_same_run_as_encoding_before_each_step(self):
        each, _, named = self.learn(None, "--ranks", 1)
        self.assertIn("4.png", named)
        caches = []
        for options in ("--ranks 1", "--ranks 3 --placement sequential", "--ranks 2 --replicas 2"):
            with self.subTest(options):
                caches.append(fresh())
                alone = each if "replicas" not in options else self.learn(None, *options.split())[0]
                once, said, skipped = self.learn(caches[-1], *options.split())
                self.same_training(alone, once, options)
                self.assertEqual(set(skipped.splitlines()), set(named.splitlines()))
                self.assertRegex(said, r"(?m)^encoded 20 pictures and 10 captions, \d+\.\d MiB, in \d+\.\d s; before each step "
                                       r"it would take \d+\.\d s of this run$")
                made = report(once)
                self.assertEqual(made["captions_cut"], report(alone)["captions_cut"])
                self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        # which rank has encoded what is seen nowhere, and no frozen network stays in memory
        self.assertEqual(*map(encoded_in, caches[:2]))
        self.assertEqual(*map(encoded_in, caches[1:]))
        profile = fresh()
        without = self.train("--steps", 1, "--ranks", 1, "--profile-out", profile, **MODEL)
        once, said, _ = self.learn(caches[0], "--ranks", 1, "--profile", profile)
        self.assertIn(f"--cache {caches[0]} has all pictures and captions\n", said)
        self.same_training(each, once)
        self.assertEqual(encoded_in(caches[0]), encoded_in(caches[1]))
        self.assertEqual(report(once)["planned_peak_bytes"], report(without)["planned_peak_bytes"])

    def test_what_is_missing_is_made_again(self):
        cache = fresh()
        whole, _, _ = self.learn(cache)
        before = encoded_in(cache)
        next(cache.glob("captions-*")).unlink()
        rest, said, _ = self.learn(cache)
        self.assertIn("encoded 0 pictures and 10 captions", said)
        self.assertEqual(encoded_in(cache), before)
        self.same_training(whole, rest)

    def test_what_is_new_is_encoded(self):
        """The run that encodes before each step, whatever was in the folder before."""
        cache, data = fresh(), fresh()
        shutil.copytree(self.data, data)
        lines = (data / "metadata.jsonl").read_text()

        def again(said, **more):
            once, told, _ = self.learn(cache, steps=1, **{"data": data, **more})
            self.assertIn(said, told)
            self.same_training(self.learn(None, steps=1, **{"data": data, **more})[0], once)

        everything = f"--cache {cache} has all pictures and captions\n"
        again("encoded 20 pictures and 10 captions")
        again(everything)
        (data / "metadata.jsonl").write_text(lines.replace("a cat", "a dog"))
        again("encoded 0 pictures and 2 captions")
        (data / "metadata.jsonl").write_text(lines.replace('"2.png"', '"renamed.png"'))
        (data / "2.png").rename(data / "renamed.png")
        os.utime(data / "5.png")
        shutil.copy(data / "1.png", data / "3.png")
        again(everything)
        (data / "6.png").write_bytes((write_pictures(CAPTIONS[1:]) / "6.png").read_bytes())
        again("encoded 2 pictures and 0 captions")
        for file, said in (("vae/config.json", "encoded 18 pictures and 0 captions"),
                           ("tokenizer/merges.txt", "encoded 0 pictures and 10 captions")):
            folder = changed()
            (folder / file).write_text((folder / file).read_text() + "\n")
            again(said, folder=folder)
        again(everything)

    def test_who_is_to_blame(self):
        cache, data = fresh(), fresh()
        shutil.copytree(self.data, data)
        once = ("--from", FROM, "--steps", 1, "--encode", "once", "--cache", cache)

        def refused(*names, spared, options=("--on-bad-picture", "skip")):
            line = command(*once, *options, out=fresh(), model="sd_tiny", data=data)
            done = self.invoke(line, 2)
            self.assertRegex(done.stderr, r"\Apulse_train: (rank \d+: )?" + names[0] + r"[^\n]+\n\Z")
            for name in names:
                self.assertIn(name, done.stderr)
            self.assertNotIn(spared, done.stderr)

        refused("--data: ", "4.png", "--on-bad-picture skip", spared="--cache", options=())
        self.invoke(command(*once, "--on-bad-picture", "skip", out=fresh(), model="sd_tiny", data=data), 0)
        refused("--data: ", "4.png", "--on-bad-picture skip", spared="--cache", options=())  # it is there, as one that is bad
        (data / "metadata.jsonl").rename(data / "metadata")
        for number, caption in enumerate(CAPTIONS):
            (data / f"{number}.txt").write_bytes(b"\xff" if number == 3 else caption.encode())
        refused("--data: ", "3.txt", "UTF-8", spared="--cache", options=())
        for number in range(len(CAPTIONS)):
            (data / f"{number}.txt").unlink()
        (data / "metadata").rename(data / "metadata.jsonl")
        shard = next(cache.glob("pictures-*"))
        content = shard.read_bytes()
        shard.write_bytes(content[:-1])
        refused("--cache: ", shard.name, "remove the file", spared="--data")
        shard.write_bytes(content.replace(b"pulse-encoded/2", b"pulse-encoded/1"))
        refused("--cache: ", shard.name, "give another", spared="--data")

    def test_wrong_options(self):
        asked = {"model": "sd_tiny", "data": self.data}
        self.refuses("--from", FROM, "--encode", "once", names=["--encode once", "--cache"], **asked)
        self.refuses("--from", FROM, "--cache", fresh(), names=["--cache", "--encode once"], **asked)
        self.refuses("--from", FROM, "--encode", "once", "--cache", fresh(), "--crop", "random", names=["--crop random"], **asked)


class Prompts(Case):
    """Pictures by prompt, drawn with all networks of a folder."""

    DRAW = ("--sample-steps", 5, "--seed", SEED)

    def draw(self, folder, *options, model="sd_tiny"):
        out = fresh()
        self.invoke([PROGRAM, "--model", model, "--from", folder, "--out", out, "--steps", 0, *self.DRAW, *options], 0)
        return out

    @staticmethod
    def pictures(out):
        import numpy
        from PIL import Image

        lines = [json.loads(line) for line in (out / "pictures/metadata.jsonl").read_text().splitlines()]
        return [(line["text"], numpy.asarray(Image.open(out / "pictures" / line["file_name"]))) for line in lines]

    def test_pictures_are_those_of_diffusers(self):
        folder = ROOM / "published"  # with the noise of published folders
        self.compare(tiny_pipeline.write(folder, seed=15), folder, "sd_tiny", ("photo",), requires_safety_checker=False)

    def test_pictures_of_sdxl_are_those_of_diffusers(self):
        folder = ROOM / "published_sdxl"
        # without a negative text, zeros stand for its states
        self.compare(tiny_pipeline.write_sdxl(folder), folder, "sdxl_tiny", ("photo", None), add_watermarker=False)

    def compare(self, pipeline, folder, model, negatives, **settings):
        import numpy
        import torch
        from diffusers import DDIMScheduler, DPMSolverMultistepScheduler

        prompts = ["a red cat", "photo of a car", "a red cat"]
        start = torch.tensor(numpy.concatenate([chance.normals(SEED, chance.SAMPLE_START, 256 * i, 256) for i in range(3)]))
        start = start.view(3, 8, 8, 4).permute(0, 3, 1, 2)
        for sampler, scheduler in (("ddim", DDIMScheduler), ("dpm++", DPMSolverMultistepScheduler)):
            # said though it is the folder's: what a config has by default, another class replaces by its own default
            steps = scheduler.from_config(pipeline.scheduler.config, timestep_spacing="leading")
            drawing = type(pipeline)(**{**pipeline.components, "scheduler": steps}, **settings)
            drawing.set_progress_bar_config(disable=True)
            for guidance, negative in ((1, "photo"), *((4, text) for text in negatives)):
                expected = drawing(prompts, height=16, width=16, num_inference_steps=5, guidance_scale=guidance, latents=start,
                                   negative_prompt=negative and [negative] * 3, output_type="np").images
                out = self.draw(folder, "--sampler", sampler, "--guidance", guidance,
                                *(("--negative", negative) if negative else ()),
                                *(word for prompt in prompts for word in ("--prompt", prompt)), model=model)
                found = self.pictures(out)
                self.assertEqual([text for text, _ in found], prompts)
                error = numpy.mean((numpy.stack([picture for _, picture in found]) / 255 - expected) ** 2)
                # 50 dB; a picture in whole numbers is 58.9 dB from what it is rounded of
                self.assertLess(error, 1e-5, f"{model}, {sampler}, guidance {guidance}, negative {negative}")
                self.assertGreater(numpy.std(expected), 0.02)
        self.assertFalse(numpy.array_equal(found[0][1], found[2][1]))  # other noise

    def test_training_ends_with_pictures_of_what_it_exports(self):
        exported, out = fresh(), fresh()
        prompts = ROOM / "prompts.txt"
        prompts.write_bytes(b"\xef\xbb\xbfa red cat\n\n \t\r\nphoto\r\n")
        drawn = ("--prompts", prompts, "--sample", 5)
        self.invoke([PROGRAM, "--model", "sd_tiny", "--from", FROM, "--data", write_pictures(), "--out", out, "--export", exported,
                     *self.DRAW, "--steps", 2, "--ranks", 2, "--microbatch-size", 2, "--microbatches", 2, "--plan-time", 0, *drawn], 0)
        again = self.draw(exported, *drawn)
        self.assertEqual(files_of(out / "pictures"), files_of(again / "pictures"))
        self.assertEqual([text for text, _ in self.pictures(out)], ["a red cat", "photo", "a red cat", "photo", "a red cat"])
        self.assertEqual((out / "samples.png").read_bytes(), (again / "samples.png").read_bytes())

    def test_pictures_while_training(self):
        """Drawing leaves the run as it is, and draws what a run that ends there draws."""
        more = {"model": "sd_tiny", "data": write_pictures(), "sample": 2}

        def learn(steps, *options, **kind):
            return self.train("--steps", steps, "--seed", SEED, "--ranks", 2, "--placement", "folded", *options, **kind)

        prompted = ("--from", FROM, "--prompt", "a red cat", "--prompt", "photo")
        for options, kind in ((prompted, more), ((), {**MODEL, "sample": 2})):
            whole, plain = learn(4, "--sample-every", 2, *options, **kind), learn(4, *options, **kind)
            half = learn(2, *options, **kind)
            self.same_training(whole, plain)
            self.assertEqual([path.name for path in (whole / "drawn").iterdir()], ["step-00000002"])
            self.assertFalse((plain / "drawn").exists())
            for one, other in ((whole / "drawn/step-00000002", half), (whole, plain)):
                for name, content in files_of(whole / "drawn/step-00000002").items():
                    self.assertEqual((one / name).read_bytes(), (other / name).read_bytes(), name)
        self.assertNotEqual((whole / "samples.png").read_bytes(), (half / "samples.png").read_bytes())

    def test_refusals(self):
        self.refuses("--sample-every", 2, names=["--sample-every", "--sample is 0"], **MODEL)
        self.refuses("--prompt", "a cat", names=["--prompt", "--from"], **MODEL)
        self.refuses("--from", FROM, "--guidance", 3, names=["--guidance", "--prompt"], **MODEL)
        self.refuses("--from", FROM, "--negative", "a", names=["--negative", "--prompt"], **MODEL)
        self.refuses("--from", FROM, names=["--sample", "--prompt"], sample=3, **MODEL)
        self.refuses("--from", FROM, "--class", 1, names=["--class", "--prompt"], sample=1, **MODEL)
        self.refuses("--from", FROM, "--class", 1, "--prompt", "a", names=["--class", "--prompt"], **MODEL)
        self.refuses("--class", 1, names=["--class", "--from"], **MODEL)
        empty = ROOM / "empty.txt"
        empty.write_bytes(b"\xef\xbb\xbf\n \t\r\n")
        for file in (empty, ROOM / "nowhere.txt"):
            self.refuses("--from", FROM, "--prompts", file, names=["--prompts", str(file)], **MODEL)
        binary = ROOM / "binary.txt"
        binary.write_bytes(b"a cat\na \xff cat\n")
        self.refuses("--from", FROM, "--prompts", binary, names=["--prompts", str(binary), "line 2", "UTF-8"], sample=1, **MODEL)
        folder = changed()
        (folder / "vae/diffusion_pytorch_model.safetensors").unlink()
        self.refuses("--from", folder, "--prompt", "a", names=["--prompt", "vae"], sample=1, **MODEL)


class NewFolders(Case):
    """Folders of random weights, which pulse_train writes where there is none to begin from."""

    MODELS = ("sd_tiny", "sdxl_tiny", "hunyuan_tiny", "uvit_tiny")

    @classmethod
    def setUpClass(cls):
        cls.tokenizers = {"sd_tiny": FROM / "tokenizer", "sdxl_tiny": SDXL, "hunyuan_tiny": ROOM / "hunyuan_texts"}
        tiny_pipeline.write_hunyuan_texts(cls.tokenizers["hunyuan_tiny"], CAPTIONS)
        cls.folders = {model: cls.make(model) for model in cls.MODELS}

    @classmethod
    def make(cls, model, *options, seed=SEED):
        folder = fresh()
        tokenizer = ("--tokenizer", cls.tokenizers[model]) if model in cls.tokenizers else ()
        Case().invoke(cls.line(folder, "--seed", seed, *tokenizer, *options, model=model), 0)
        return folder

    @staticmethod
    def line(folder, *options, model="sd_tiny"):
        return [PROGRAM, "--model", model, "--init", "--steps", 0, "--export", folder, *options]

    def test_the_seed_decides_every_byte(self):
        for model, folder in self.folders.items():
            self.assertEqual(files_of(self.make(model)), files_of(folder))
            other = files_of(self.make(model, seed=SEED + 1))
            self.assertEqual(other.keys(), files_of(folder).keys())
            for name, content in files_of(folder).items():
                self.assertEqual(content != other[name], name.endswith(".safetensors"), f"{model}: {name}")
        # text encoders that are alike are not the same
        states = [Safetensors(self.folders["sdxl_tiny"] / f"text_encoder{place}" / "model.safetensors").tensors
                  for place in ("", "_2")]
        name = "text_model.embeddings.position_embedding.weight"
        self.assertNotEqual(states[0][name][:16], states[1][name][:16])

    def test_diffusers_reads_them(self):
        import torch
        from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline
        from transformers import BertModel, BertTokenizer, T5EncoderModel, T5Tokenizer

        words = []
        handler = logging.Handler()
        handler.emit = lambda record: words.append(record.getMessage())
        for library in ("diffusers", "transformers"):
            logging.getLogger(library).addHandler(handler)

        def complete(network, folder, **more):
            read, info = network.from_pretrained(folder, output_loading_info=True, **more)
            self.assertFalse(any(info.values()), f"{folder}: {info}")
            self.assertTrue(all(bool(torch.isfinite(value).all()) for value in read.state_dict().values()))

        for model, pipeline in (("sd_tiny", StableDiffusionPipeline), ("sdxl_tiny", StableDiffusionXLPipeline)):
            folder = self.folders[model]
            read = pipeline.from_pretrained(folder, low_cpu_mem_usage=False)
            read.set_progress_bar_config(disable=True)
            drawn = read("a red cat", height=16, width=16, num_inference_steps=2, output_type="np").images
            self.assertEqual(drawn.shape, (1, 16, 16, 3))
            for name, network in read.components.items():
                if isinstance(network, torch.nn.Module):
                    complete(type(network), folder / name, **({} if "text" in name else {"low_cpu_mem_usage": False}))
            self.assertEqual((read.scheduler.config.prediction_type, read.scheduler.config.beta_schedule),
                             ("v_prediction", "squaredcos_cap_v2"))
            self.assertEqual((read.scheduler.config.clip_sample, read.scheduler.config.steps_offset), (False, 1))
        for model in ("hunyuan_tiny", "uvit_tiny"):  # this version has no class for their backbones
            complete(AutoencoderKL, self.folders[model] / "vae", low_cpu_mem_usage=False)
            DDIMScheduler.from_pretrained(self.folders[model] / "scheduler")
        folder = self.folders["hunyuan_tiny"]
        for name, network, tokenizer in (("", BertModel, BertTokenizer), ("_2", T5EncoderModel, T5Tokenizer)):
            complete(network, folder / f"text_encoder{name}")
            self.assertGreater(len(tokenizer.from_pretrained(folder / f"tokenizer{name}", legacy=True)("red").input_ids), 1)
        self.assertEqual(words, [])

    def test_runs_begin_from_them(self):
        """A run from such a folder is the run whose weights the seed draws; frozen networks give it finite numbers."""
        options = ("--steps", 2, "--seed", SEED)
        for model, folder in self.folders.items():
            with self.subTest(model):
                begun, whole = (self.train(*begin, *options, model=model, data="synthetic") for begin in (("--from", folder), ()))
                self.same_training(begun, whole)
        data = {"uvit_tiny": Classes.write_pictures(2)}
        for model, folder in self.folders.items():
            out = self.train("--from", folder, *options, model=model, data=data.get(model) or write_pictures())
            self.assertTrue(all(0.1 < loss < 10 for loss in report(out)["loss"]), f"{model}: {report(out)['loss']}")

    def test_types_shards_and_noise(self):
        folder = self.make("sd_tiny", "--export-type", "fp16", "--export-shard", 20000, "--noise", "scaled-linear", "--prediction",
                           "epsilon")
        for name in ("unet", "vae", "text_encoder"):
            self.assertGreater(len(list((folder / name).glob("*.safetensors"))), 1, name)
        settings = json.loads((folder / "scheduler/scheduler_config.json").read_text())
        self.assertEqual((settings["prediction_type"], settings["beta_schedule"]), ("epsilon", "scaled_linear"))
        self.train("--from", folder, "--steps", 1, model="sd_tiny", data=write_pictures())

    def test_backbones_without_frozen_networks(self):
        import numpy
        import torch
        from diffusers import DDIMPipeline

        read = DDIMPipeline.from_pretrained(self.make("ddpm_fmnist_small"), low_cpu_mem_usage=False)
        start = first_weights("ddpm_fmnist_small", seed=SEED).tensors
        for name, value in read.unet.state_dict().items():
            expected = torch.tensor(numpy.frombuffer(start[name], "<f4").copy())
            self.assertTrue(torch.equal(value.flatten(), expected), name)

    def test_refusals(self):
        def refused(*options, names, model="sd_tiny"):
            folder = fresh()
            self.refuses(raw=self.line(folder, *options, model=model), names=names)
            self.assertFalse(folder.exists())

        refused(names=["--tokenizer", "missing", "sd_tiny"])
        refused("--tokenizer", fresh(), names=["--tokenizer", "merges.txt"])
        refused("--tokenizer", FROM, names=["--tokenizer", "tokenizer_2", "sdxl_tiny"], model="sdxl_tiny")
        refused("--tokenizer", FROM / "tokenizer", names=["--tokenizer", "no text"], model="uvit_tiny")
        refused("--tokenizer", self.tokenizers["sd_tiny"], "--plan-only", names=["--plan-only", "--init"])
        large = fresh()
        shutil.copytree(FROM / "tokenizer", large)
        words = json.loads((large / "vocab.json").read_text())
        (large / "vocab.json").write_text(json.dumps({**words, **{f"more{i}": 523 + i for i in range(200)}}))
        refused("--tokenizer", large, names=["--tokenizer", str(large), "640"])
        self.refuses("--init", "--steps", 3, "--export", fresh(), names=["--init", "--from", "--steps 0"], model="sd_tiny")
        self.refuses("--from", FROM, "--tokenizer", FROM, names=["--tokenizer", "--from"], model="sd_tiny")
        full = fresh()
        full.mkdir()
        (full / "letters.txt").write_text("dear")
        self.refuses(raw=self.line(full, "--tokenizer", FROM), names=["--export", str(full)])



class RoundTrips(Case):
    """Folders that the libraries load, save, see trained, and load again."""

    @classmethod
    def setUpClass(cls):
        hunyuan = fresh()
        tiny_pipeline.write_hunyuan_texts(hunyuan, CAPTIONS)
        cls.models = {"sd_tiny": (FROM / "tokenizer", sd_conditions), "sdxl_tiny": (SDXL, sdxl_conditions),
                      "hunyuan_tiny": (hunyuan, hunyuan_conditions)}

    def test_they_train_and_come_back(self):
        import diffusers
        import torch

        data = write_pictures()
        for model, (texts, conditions) in self.models.items():
            base, new, exported = fresh(), fresh(), fresh()
            self.invoke([PROGRAM, "--model", model, "--init", "--steps", 0, "--tokenizer", texts, "--export", base], 0)
            kind = getattr(diffusers, json.loads((base / "model_index.json").read_text())["_class_name"], None)
            with self.subTest(model):
                if kind is None:
                    self.skipTest("a pipeline of later versions")
                pipeline = kind.from_pretrained(base, low_cpu_mem_usage=False)
                pipeline.save_pretrained(new)
                out = self.train("--from", new, "--steps", 1, "--seed", SEED, "--export", exported, "--export-of", "weights",
                                 model=model, data=data)
                expected = expected_loss(data, CAPTIONS, range(8), pipeline, conditions)
                self.assertLess(abs(report(out)["loss"][0] - expected), 1e-5 * expected, f"{report(out)['loss']} {expected}")
                read = kind.from_pretrained(exported, low_cpu_mem_usage=False)
                kept = Safetensors(out / "checkpoint.safetensors").tensors
                component = "unet" if hasattr(read, "unet") else "transformer"
                network, info = type(getattr(read, component)).from_pretrained(
                    exported / component, low_cpu_mem_usage=False, output_loading_info=True)
                self.assertFalse(any(info.values()), info)
                for name, value in network.state_dict().items():
                    self.assertEqual(value.numpy().tobytes(), kept[name], name)
                frozen = {name: part for name, part in read.components.items() if isinstance(part, torch.nn.Module)}
                self.assertGreater(len(frozen), 2)
                del frozen[component]
                for name, part in frozen.items():
                    for key, value in getattr(pipeline, name).state_dict().items():
                        self.assertTrue(torch.equal(part.state_dict()[key], value), f"{name}: {key}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
