"""pulse_train with a ControlNet: the same bits on any ranks, hints beside pictures with every way of encoding, and
diffusers' networks.

Usage: pulse_train_control.py PROGRAM WHEELS [MPIRUN flags...]: where PyPI's packages are, and the command line that
starts processes, without their number and the program.
"""

import json
import random
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import chance
import tiny_pipeline
from files import Safetensors, write_png
from pulse_train import PATIENCE, PROGRAM, ROOM, Case, command, fresh, report

WHEELS = sys.argv[1] if len(sys.argv) > 1 else ""
LAUNCH = sys.argv[2:]
SYNTHETIC = {"model": "controlnet_tiny", "data": "synthetic"}
HINT = 64  # 8 pixels per latent


def write_hints(folder, names, seed=5):
    folder.mkdir(parents=True)
    source = random.Random(seed)
    for name in names:
        write_png(folder / f"{name}.png", HINT, source.randbytes(3 * HINT * HINT))
    return folder


class Made(Case):
    """On synthetic images and hints."""

    def test_every_pipeline_trains_alike(self):
        options = ("--steps", 5, "--lr", 3e-3, "--validate", 0.02, "--validate-times", 2)
        alone = self.train(*options, "--ranks", 1, sample=2, **SYNTHETIC)
        self.assertLess(report(alone)["loss"][-1], report(alone)["loss"][0])
        for ranks in ("--ranks 2", "--ranks 4 --placement sequential", "--ranks 3 --recomputation skips"):
            with self.subTest(ranks):
                self.same_run(alone, self.train(*options, *ranks.split(), sample=2, **SYNTHETIC))
        half = self.train("--steps", 3, *options[2:], "--ranks", 2, **SYNTHETIC)
        rest = self.train(*options, "--ranks", 3, "--resume", half / "checkpoints", **SYNTHETIC)
        self.same_tensors(alone, rest)

    def test_replicas(self):
        options = ("--steps", 3, "--replicas", 2)
        self.same_training(self.train(*options, "--ranks", 2, **SYNTHETIC),
                           self.train(*options, "--ranks", 4, **SYNTHETIC))

    @unittest.skipUnless(LAUNCH, "no processes are started here")
    def test_processes(self):
        threads = self.train("--steps", 3, "--ranks", 2, **SYNTHETIC)
        out = fresh()
        line = [str(word) for word in command("--steps", 3, "--transport", "mpi", out=out, **SYNTHETIC)]
        subprocess.run([*LAUNCH, "2", *line], check=True, capture_output=True, timeout=PATIENCE)
        self.same_training(threads, out)

    def test_wrong_use_is_refused(self):
        hint = write_hints(fresh(), ["one"]) / "one.png"
        for option, value in (("--control-from", ROOM), ("--control-data", ROOM)):
            self.refuses("--steps", 1, option, value, names=[option, "sd_tiny"], model="sd_tiny", data="synthetic")
        self.refuses("--steps", 1, "--control-picture", hint, names=["--control-picture", "--prompt"], **SYNTHETIC)
        self.refuses("--steps", 1, "--control-data", ROOM, names=["--control-data", "captioned"], **SYNTHETIC)
        self.refuses("--steps", 1, "--control-from", ROOM / "nowhere", names=["--control-from", "nowhere"], **SYNTHETIC)
        self.refuses(names=["--init", "ControlNet"],
                     raw=[PROGRAM, "--model", "controlnet_tiny", "--init", "--steps", 0, "--export", fresh()])


