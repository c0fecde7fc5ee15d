"""pulse_train with a diffusers folder: starts from one, draws with one, and writes one that diffusers reads."""

import io
import json
import logging
import math
import pathlib
import random
import shutil
import subprocess
import sys
import unittest

import chance
import tiny_pipeline
from diffusers_folder import (
    CAPTIONS, FROM, MODEL, PIPELINE, SDXL, SDXL_PIPELINE, SEED, UNET, changed, expected_loss, files_of,
    first_weights, hunyuan_conditions, long_conditions, sd_conditions, sdxl_conditions, with_weights, write_classes,
    write_pictures)
from files import Safetensors
from pulse_train import PROGRAM, ROOM, Case, command, fresh, report


class Quickstart(Case):
    """A pixel model, and the folder and captions that examples/fashion_mnist.py writes for it."""

    @classmethod
    def setUpClass(cls):
        script = pathlib.Path(__file__).parents[2] / "examples/fashion_mnist.py"
        cls.folder = ROOM / "fashion-mnist"
        done = subprocess.run([sys.executable, "-B", script, "write", cls.folder, "--count", "30"],
                              capture_output=True, text=True)
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
        options = ("--from", self.folder / "start", "--init", "--seed", SEED, "--lr", 1e-30, "--export", exported,
                   "--prompts", self.folder / "prompts.txt", "--steps", 2)
        what = {"model": "sd_fmnist", "data": self.folder / "pictures"}
        with tarfile.open(self.folder / "pictures/fashion-mnist.tar") as shard:
            members = {member.name: shard.extractfile(member).read() for member in shard}
        alone = self.train(*options, "--ranks", 1, **what)
        out = self.train(*options, "--ranks", 2, **what, sample=20)
        self.same_training(alone, out)
        self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        lines = [json.loads(line) for line in (out / "pictures/metadata.jsonl").read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], 2 * (self.folder / "prompts.txt").read_text().splitlines())
        # a column for each prompt
        for name, size in (("pictures/0003.png", (28, 28)), ("samples.png", (2 + 10 * 58, 2 + 2 * 58))):
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
            file = draw.choice([path for place in (folder, pictures) for path in sorted(place.rglob("*"))
                                if path.is_file()])
            content = bytearray(file.read_bytes())
            at = draw.randrange(min(len(content), 1000))  # within the headers
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
                line = command("--from", folder, "--steps", 1, "--ranks", 2, out=fresh(), model="sd_tiny",
                               data=pictures)
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
    def test_the_folder_says_which_model_it_is(self):
        out = self.train("--from", FROM, "--steps", 1, model=None, data="synthetic")
        self.assertEqual(json.loads((out / "plan.json").read_text())["model"], "sd_tiny")
        folder = changed()
        config = json.loads((folder / "unet/config.json").read_text())
        (folder / "unet/config.json").write_text(json.dumps({**config, "in_channels": 9}))
        self.refuses("--from", folder, names=["--from", "not one that this build trains on the host", "sd_tiny",
                                              f"-DPULSE_TRAIN_HOST={folder}"], model=None, data="synthetic")

    def test_untrained_export_is_the_folder(self):
        out, copy = fresh(), fresh()
        self.train("--from", FROM, "--steps", 0, "--export", copy, out=out, **MODEL)
        self.assertEqual(files_of(copy), files_of(FROM))
        self.assertEqual(list(out.iterdir()), [])  # nothing was planned or trained
        self.train("--from", FROM, "--steps", 0, "--export", copy, "--export-shard", 40000, "--export-type", "fp16",
                   **MODEL)
        shards = sorted(path.name for path in (copy / "unet").glob("*.safetensors"))
        self.assertGreater(len(shards), 2)
        import torch
        from safetensors.torch import load_file
        read = {}
        for shard in shards:  # this version of diffusers cannot read shards
            read.update(load_file(copy / "unet" / shard))
        self.assertEqual(read.keys(), PIPELINE.unet.state_dict().keys())
        for name, value in PIPELINE.unet.state_dict().items():
            self.assertTrue(torch.equal(read[name], value.half()), name)

    def test_steps_without_a_learning_rate_leave_the_folder(self):
        """Weights and averages start with those of the folder, on every rank."""
        import numpy

        for ranks, part in ((1, "averages"), (3, "averages"), (2, "weights")):
            exported = fresh()
            self.train("--from", FROM, "--steps", 2, "--ranks", ranks, "--lr", 1e-30, "--export", exported,
                       "--export-of", part, **MODEL)
            written = Safetensors(exported / UNET).tensors
            for name, content in Safetensors(FROM / UNET).tensors.items():
                expected, found = (numpy.frombuffer(data, "<f4") for data in (content, written[name]))
                self.assertLess(float(abs(expected - found).max()), 1e-7, f"{part}: {name}")

    def test_a_run_from_its_own_first_weights_is_the_same_run(self):
        start = self.train("--steps", 0, "--seed", 5, **MODEL) / "checkpoint.safetensors"
        first = Safetensors(start)
        weights = {name: content for name, content in first.tensors.items()
                   if not name.startswith(("optimizer.", "ema."))}
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
            out = fresh()
            line = command("--from", FROM, "--steps", 2, "--export", exported, "--export-of", part, out=out, **MODEL)
            done = self.invoke(line, 0)
            self.assertEqual(done.stderr, "")
            self.assertIn(f"\n  {exported}\n", done.stdout)
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
        # a folder with another noise process
        other = changed()
        scheduler = other / "scheduler/scheduler_config.json"
        scheduler.write_text(scheduler.read_text().replace("v_prediction", "epsilon"))
        self.refuses("--from", other, "--steps", 4, "--resume", half / "checkpoint.safetensors",
                     names=["--resume", "prediction v", "epsilon"], **MODEL)

    def test_refusals(self):
        def refused(folder, *names, options=()):
            self.refuses("--from", folder, "--export", fresh(), *options, names=["--from", *names], **MODEL)

        refused("stabilityai/stable-diffusion-2-1", "not a folder", "hf download", "save_pretrained")
        refused(FROM / UNET, UNET, "holds only weights", "--config-of")
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
            pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "5" * 64 + "\nsize 9\n"
            (folder / file).write_text(pointer)
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
            f"pulse_train: '{folder}/text_encoder': {said}",
            f"pulse_train: '{folder}/unet': {said}; --export leaves them out"])
        self.same_training(out, self.train("--from", FROM, "--steps", 1, "--ranks", 2, "--export", alone, **what))
        self.assertEqual({**files_of(exported), "text_encoder/model.safetensors": b""},
                         {**files_of(alone), "text_encoder/model.safetensors": b""})
        self.assertEqual(files_of(exported)["text_encoder/model.safetensors"],
                         files_of(folder)["text_encoder/model.safetensors"])
        # tensor names of a CLIP that did not come from a folder
        file = "text_encoder/model.safetensors"
        save_file({name.removeprefix("text_model."): value for name, value in load_file(FROM / file).items()},
                  folder / file, {"format": "pt"})
        shutil.copy(FROM / UNET, folder / UNET)
        self.same_training(out, self.train("--from", folder, "--steps", 1, "--ranks", 2, out=copy, **what))

    def test_halves_in_several_files(self):
        """Named like variants of the newest libraries; this version's cannot read sharded variants."""
        from safetensors.torch import load_file, save_file

        what = {"model": "sd_tiny", "data": write_pictures()}
        folder, whole = changed(), changed()
        for component, stem in (("unet", "diffusion_pytorch_model"), ("vae", "diffusion_pytorch_model"),
                                ("text_encoder", "model")):
            file = f"{component}/{stem}.safetensors"
            tensors = {name: value.half() if value.is_floating_point() else value
                       for name, value in load_file(FROM / file).items()}
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
        for name, options in (("EulerAncestralDiscrete", {}),
                              ("UniPCMultistep", {"solver_order": 3, "use_karras_sigmas": True})):
            shutil.rmtree(folder / "scheduler")
            getattr(diffusers, f"{name}Scheduler")(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction",
                                                   **options).save_pretrained(folder / "scheduler")
            exported = fresh()
            self.same_training(usual, self.train("--from", folder, "--steps", 1, "--export", exported, **what))
            file = "scheduler/scheduler_config.json"
            self.assertEqual((exported / file).read_bytes(), (folder / file).read_bytes())
        line = [PROGRAM, "--model", "sd_tiny", "--from", folder, "--out", fresh(), "--steps", 0, "--sample-steps", 1,
                "--prompt", "a"]
        said = ("drawing by --sampler ddim, where the folder's scheduler asks for UniPCMultistepScheduler, "
                "use_karras_sigmas true\n")
        self.assertEqual(self.invoke(line, 0).stdout.count(said), 1)
        line[line.index(folder)] = FROM
        self.assertNotIn("asks for", self.invoke(line, 0).stdout)
        # a folder's own betas are a different noise process from any named one
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
        for below in ("new", "new.safetensors"):
            below = full / "letters.txt" / below
            self.refuses("--from", FROM, "--export", below, names=["--export", str(below), "is not a folder"], **MODEL)
        loop = full / "loop.safetensors"
        loop.symlink_to(loop)
        self.refuses("--from", FROM, "--export", loop, names=["--export", str(loop)], **MODEL)
        self.refuses("--from", FROM, "--export", 251 * "x" + ".safetensors", names=["--export", "xxx"], **MODEL)
        self.refuses(raw=[PROGRAM, "--from", FROM, "--steps", 1, "--out", fresh()],
                     names=["--data, which is not given: '/usr/share/datasets/fashion-mnist'"])


