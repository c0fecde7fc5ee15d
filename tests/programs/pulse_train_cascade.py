"""pulse_train with two backbones, the second of which enlarges the first one's images: the same bits on any ranks, and
folders of both.

Usage: pulse_train_cascade.py PROGRAM [MPIRUN flags...]: the command line that starts processes, without their number
and the program.
"""

import functools
import json
import shutil
import subprocess
import sys
import unittest

import tiny_pipeline
from files import Safetensors, png_size
from pulse_train import PATIENCE, PROGRAM, ROOM, Case, command, fresh, report

LAUNCH = sys.argv[1:]
FIRST, SECOND = "sd_pixels_tiny", "sd_pixels_up_tiny"
BOTH = ("--cascade-with", SECOND)
MADE_UP = {"model": FIRST, "data": "synthetic"}


class MadeUp(Case):
    """On synthetic images and texts."""

    @classmethod
    @functools.cache
    def on_two_ranks(cls):
        return cls().train(*BOTH, "--steps", 3, "--ranks", 2, sample=1, **MADE_UP)

    def test_every_pipeline_trains_alike(self):
        options = (*BOTH, "--steps", 6, "--lr", 3e-3, "--validate", 0.02, "--validate-times", 2)
        alone = self.train(*options, "--ranks", 1, sample=2, **MADE_UP)
        self.assertLess(report(alone)["validation"][-1]["loss"], report(alone)["validation"][0]["loss"])
        for how in ("--ranks 2", "--ranks 3 --split-backward no", "--ranks 2 --recomputation stages",
                    "--ranks 2 --recomputation skips"):
            with self.subTest(how):
                out = self.train(*options, *how.split(), sample=2, **MADE_UP)
                self.same_run(alone, out, drawn=("samples.png", "samples_first.png"))
        for optimizer in ("adamw8", "adafactor"):
            small = report(self.train(*BOTH, "--steps", 1, "--ranks", 2, "--optimizer", optimizer, **MADE_UP))
            self.assertEqual(small["planned_peak_bytes"], small["measured_peak_bytes"])
        half = self.train("--steps", 3, *BOTH, *options[4:], "--ranks", 2, **MADE_UP)
        self.same_tensors(alone, self.train(*options, "--ranks", 3, "--resume", half / "checkpoints", **MADE_UP))
        again = self.train("--steps", 6, *BOTH, *options[4:], "--plan", half / "plan.json",
                           "--resume", half / "checkpoint.safetensors", size=(), **MADE_UP)
        self.same_tensors(alone, again)

    def test_both_are_in_the_report_the_metrics_and_the_checkpoint(self):
        out = self.on_two_ranks()
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for line, loss in zip(lines, report(out)["loss"], strict=True):
            self.assertAlmostEqual(line["loss_of/1"] + line["loss_of/2"], loss, delta=1e-12)
            self.assertGreater(line["loss_of/1"], 0)
        shapes = Safetensors(out / "checkpoint.safetensors").shapes
        self.assertEqual((shapes["first.conv_in.weight"][1], shapes["second.conv_in.weight"][1]), (3, 6))
        self.assertEqual(len(json.loads((out / "plan.json").read_text())["further_chains"]), 1)
        small, large = (png_size(out / name) for name in ("samples_first.png", "samples.png"))
        self.assertLess(small[0], large[0])

    def test_less_noise_in_small_images_is_another_run(self):
        losses = []
        for noise in (0, 0.1, 0.5):
            out = self.train(*BOTH, "--steps", 1, "--cascade-noise", noise, **MADE_UP)
            (line,) = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            losses.append((line["loss_of/1"], line["loss_of/2"]))
        self.assertEqual(len({first for first, _ in losses}), 1)
        self.assertEqual(len({second for _, second in losses}), 3)

    @unittest.skipUnless(LAUNCH, "no processes are started here")
    def test_processes(self):
        out = fresh()
        line = [str(word) for word in command(*BOTH, "--steps", 3, "--transport", "mpi", out=out, **MADE_UP)]
        subprocess.run([*LAUNCH, "2", *line], check=True, capture_output=True, timeout=PATIENCE)
        self.same_training(self.on_two_ranks(), out)

    def test_wrong_use_is_refused(self):
        def refused(*options, names, **more):
            self.refuses("--steps", 1, *options, names=names, **{**MADE_UP, **more})

        refused("--cascade-noise", 0.2, names=["--cascade-noise", "--cascade-with"], model="sd_tiny")
        refused("--cascade-with", SECOND, names=["--cascade-with", "sd_tiny", "PULSE_TRAIN_HOST=sd_tiny+"],
                model="sd_tiny")
        refused("--cascade-with", "sd_none", names=["--cascade-with", "sd_none"])
        refused(*BOTH, "--replicas", 2, names=["--replicas", "one pipeline"])
        refused(*BOTH, "--placement", "sequential", names=["placement", "folded"])
        self.refuses(names=["--plan-time", "cascade"],
                     raw=[PROGRAM, "--model", FIRST, *BOTH, "--data", "synthetic", "--plan-time", 3])
        refused(*BOTH, "--shard-optimizer", names=["--shard-optimizer", "no replicas"])
        refused(*BOTH, "--size", 16, names=["--size", "--cascade-with"])
        refused(*BOTH, "--self-conditioning", names=["--self-conditioning", "--cascade-with"])
        refused(*BOTH, "--profile", ROOM, names=["--profile", "--cascade-with"])
        refused(*BOTH, "--from", ROOM, names=["--from", "--cascade-from"])
        refused(*BOTH, "--cascade-export", ROOM / "x", names=["--cascade-export", "--cascade-from"])
        refused(*BOTH, data=ROOM, names=["--data", "--from"])
        begun = self.on_two_ranks() / "checkpoints"
        refused(*BOTH, "--cascade-noise", 0.3, "--resume", begun, names=["--resume", "cascade_noise"])
        plan = self.train("--plan-only", model="sd_tiny", data="synthetic") / "plan.json"
        refused(*BOTH, "--plan", plan, size=(), names=["plan.json", "sd_tiny"])


