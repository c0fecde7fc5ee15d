"""pulse_train with a model that reads its own prediction: the same bits on any ranks, with captions and without.

Usage: pulse_train_self_conditioning.py PROGRAM [MPIRUN flags...]: the command line that starts processes, without their
number and the program.
"""

import json
import subprocess
import sys
import unittest

import tiny_pipeline
from files import png_size
from pulse_train import PATIENCE, PROGRAM, ROOM, Case, command, fresh, report

LAUNCH = sys.argv[1:]
SELF = ("--self-conditioning",)
MODEL = {"model": "sd_self_tiny", "data": "synthetic"}


class SelfConditioning(Case):
    def previews(self, out):
        return json.loads((out / "plan.json").read_text())["previews"]

    def test_every_pipeline_trains_alike(self):
        options = ("--steps", 6, "--lr", 3e-3, *SELF, "--validate", 0.02, "--validate-times", 2)
        alone = self.train(*options, "--ranks", 1, sample=2, **MODEL)
        self.assertEqual(self.previews(alone), 2)
        self.assertLess(report(alone)["validation"][-1]["loss"], report(alone)["validation"][0]["loss"])
        for ranks in ("--ranks 2", "--ranks 4 --placement sequential", "--ranks 2 --recomputation stages",
                      "--ranks 3 --recomputation skips"):
            with self.subTest(ranks):
                self.same_run(alone, self.train(*options, *ranks.split(), sample=2, **MODEL))
        self.assertGreater(png_size(alone / "samples.png")[0], 8)
        self.same_training(alone, self.train(*options, "--ranks", 2, "--schedule", "gpipe", **MODEL))
        half = self.train("--steps", 3, *options[2:], "--ranks", 2, **MODEL)
        rest = self.train(*options, "--ranks", 3, "--resume", half / "checkpoints", **MODEL)
        self.same_tensors(alone, rest)

    def test_replicas(self):
        options = ("--steps", 3, *SELF, "--replicas", 2)
        self.same_training(self.train(*options, "--ranks", 2, **MODEL), self.train(*options, "--ranks", 4, **MODEL))

    def test_objectives(self):
        for objective in ("flow", "edm", "epsilon"):
            out = self.train("--steps", 2, *SELF, "--prediction", objective, "--ranks", 2, sample=1, **MODEL)
            self.assertTrue(all(0 < loss < 10 for loss in report(out)["loss"]), objective)

    def test_captioned_pictures_in_the_bubbles(self):
        def run(*options):
            self.invoke((PROGRAM, "--model", "sd_self_tiny", *options), 0)

        folder, data = tiny_pipeline.write_captioned(ROOM, run)
        options = ("--from", folder, "--steps", 3, *SELF, "--flip", "yes")
        before = self.train(*options, "--ranks", 1, "--encode", "each-step", model="sd_self_tiny", data=data)
        for how in ("--ranks 2 --encode bubbles", f"--ranks 3 --placement sequential --encode once --cache {fresh()}"):
            with self.subTest(how):
                self.same_training(before, self.train(*options, *how.split(), model="sd_self_tiny", data=data))
        drawn = self.train(*options, "--prompt", "a cat", "--export", fresh(), model="sd_self_tiny", data=data,
                           sample=1)
        self.assertTrue((drawn / "pictures/0000.png").exists())

    @unittest.skipUnless(LAUNCH, "no processes are started here")
    def test_processes(self):
        threads = self.train("--steps", 3, *SELF, "--ranks", 2, **MODEL)
        out = fresh()
        line = [str(word) for word in command("--steps", 3, *SELF, "--transport", "mpi", out=out, **MODEL)]
        subprocess.run([*LAUNCH, "2", *line], check=True, capture_output=True, timeout=PATIENCE)
        self.same_training(threads, out)

    def test_wrong_use_is_refused(self):
        self.refuses("--steps", 1, "--self-conditioning",
                     names=["--self-conditioning", "4 channels and outputs 4"], model="sd_tiny", data="synthetic")
        self.refuses("--steps", 1, names=["--model", "8 channels and outputs 4", "--self-conditioning"], **MODEL)
        self.refuses("--steps", 1, *SELF, size=("--microbatch-size", 1, "--microbatches", 3),
                     names=["--self-conditioning", "even"], **MODEL)
        with_previews = self.train("--steps", 1, *SELF, "--ranks", 2, **MODEL)
        without = self.train("--plan-only", "--ranks", 2, **MODEL)
        self.refuses("--steps", 1, *SELF, "--plan", without / "plan.json", size=(),
                     names=["plan.json: previews: there are 0"], **MODEL)
        self.train("--steps", 1, "--self-conditioning", "--plan", with_previews / "plan.json", size=(), **MODEL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