class SingleFiles(Case):
    """A single-file checkpoint replaces a folder's weights."""

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures()

    def packed(self, model, folder):
        """The folder's weights in one file, and the folder without them."""
        file, configs = fresh().with_suffix(".safetensors"), changed(folder)
        self.train("--from", folder, "--steps", 0, "--export", file, model=model, data="synthetic")
        for path in configs.rglob("*.safetensors"):
            path.unlink()
        return file, configs

    def same_weights(self, one, other):
        weights = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
        self.assertGreaterEqual(len(weights), 3)
        for name in weights:
            self.assertEqual(Safetensors(one / name).tensors, Safetensors(other / name).tensors, name)
        self.assertEqual(*({name: content for name, content in files_of(folder).items()
                            if not name.endswith(".safetensors")}
                           for folder in (one, other)))

    def test_it_begins_and_ends_a_run_as_the_folder_does(self):
        for model, folder in (("sd_tiny", FROM), ("sdxl_tiny", SDXL)):
            file, configs = self.packed(model, folder)
            whole = ("--from", file, "--config-of", configs)
            exported = fresh()
            self.train(*whole, "--steps", 0, "--export", exported, model=model, data="synthetic")
            self.same_weights(folder, exported)

            def learn(*options, steps=2, **more):
                return self.train("--steps", steps, "--seed", SEED, "--ranks", 2, "--prompt", "a red cat", *options,
                                  **{"model": model, "data": self.data, "sample": 1, **more})

            before, after, ending = fresh(), fresh(), fresh().with_suffix(".safetensors")
            usual = learn("--from", folder, "--export", before)
            self.same_training(usual, learn(*whole, "--export", after))
            self.same_weights(before, after)
            once = learn(*whole, "--encode", "once", "--cache", fresh(), "--export", ending)
            self.same_training(usual, once)
            self.assertEqual(files_of(usual / "pictures"), files_of(once / "pictures"))
            unpacked = fresh()
            self.train("--from", ending, "--config-of", folder, "--steps", 0, "--export", unpacked, model=model,
                       data="synthetic")
            self.same_weights(before, unpacked)
            half = learn("--from", folder, steps=1)
            self.same_tensors(usual, learn(*whole, "--resume", half / "checkpoint.safetensors"))

    def test_diffusers_reads_what_is_exported(self):
        import diffusers
        import torch

        if int(diffusers.__version__.split(".")[1]) < 30:
            self.skipTest("from_single_file takes no folder of configs")
        for model, folder, pipeline in (("sd_tiny", FROM, PIPELINE), ("sdxl_tiny", SDXL, SDXL_PIPELINE)):
            file, configs = self.packed(model, folder)
            beside = {} if model == "sdxl_tiny" else {"safety_checker": None, "feature_extractor": None}
            read = type(pipeline).from_single_file(str(file), config=str(configs), local_files_only=True, **beside)
            networks = [name for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)]
            self.assertGreaterEqual(len(networks), 3)
            for name in networks:
                ours, theirs = getattr(pipeline, name).state_dict(), getattr(read, name).state_dict()
                self.assertEqual(ours.keys(), theirs.keys())
                self.assertEqual([key for key in ours if not torch.equal(ours[key], theirs[key])], [], name)

    def test_it_may_lie_in_its_folder_and_replace_itself(self):
        file, configs = self.packed("sd_tiny", FROM)
        inside = configs / "model.safetensors"
        shutil.copy(file, inside)
        self.train("--from", inside, "--steps", 0, "--export", inside, **MODEL)
        self.assertEqual(inside.read_bytes(), file.read_bytes())
        out = self.train("--from", inside, "--steps", 1, "--lr", 1e-3, "--export", inside,
                         "--export-type", "fp16", **MODEL)
        import torch
        from safetensors.torch import load_file
        first, last = load_file(file), load_file(inside)
        self.assertEqual(first.keys(), last.keys())
        kept = Safetensors(out / "checkpoint.safetensors")
        for name, value in first.items():
            if name.startswith("model.diffusion_model."):
                self.assertEqual(last[name].dtype, torch.float16, name)
            else:
                self.assertTrue(torch.equal(last[name], value), name)
        trained = torch.frombuffer(bytearray(kept.tensors["ema.conv_in.bias"]), dtype=torch.float32)
        self.assertTrue(torch.equal(last["model.diffusion_model.input_blocks.0.0.bias"], trained.half()))

    def test_refusals(self):
        file, configs = self.packed("sd_tiny", FROM)

        def refused(*options, names, **kind):
            self.refuses("--steps", 1, *options, names=names, **{**MODEL, **kind})

        refused("--from", file, names=["--from", str(file), "holds only weights", "--config-of"])
        refused("--from", FROM, "--config-of", configs, names=["--config-of", "one-file checkpoint"])
        refused("--config-of", configs, names=["--config-of", "one-file checkpoint"])
        refused("--from", file, "--config-of", self.data, names=["--config-of", str(self.data), "model_index.json"])
        refused("--from", "gone.safetensors", "--config-of", configs,
                names=["--from", "gone.safetensors", "does not exist"])
        refused("--from", file, "--config-of", SDXL, names=["compiled model sd_tiny", "unet/config.json"])
        refused("--from", file, "--config-of", configs, "--export", configs,
                names=["--export", str(configs), "not replaced"])
        refused("--from", FROM, "--export", fresh().with_suffix(".safetensors"), "--export-shard", 5,
                names=["--export-shard"])
        out, own = fresh(), configs / "unet/diffusion_pytorch_model.safetensors"
        refused("--from", FROM, "--export", out / "checkpoint.safetensors", out=out, names=["--export", "run resumes"])
        refused("--from", file, "--config-of", configs, "--export", own,
                names=["--export", str(own), "inside a component"])
        folder = fresh().with_suffix(".safetensors")
        folder.mkdir()
        refused("--from", FROM, "--export", folder, names=["--export", "is a folder"])
        self.refuses("--init", "--steps", 0, "--export", fresh().with_suffix(".safetensors"),
                     names=["--export", "--init"], **MODEL)
        cut = fresh().with_suffix(".safetensors")
        cut.write_bytes(file.read_bytes()[:-10])
        refused("--from", cut, "--config-of", configs, names=["--from", str(cut)])
        lacking = fresh().with_suffix(".safetensors")
        lacking.write_bytes(file.read_bytes().replace(b"middle_block.1.norm.bias", b"middle_block.9.norm.bias"))
        refused("--from", lacking, "--config-of", configs, names=[str(lacking), "mid_block.attentions.0.norm.bias"])
        checkpoint = fresh().with_suffix(".ckpt")
        checkpoint.write_bytes(b"PK")
        refused("--from", checkpoint, names=["--from", "from_single_file"])