class Pictures(Case):
    """Captioned pictures, which each backbone sees in its own size."""

    @classmethod
    def setUpClass(cls):
        cls.second = ROOM / "second"

        def run(*options):
            cls().invoke((PROGRAM, "--model", FIRST, *BOTH, "--cascade-export", cls.second, *options), 0)

        cls.folder, cls.data = tiny_pipeline.write_captioned(ROOM, run)

    def learn(self, *options, steps=3, **more):
        return self.train("--from", self.folder, "--cascade-from", self.second, *BOTH, "--steps", steps, *options,
                          model=FIRST, data=self.data, **more)

    def test_both_train_alike_however_pictures_are_encoded(self):
        before = self.learn("--ranks", 1, "--flip", "yes")
        cache = fresh()
        for how in ("--ranks 2", f"--ranks 2 --encode once --cache {cache}", f"--ranks 1 --encode once --cache {cache}",
                    "--ranks 3 --encode each-step"):
            with self.subTest(how):
                out = self.learn(*how.split(), "--flip", "yes")
                self.same_training(before, out)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        self.assertTrue((cache / "second").is_dir())
        half = self.learn("--ranks", 2, "--flip", "yes", steps=1)
        self.same_tensors(before, self.learn("--flip", "yes", "--resume", half / "checkpoints"))

    def test_what_is_not_trained_on_judges_both(self):
        options = ("--validate", 0.3, "--keep-best", "yes", "--sample-every", 2, "--prompt", "cat")
        one, two = (self.learn(*options, "--ranks", ranks, sample=1) for ranks in (1, 2))
        self.assertEqual(report(one)["validation"], report(two)["validation"])
        self.assertTrue((one / "best").is_dir())
        for name in ("samples.png", "samples_first.png"):
            self.assertEqual((one / "drawn/step-00000002" / name).read_bytes(),
                             (two / "drawn/step-00000002" / name).read_bytes())

    def test_one_draws_after_the_other_and_both_are_exported(self):
        draw = ("--prompt", "a red cat", "--prompt", "cat")
        folders = fresh(), fresh()
        out = self.learn(*draw, "--ranks", 2, "--lr", 0.01, "--export", folders[0], "--cascade-export", folders[1],
                         sample=3)
        self.assertEqual(png_size(out / "pictures/0002.png"), (16, 16))
        for folder, channels in zip(folders, (3, 6)):
            self.assertEqual(json.loads((folder / "unet/config.json").read_text())["in_channels"], channels)
        again = self.train("--from", folders[0], "--cascade-from", folders[1], *BOTH, "--steps", 0, *draw, model=FIRST,
                           data=self.data, sample=3, size=())
        alone = fresh()
        begun = self.learn(*draw, "--cascade-export", alone, "--export-type", "fp16", steps=0, sample=3, size=())
        sizes = [(folder / "unet/diffusion_pytorch_model.safetensors").stat().st_size
                 for folder in (alone, self.second)]
        self.assertLess(sizes[0], 0.7 * sizes[1])
        for name in ("samples_first.png", "pictures/0000.png", "pictures/0002.png"):
            self.assertEqual((again / name).read_bytes(), (out / name).read_bytes())
            self.assertNotEqual((begun / name).read_bytes(), (out / name).read_bytes())

    def test_wrong_use_is_refused(self):
        both = ("--from", self.folder, "--cascade-from", self.second, *BOTH)
        for options, names in (((*both, "--encode", "bubbles"), ["--encode", "cascade"]),
                               (("--from", self.second, "--cascade-from", self.folder, *BOTH),
                                ["--from: ", "in_channels"]),
                               (("--from", self.folder, "--cascade-from", self.folder, *BOTH),
                                ["--cascade-from: ", "in_channels"]),
                               ((*both, "--cascade-export", ROOM), ["--cascade-export: "]),
                               ((*both, "--cascade-export", 256 * "x"), ["--cascade-export: "]),
                               ((*both, "--export", ROOM / "x", "--cascade-export", ROOM / "x"),
                                ["--cascade-export", "--export"])):
            self.refuses("--steps", 1, *options, names=names, model=FIRST, data=self.data)
        other = fresh()
        shutil.copytree(self.second, other)
        config = other / "scheduler/scheduler_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "prediction_type": "epsilon"}))
        self.refuses("--steps", 1, "--from", self.folder, "--cascade-from", other, *BOTH,
                     names=["--cascade-from: ", "scheduler"], model=FIRST, data=self.data)
        small = fresh()
        self.refuses(names=["--cascade-export: "],
                     raw=[PROGRAM, "--model", FIRST, *BOTH, "--init", "--steps", 0,
                          "--tokenizer", ROOM / "tokenizer", "--export", small, "--cascade-export", ROOM],
                     out=small)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