class Pictures(Case):
    """Captioned pictures with hints beside them."""

    @classmethod
    def setUpClass(cls):
        def run(*options):
            cls().invoke((PROGRAM, "--model", "sd_tiny", *options), 0)

        cls.folder, cls.data = tiny_pipeline.write_captioned(ROOM, run)
        cls.names = sorted(path.stem for path in cls.data.glob("*.png"))
        cls.hints = write_hints(ROOM / "hints", cls.names)

    def learn(self, *options, data=None, hints=None, steps=3, **more):
        named = ("--control-data", hints or self.hints) if data is None or hints else ()
        return self.train("--from", self.folder, "--steps", steps, *named, *options, model="controlnet_tiny",
                          data=data or self.data, **more)

    def with_metadata(self, field="conditioning_image"):
        data = fresh()
        shutil.copytree(self.hints, data / "hints")
        lines = []
        for name in self.names:
            shutil.copy(self.data / f"{name}.png", data)
            lines.append(json.dumps({"file_name": f"{name}.png", "text": (self.data / f"{name}.txt").read_text(),
                                     field: f"hints/{name}.png"}))
        (data / "metadata.jsonl").write_text("\n".join(lines))
        return data

    def test_hints_are_the_same_however_pictures_are_encoded(self):
        chance_of = ("--flip", "yes", "--crop", "random")
        before = self.learn("--ranks", 1, "--encode", "each-step", *chance_of)
        for how in ("--ranks 2 --encode bubbles", "--ranks 3 --placement sequential --encode each-step",
                    "--ranks 2 --encode bubbles --recomputation stages"):
            with self.subTest(how):
                out = self.learn(*how.split(), *chance_of)
                self.same_training(before, out)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        fixed = self.learn("--ranks", 1, "--encode", "each-step", "--flip", "yes")
        self.same_training(fixed, self.learn("--ranks", 2, "--encode", "once", "--cache", fresh(), "--flip", "yes"))
        for field in ("conditioning_image", "conditioning_image_file_name"):
            named = self.learn("--ranks", 2, "--flip", "yes", data=self.with_metadata(field))
            self.assertEqual(report(named)["loss"], report(fixed)["loss"])
        other = self.learn("--ranks", 1, "--flip", "yes", hints=write_hints(fresh(), self.names, seed=6))
        self.assertNotEqual(report(other)["loss"][-1], report(fixed)["loss"][-1])

    def test_a_picture_that_is_skipped_takes_its_hint_with_it(self):
        data = fresh()
        shutil.copytree(self.data, data)
        (data / "1.png").write_bytes((data / "1.png").read_bytes()[:60])
        losses = []
        for how in ("--ranks 1 --encode each-step", "--ranks 2 --encode bubbles",
                    f"--ranks 2 --encode once --cache {fresh()}"):
            out = fresh()
            done = self.invoke(command("--from", self.folder, "--control-data", self.hints, "--steps", 3,
                                       "--on-bad-picture", "skip", *how.split(), out=out, model="controlnet_tiny",
                                       data=data), 0)
            self.assertIn("1.png", done.stderr)
            losses.append(report(out)["loss"])
        # no sample sees the hint of a skipped picture, good or bad
        hints = fresh()
        shutil.copytree(self.hints, hints)
        for content in ((self.hints / "2.png").read_bytes(), (self.hints / "1.png").read_bytes()[:-2000]):
            (hints / "1.png").write_bytes(content)
            out = fresh()
            self.invoke(command("--from", self.folder, "--control-data", hints, "--steps", 3,
                                "--on-bad-picture", "skip", "--ranks", 2, "--encode", "bubbles", out=out,
                                model="controlnet_tiny", data=data), 0)
            losses.append(report(out)["loss"])
        self.assertEqual(losses, losses[:1] * 5)

    def test_a_hint_that_is_cut_ends_the_run_before_its_step(self):
        """Leaves a checkpoint of the steps before, with every way of encoding."""
        bad = chance.index_at(1, 3, len(self.names))
        hints = fresh()
        shutil.copytree(self.hints, hints)
        cut = hints / f"{self.names[bad]}.png"
        cut.write_bytes(cut.read_bytes()[:-2000])
        for how in ("--ranks 1 --encode each-step", "--ranks 2 --encode bubbles",
                    "--ranks 2 --encode bubbles --on-bad-picture skip"):
            with self.subTest(how):
                out = fresh()
                done = self.invoke(command("--from", self.folder, "--control-data", hints, "--steps", 3, *how.split(),
                                           out=out, model="controlnet_tiny", data=self.data,
                                           size=("--microbatch-size", 1, "--microbatches", 2)), 2)
                self.assertIn(f"--control-data: '{cut}'", done.stderr)
                self.assertIn("step 2 cannot run; --resume goes on from the last checkpoint", done.stderr)
                self.assertTrue((out / "checkpoints/step-00000001").is_dir())

    def test_validation_reads_the_hints_of_its_own_metadata(self):
        judged = self.with_metadata()
        runs = [self.learn("--validate", judged, *how.split())
                for how in ("--ranks 1 --encode each-step", "--ranks 2 --encode bubbles")]
        found = [report(run)["validation"] for run in runs]
        self.assertEqual(found[0], found[1])
        self.refuses("--from", self.folder, "--steps", 1, "--control-data", self.hints, "--validate", self.data,
                     names=["--validate: ", "no conditioning image"], model="controlnet_tiny", data=self.data)
        other = self.with_metadata()
        write_png(other / "hints/0.png", HINT, bytes(3 * HINT * HINT))
        plain, changed = (report(self.learn("--validate", data, "--lr", 0.1))["validation"] for data in (judged, other))
        self.assertEqual(changed[0], plain[0])  # its controls are zeros
        self.assertNotEqual(changed[-1], plain[-1])

    def test_it_goes_on_under_the_same_unet_alone(self):
        whole = self.learn("--ranks", 2, steps=4)
        half = self.learn("--ranks", 1, steps=2)
        self.same_tensors(whole, self.learn("--ranks", 3, "--resume", half / "checkpoints", steps=4))
        other = fresh()
        self.invoke((PROGRAM, "--model", "sd_tiny", "--init", "--steps", 0, "--seed", 8, "--export", other,
                     "--tokenizer", ROOM / "tokenizer"), 0)
        self.refuses("--from", other, "--steps", 4, "--control-data", self.hints, "--resume", half / "checkpoints",
                     names=["--resume", "locked weights (--from)"], model="controlnet_tiny", data=self.data)
        self.refuses("--from", self.folder, "--steps", 4, "--control-data", write_hints(fresh(), self.names, seed=7),
                     "--resume", half / "checkpoints", names=["--data has changed", "conditioning image"],
                     model="controlnet_tiny", data=self.data)
        self.refuses("--from", self.folder, "--steps", 4, "--control-data", self.hints, "--control-from", ROOM,
                     "--resume", half / "checkpoints", names=["--control-from", "--resume"], model="controlnet_tiny",
                     data=self.data)

    def test_drawing_begins_as_the_unet_and_follows_the_hint(self):
        draw = ("--prompt", "a red cat")
        unet = self.train("--from", self.folder, "--steps", 0, *draw, model="sd_tiny", data=self.data,
                          sample=2, size=())
        hint = self.hints / f"{self.names[0]}.png"
        begun, trained = fresh(), fresh()
        untrained = self.learn(*draw, "--control-picture", hint, "--export", begun, steps=0, sample=2, size=())
        self.assertEqual((untrained / "pictures/0000.png").read_bytes(), (unet / "pictures/0000.png").read_bytes())
        out = self.learn(*draw, "--control-picture", hint, "--lr", 0.02, "--export", trained, "--export-of", "weights",
                         sample=2)
        again = self.learn(*draw, "--control-picture", hint, "--control-from", trained, steps=0, sample=2, size=())
        self.assertNotEqual((again / "pictures/0000.png").read_bytes(), (unet / "pictures/0000.png").read_bytes())
        second = self.hints / f"{self.names[1]}.png"
        other = self.learn(*draw, "--control-picture", second, "--control-picture", hint, "--control-from", trained,
                           steps=0, sample=2, size=())
        self.assertNotEqual((again / "pictures/0000.png").read_bytes(), (other / "pictures/0000.png").read_bytes())
        self.assertEqual((again / "pictures/0001.png").read_bytes(), (other / "pictures/0001.png").read_bytes())
        self.assertTrue((out / "pictures/0001.png").exists())
        weights = [Safetensors(folder / "diffusion_pytorch_model.safetensors") for folder in (begun, trained)]
        self.assertEqual(weights[0].shapes, weights[1].shapes)
        self.assertNotEqual(weights[0].tensors, weights[1].tensors)
        # a run that starts from the result of another
        more = self.learn("--control-from", trained, "--lr", 1e-30, steps=1)
        self.assertNotEqual(report(more)["loss"][0], report(out)["loss"][0])

    def test_wrong_use_is_refused(self):
        def refused(*options, names, sample=0):
            self.refuses("--from", self.folder, "--steps", 1, *options, names=names, model="controlnet_tiny",
                         data=self.data, sample=sample)

        few = fresh()
        shutil.copytree(self.hints, few)
        (few / "2.png").unlink()
        refused("--control-data", few, names=["--data: ", "2.png", "1 of 4", "(--control-data)"])
        refused(names=["--data", "no conditioning image", "--control-data"])
        drawing = ("--control-data", self.hints, "--prompt", "a cat")
        refused(*drawing, names=["--control-picture"], sample=1)
        refused(*drawing, "--control-picture", self.hints / "0.png", "--control-picture", self.hints / "1.png",
                names=["--control-picture", "2"], sample=1)
        refused(*drawing, "--control-picture", ROOM / "nowhere.png", names=["--control-picture", "nowhere.png"],
                sample=1)
        (few / "2.png").write_bytes(b"no picture")
        refused("--control-data", few, names=["--control-data", "2.png"])
        write_png(few / "2.png", HINT, bytes(3 * HINT * 2 * HINT))
        refused("--control-data", few, names=["2.png", "64 x 128"])
        refused("--control-data", self.hints, "--control-from", self.folder / "unet",
                names=["--control-from", "ControlNetModel"])