class Losses(Case):
    """Losses on captioned pictures encoded by frozen networks equal PyTorch's."""

    def test_stable_diffusion(self):
        data = write_pictures()
        out = self.train("--from", FROM, "--seed", SEED, "--steps", 2, "--lr", 1e-30, model="sd_tiny", data=data)
        self.compare(out, data, PIPELINE, sd_conditions)
        self.assertGreater(report(out)["captions_cut"], 0)

    def test_long_captions(self):
        captions = ["a red photo of a cat of red", *CAPTIONS]
        data = write_pictures(captions)
        options = ("--from", FROM, "--seed", SEED, "--steps", 2, "--lr", 1e-30)
        out = self.train(*options, model="sd_long_tiny", data=data)
        for step, loss in enumerate(report(out)["loss"]):
            expected = expected_loss(data, captions, range(8 * step, 8 * step + 8), conditions=long_conditions)
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss} {expected}")
        self.assertEqual(report(out)["captions_cut"], 0)
        self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        for how in ("--ranks 1 --encode each-step", "--ranks 2 --encode bubbles",
                    f"--ranks 2 --encode once --cache {fresh()}"):
            with self.subTest(how):
                self.same_training(self.train(*options, *how.split(), model="sd_long_tiny", data=data), out)

    def test_masked_loss(self):
        """Errors are weighted by the area mean of alpha, as in kohya's sd-scripts; in validation, too."""
        data, judged = write_pictures(widths=(16, 24, 19), alpha=True), write_pictures(CAPTIONS[:7], alpha=True)
        options = ("--from", FROM, "--seed", SEED, "--steps", 2, "--lr", 1e-30)
        out = self.train(*options, "--masked-loss", "yes", "--validate", judged, "--validate-times", 2, model="sd_tiny",
                         data=data)
        self.compare(out, data, PIPELINE, sd_conditions, masked=True)
        for time, loss in report(out)["validation"][0]["at"].items():
            expected = expected_loss(judged, CAPTIONS[:7], range(7), seed=0, at=int(time), masked=True)
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{time}: {loss} {expected}")
        # without it, pictures are blended with white
        self.compare(self.train(*options, model="sd_tiny", data=data), data, PIPELINE, sd_conditions)

    def test_sdxl(self):
        data = write_pictures(widths=(16, 24, 19))
        out = self.train("--from", SDXL, "--seed", SEED, "--steps", 2, "--lr", 1e-30, model="sdxl_tiny", data=data)
        self.compare(out, data, SDXL_PIPELINE, sdxl_conditions)
        self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])

    def test_buckets(self):
        """Pictures of several shapes, each in the nearest bucket; SDXL's conditions name its size."""
        from PIL import Image

        sizes = [(8, 28), (16, 16), (20, 12)]
        # one side equals the bucket's, so that nothing is resized
        shapes = [(16, 16), (8, 29), (20, 13), (16, 17), (20, 12), (16, 19), (17, 16), (8, 28), (16, 16), (21, 12)]
        data, source = fresh(), random.Random(5)
        data.mkdir()
        for index, ((height, width), text) in enumerate(zip(shapes, CAPTIONS)):
            Image.frombytes("RGB", (width, height), source.randbytes(3 * height * width)).save(data / f"{index}.png")
            (data / f"{index}.txt").write_text(text)
        buckets = [[i for i, (height, width) in enumerate(shapes) if height >= size[0] and width >= size[1]
                    and min(height - size[0], width - size[1]) == 0] for size in sizes]
        self.assertEqual(sorted(sum(buckets, [])), list(range(len(shapes))))

        def seen_at(position):
            bucket, picture = chance.of_bucket_at(SEED, position, 4, buckets)
            return sizes[bucket], picture

        for folder, model, pipeline, conditions in ((FROM, "sd_tiny", PIPELINE, sd_conditions),
                                                    (SDXL, "sdxl_tiny", SDXL_PIPELINE, sdxl_conditions)):
            with self.subTest(model):
                out = self.train("--from", folder, "--seed", SEED, "--steps", 10, "--lr", 1e-30,
                                 "--buckets", "16:4:8-28", model=model, data=data,
                                 size=("--microbatch-size", 2, "--microbatches", 2))
                made = report(out)
                self.assertEqual([(one["height"], one["width"]) for one in made["extents"]], [(4, 14), (8, 8), (10, 6)])
                for step, loss in enumerate(made["loss"]):
                    expected = expected_loss(data, CAPTIONS, range(4 * step, 4 * step + 4), pipeline, conditions,
                                             seen_at)
                    self.assertLess(abs(loss - expected), 1e-5 * expected, f"step {step}: {loss} {expected}")
                counts = [sum(seen_at(4 * step)[0] == size for step in range(10)) for size in sizes]
                self.assertEqual([one["steps"] for one in made["extents"]], counts)

    def test_validation_is_that_of_the_backbone_at_each_timestep(self):
        data, judged = write_pictures(), write_pictures(CAPTIONS[:7])
        for folder, model, pipeline, conditions in ((FROM, "sd_tiny", PIPELINE, sd_conditions),
                                                    (SDXL, "sdxl_tiny", SDXL_PIPELINE, sdxl_conditions)):
            with self.subTest(model):
                out = self.train("--from", folder, "--seed", SEED, "--steps", 1, "--validate", judged,
                                 "--validate-times", 3, model=model, data=data)
                found = report(out)["validation"][0]["at"]
                self.assertEqual(list(found), ["166", "500", "833"])
                for time, loss in found.items():
                    expected = expected_loss(judged, CAPTIONS[:7], range(7), pipeline, conditions, seed=0, at=int(time))
                    self.assertLess(abs(loss - expected), 1e-5 * expected, f"{time}: {loss} {expected}")

    def test_flow_and_edm(self):
        """By the formulas of rectified flow with a shift of 3, and of table 1 of Karras et al."""
        data, judged = write_pictures(), write_pictures(CAPTIONS[:5])

        def flow(t):
            s = 3 * (t + 1) / 1000 / (1 + 2 * (t + 1) / 1000)
            return 1 - s, s, 1000 * s, -1, 1

        def edm(t):
            sigma = (80 ** (1 / 7) + (999 - t) / 1000 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
            whole = (sigma**2 + 0.25) ** 0.5
            c_skip, c_out = 0.25 / whole**2, 0.5 * sigma / whole
            return 1 / whole, sigma / whole, math.log(sigma) / 4, (1 - c_skip) / c_out, -c_skip * sigma / c_out

        for scheduler, level in (({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}, flow),
                                 ({"_class_name": "EDMEulerScheduler"}, edm)):
            with self.subTest(scheduler):
                folder = changed()
                (folder / "scheduler/scheduler_config.json").write_text(json.dumps(scheduler))
                out = self.train("--from", folder, "--seed", SEED, "--steps", 2, "--validate", judged,
                                 "--validate-times", 3, "--prompt", "a cat", model="sd_tiny", data=data, sample=1)
                for time, loss in report(out)["validation"][0]["at"].items():
                    expected = expected_loss(judged, CAPTIONS[:5], range(5), seed=0, at=int(time), level=level)
                    self.assertLess(abs(loss - expected), 1e-5 * expected, f"{time}: {loss} {expected}")
                self.assertTrue((out / "pictures/0000.png").exists())

    def compare(self, out, data, pipeline, conditions, **how):
        for step, loss in enumerate(report(out)["loss"]):
            expected = expected_loss(data, CAPTIONS, range(8 * step, 8 * step + 8), pipeline, conditions, **how)
            self.assertLess(abs(loss - expected), 1e-5 * expected, f"{loss} {expected}")


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
        # without a negative text, its states are zeros
        self.compare(tiny_pipeline.write_sdxl(folder), folder, "sdxl_tiny", ("photo", None), add_watermarker=False)

    def compare(self, pipeline, folder, model, negatives, **settings):
        import numpy
        import torch
        from diffusers import DDIMScheduler, DPMSolverMultistepScheduler

        prompts = ["a red cat", "photo of a car", "a red cat"]
        start = torch.tensor(numpy.concatenate([chance.normals(SEED, chance.SAMPLE_START, 256 * i, 256)
                                                for i in range(3)]))
        start = start.view(3, 8, 8, 4).permute(0, 3, 1, 2)
        for sampler, scheduler in (("ddim", DDIMScheduler), ("dpm++", DPMSolverMultistepScheduler)):
            # stated although it is the folder's: another class would replace a default by its own
            steps = scheduler.from_config(pipeline.scheduler.config, timestep_spacing="leading")
            drawing = type(pipeline)(**{**pipeline.components, "scheduler": steps}, **settings)
            drawing.set_progress_bar_config(disable=True)
            for guidance, negative in ((1, "photo"), *((4, text) for text in negatives)):
                expected = drawing(prompts, height=16, width=16, num_inference_steps=5, guidance_scale=guidance,
                                   latents=start, negative_prompt=negative and [negative] * 3, output_type="np").images
                out = self.draw(folder, "--sampler", sampler, "--guidance", guidance,
                                *(("--negative", negative) if negative else ()),
                                *(word for prompt in prompts for word in ("--prompt", prompt)), model=model)
                found = self.pictures(out)
                self.assertEqual([text for text, _ in found], prompts)
                error = numpy.mean((numpy.stack([picture for _, picture in found]) / 255 - expected) ** 2)
                # 50 dB; rounding a picture to whole numbers alone gives 58.9 dB
                self.assertLess(error, 1e-5, f"{model}, {sampler}, guidance {guidance}, negative {negative}")
                self.assertGreater(numpy.std(expected), 0.02)
        self.assertFalse(numpy.array_equal(found[0][1], found[2][1]))  # other noise

    def test_training_ends_with_pictures_of_what_it_exports(self):
        exported, out = fresh(), fresh()
        prompts = ROOM / "prompts.txt"
        prompts.write_bytes(b"\xef\xbb\xbfa red cat\n\n \t\r\nphoto\r\n")
        drawn = ("--prompts", prompts, "--sample", 5)
        self.invoke([PROGRAM, "--model", "sd_tiny", "--from", FROM, "--data", write_pictures(), "--out", out,
                     "--export", exported, *self.DRAW, "--steps", 2, "--ranks", 2, "--microbatch-size", 2,
                     "--microbatches", 2, "--plan-time", 0, *drawn], 0)
        again = self.draw(exported, *drawn)
        self.assertEqual(files_of(out / "pictures"), files_of(again / "pictures"))
        self.assertEqual([text for text, _ in self.pictures(out)],
                         ["a red cat", "photo", "a red cat", "photo", "a red cat"])
        self.assertEqual((out / "samples.png").read_bytes(), (again / "samples.png").read_bytes())

    def test_pictures_while_training(self):
        """Drawing does not affect the run, and draws the same as a run that ends there."""
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
        self.refuses("--from", FROM, "--prompts", binary, names=["--prompts", str(binary), "line 2", "UTF-8"], sample=1,
                     **MODEL)
        folder = changed()
        (folder / "vae/diffusion_pytorch_model.safetensors").unlink()
        self.refuses("--from", folder, "--prompt", "a", names=["--prompt", "vae"], sample=1, **MODEL)


class NewFolders(Case):
    """Folders of random weights, which pulse_train writes if there is none to start from."""

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
        # equal text encoders get different weights
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
            read = tokenizer.from_pretrained(folder / f"tokenizer{name}", legacy=True)
            self.assertGreater(len(read("red").input_ids), 1)
        self.assertEqual(words, [])

    def test_runs_begin_from_them(self):
        """A run from such a folder equals the run whose weights the seed draws; frozen networks give finite numbers."""
        options = ("--steps", 2, "--seed", SEED)
        for model, folder in self.folders.items():
            with self.subTest(model):
                begun, whole = (self.train(*begin, *options, model=model, data="synthetic")
                                for begin in (("--from", folder), ()))
                self.same_training(begun, whole)
        data = {"uvit_tiny": write_classes(2)}
        for model, folder in self.folders.items():
            out = self.train("--from", folder, *options, model=model, data=data.get(model) or write_pictures())
            self.assertTrue(all(0.1 < loss < 10 for loss in report(out)["loss"]), f"{model}: {report(out)['loss']}")

    def test_flow_and_edm(self):
        import diffusers

        for objective, name in (("flow", "FlowMatchEulerDiscrete"), ("edm", "EDMEuler")):
            folder = self.make("sd_tiny", "--prediction", objective,
                               *(("--flow-shift", 3) if objective == "flow" else ()))
            known = getattr(diffusers, f"{name}Scheduler", None) # missing before 0.29
            if known:
                read = known.from_pretrained(folder / "scheduler").config
                self.assertEqual(read.shift if objective == "flow" else read.sigma_data,
                                 3 if objective == "flow" else 0.5)
            index = json.loads((folder / "model_index.json").read_text())
            self.assertEqual(index["scheduler"], ["diffusers", f"{name}Scheduler"])
            self.train("--from", folder, "--steps", 1, model="sd_tiny", data=write_pictures())

    def test_types_shards_and_noise(self):
        folder = self.make("sd_tiny", "--export-type", "fp16", "--export-shard", 20000, "--noise", "scaled-linear",
                           "--prediction", "epsilon")
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

        refused(names=["--tokenizer", "required", "sd_tiny"])
        refused("--tokenizer", fresh(), names=["--tokenizer", "merges.txt"])
        refused("--tokenizer", FROM, names=["--tokenizer", "tokenizer_2", "sdxl_tiny"], model="sdxl_tiny")
        refused("--tokenizer", FROM / "tokenizer", names=["--tokenizer", "no text"], model="uvit_tiny")
        refused("--tokenizer", self.tokenizers["sd_tiny"], "--plan-only", names=["--plan-only", "--init"])
        large = fresh()
        shutil.copytree(FROM / "tokenizer", large)
        words = json.loads((large / "vocab.json").read_text())
        (large / "vocab.json").write_text(json.dumps({**words, **{f"more{i}": 523 + i for i in range(200)}}))
        refused("--tokenizer", large, names=["--tokenizer", str(large), "640"])
        self.refuses("--init", "--steps", 3, "--export", fresh(), names=["--init", "--from", "--steps 0"],
                     model="sd_tiny")
        self.refuses("--from", FROM, "--tokenizer", FROM, names=["--tokenizer", "--from"], model="sd_tiny")
        full = fresh()
        full.mkdir()
        (full / "letters.txt").write_text("dear")
        self.refuses(raw=self.line(full, "--tokenizer", FROM), names=["--export", str(full)])


class RoundTrips(Case):
    """Folders that the libraries load and save, that are trained, and that they load again."""

    @classmethod
    def setUpClass(cls):
        hunyuan = fresh()
        tiny_pipeline.write_hunyuan_texts(hunyuan, CAPTIONS)
        cls.models = {"sd_tiny": (FROM / "tokenizer", sd_conditions), "sdxl_tiny": (SDXL, sdxl_conditions),
                      "hunyuan_tiny": (hunyuan, hunyuan_conditions)}
        # a model type generated from a folder, as in the check preset
        if "ssd_tiny" in subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout:
            cls.models["ssd_tiny"] = (SDXL, sdxl_conditions)

    def says_its_types(self, folder, texts):
        """The header that a build would generate from the folder has the backbone and all networks."""
        maker = pathlib.Path(PROGRAM).with_name("pulse_model")
        if maker.exists():
            made = self.invoke([maker, folder, "--name", "mine"], 0)
            self.assertEqual(made.stderr, "")
            self.assertIn("networks_of<pulse_models::mine>", made.stdout)
            self.assertEqual(made.stdout.count("struct mine"), 1 + texts)
            clip = "clip_text" in made.stdout and "unet" in made.stdout
            long = self.invoke([maker, folder, "--name", "mine", "--caption-chunks", 3], 0 if clip else 2)
            with open("/dev/full", "w") as full:  # where it could be taken for a whole header
                self.assertEqual(subprocess.run([maker, folder, "--name", "mine"], stdout=full,
                                                stderr=subprocess.DEVNULL).returncode, 2)
            if clip:
                self.assertIn(".context_tokens = 17", long.stdout)
                self.assertIn("mine_text_encoder, 3>", long.stdout)
            else:
                self.assertIn("--caption-chunks", long.stderr)

    def test_they_train_and_come_back(self):
        """The folder determines the model."""
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
                self.says_its_types(new, len([name for name in pipeline.components if name.startswith("text_encoder")]))
                out = self.train("--from", new, "--steps", 1, "--seed", SEED, "--export", exported,
                                 "--export-of", "weights", model=None, data=data)
                self.assertEqual(json.loads((out / "plan.json").read_text())["model"], model)
                expected = expected_loss(data, CAPTIONS, range(8), pipeline, conditions)
                self.assertLess(abs(report(out)["loss"][0] - expected), 1e-5 * expected,
                                f"{report(out)['loss']} {expected}")
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