@unittest.skipUnless(WHEELS, "no packages")
class Diffusers(Case):
    """The same networks and pictures in diffusers."""

    @classmethod
    def setUpClass(cls):
        tiny_pipeline.silence(Path(WHEELS))
        try:
            cls.pipeline = tiny_pipeline.write(ROOM / "published", seed=15)
        except ImportError as missing:
            raise unittest.SkipTest(str(missing))
        cls.folder = ROOM / "published"

    def branch(self, scale=0.1):
        """A ControlNet whose convolutions are not zero."""
        import torch
        from diffusers import ControlNetModel

        torch.manual_seed(3)
        made = ControlNetModel.from_unet(self.pipeline.unet)
        for name, values in made.named_parameters():
            if name.startswith("controlnet_"):
                torch.nn.init.normal_(values, std=scale)
        return made.eval()

    def test_pictures_are_those_of_diffusers(self):
        import numpy
        import torch
        from diffusers import DDIMScheduler, StableDiffusionControlNetPipeline
        from PIL import Image

        branch = self.branch()
        folder = fresh()
        branch.save_pretrained(folder)
        hints = write_hints(fresh(), ["a", "b"])
        files = [hints / "a.png", hints / "b.png"]
        start = torch.tensor(numpy.concatenate([chance.normals(7, chance.SAMPLE_START, 256 * i, 256)
                                                for i in range(2)]))
        start = start.view(2, 8, 8, 4).permute(0, 3, 1, 2)
        steps = DDIMScheduler.from_config(self.pipeline.scheduler.config, timestep_spacing="leading")
        drawing = StableDiffusionControlNetPipeline(**{**self.pipeline.components, "scheduler": steps},
                                                    controlnet=branch, requires_safety_checker=False)
        drawing.set_progress_bar_config(disable=True)
        images = [torch.tensor(numpy.asarray(Image.open(file))).permute(2, 0, 1)[None] / 255 for file in files]
        for guidance in (1, 4):
            # the pipeline makes pictures of the hint's size; this autoencoder halves, while the hint's scale is an
            # eighth
            expected = drawing.vae.decode(self.denoise(drawing, start, torch.cat(images), guidance) / 0.18215).sample
            expected = (expected / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).detach().numpy()
            out = fresh()
            self.invoke([PROGRAM, "--model", "controlnet_tiny", "--from", self.folder, "--control-from", folder,
                         "--out", out, "--steps", 0, "--sample-steps", 5, "--seed", 7, "--prompt", "a red cat",
                         "--prompt", "photo of a car", "--control-picture", files[0], "--control-picture", files[1],
                         "--guidance", guidance], 0)
            found = [numpy.asarray(Image.open(out / f"pictures/{k:04}.png")) for k in range(2)]
            error = numpy.mean((numpy.stack(found) / 255 - expected) ** 2)
            self.assertLess(error, 1e-5, f"guidance {guidance}")
            self.assertGreater(numpy.std(expected), 0.02)

    def denoise(self, pipeline, latents, hints, guidance):
        import torch

        def states(texts):
            ids = pipeline.tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt").input_ids
            return pipeline.text_encoder(ids)[0]

        wanted, other = states(["a red cat", "photo of a car"]), states(["", ""])
        pipeline.scheduler.set_timesteps(5)
        with torch.no_grad():
            for time in pipeline.scheduler.timesteps:
                def answer(text):
                    down, middle = pipeline.controlnet(latents, time, text, controlnet_cond=hints, return_dict=False)
                    return pipeline.unet(latents, time, text, down_block_additional_residuals=down,
                                         mid_block_additional_residual=middle).sample

                away = answer(other)
                latents = pipeline.scheduler.step(away + guidance * (answer(wanted) - away), time, latents).prev_sample
        return latents

    def test_what_is_trained_is_a_controlnet_of_diffusers(self):
        import torch
        from diffusers import ControlNetModel

        data = fresh()
        data.mkdir()
        source = random.Random(14)
        for index in range(4):
            write_png(data / f"{index}.png", 16, source.randbytes(3 * 16 * 16))
            (data / f"{index}.txt").write_text("a red cat")
        hints = write_hints(fresh(), range(4))
        out, folder = fresh(), fresh()
        self.train("--from", self.folder, "--control-data", hints, "--steps", 2, "--export", folder, "--ranks", 2,
                   out=out, model="controlnet_tiny", data=data)
        read = ControlNetModel.from_pretrained(folder)
        made = ControlNetModel.from_unet(self.pipeline.unet)
        moved = [name for (name, one), (_, two) in zip(read.named_parameters(), made.named_parameters())
                 if not torch.equal(one, two)]
        self.assertIn("controlnet_mid_block.weight", moved)
        self.train("--from", self.folder, "--control-from", folder, "--control-data", hints, "--steps", 1,
                   model="controlnet_tiny", data=data)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
