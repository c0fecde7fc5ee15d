"""pulse_train validating its weights on held-out samples: the same numbers on any ranks, and nothing else
changes.

Usage: pulse_train_validation.py PROGRAM [unittest arguments]
"""

import json
import shutil
import unittest

import tiny_pipeline
from files import Safetensors, idx_bytes, write_images
from pulse_train import DATA, PROGRAM, ROOM, Case, fresh, read_json, report

TINY = {"model": "sd_tiny", "data": "synthetic", "size": ("--microbatch-size", 2, "--microbatches", 4)}
SHARE = ("--validate", 0.03)  # 15 of 512 samples: one step of 8 and most of another


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Losses(Case):
    def curve(self, folder):
        """The validation curve of the report; the metrics must agree."""
        found = report(folder)["validation"]
        written = [line for line in lines(folder) if "validation_loss" in line]
        self.assertEqual([(one["step"], one["loss"], one["at"]) for one in found],
                         [(line["step"], line["validation_loss"], line["validation_loss_at"]) for line in written])
        for one in found:
            self.assertAlmostEqual(sum(one["at"].values()) / len(one["at"]), one["loss"])
        return found

    def test_they_are_the_same_bits_on_any_ranks_and_the_loss_falls(self):
        options = ("--steps", 6, "--lr", 3e-3, *SHARE, "--validate-every", 3, "--validate-times", 5)
        alone = self.train(*options, "--ranks", 1, **TINY)
        want = self.curve(alone)
        self.assertEqual([one["step"] for one in want], [0, 3, 6])
        self.assertEqual(list(want[0]["at"]), ["100", "300", "500", "700", "900"])
        self.assertEqual(len({value for one in want for value in one["at"].values()}), 15)
        self.assertLess(want[2]["loss"], want[0]["loss"])
        for ranks in ("--ranks 2", "--ranks 4 --placement sequential", "--ranks 2 --waves 2 --recomputation skips",
                      "--ranks 3 --placement sequential --recomputation stages --split-backward no"):
            with self.subTest(ranks):
                out = self.train(*options, *ranks.split(), **TINY)
                self.assertEqual(self.curve(out), want)
                self.same_training(out, alone)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        # replicas train to other bits, but start with the same weights, which they validate together
        for ranks in ("--ranks 2 --replicas 2", "--ranks 4 --replicas 2 --shard-optimizer yes"):
            with self.subTest(ranks):
                half = {**TINY, "size": ("--microbatch-size", 2, "--microbatches", 2)}
                self.assertEqual(self.curve(self.train(*options, *ranks.split(), **half))[0], want[0])

    def test_training_is_what_it_is_without(self):
        images = write_images(ROOM / "judged", idx_bytes(count=24), name="t10k-images-idx3-ubyte")
        options = ("--steps", 5, "--ranks", 2)
        plain = self.train(*options, data=DATA)
        judged = self.train(*options, "--validate", images, "--validate-every", 2, "--validate-times", 1, data=DATA)
        self.same_training(plain, judged)
        self.assertEqual([one["step"] for one in self.curve(judged)], [0, 2, 4, 5])
        self.assertNotIn("validation", report(plain))
        self.assertEqual([line for line in lines(judged) if "loss" in line and line["step"] == 5][0]["loss"],
                         report(plain)["loss"][4])
        # every sample counts once, whatever the size of a step
        other = self.train("--steps", 1, "--ranks", 2, "--validate", images, "--validate-times", 1, data=DATA,
                           size=("--microbatch-size", 1, "--microbatches", 5))
        self.assertAlmostEqual(self.curve(other)[0]["loss"], self.curve(judged)[0]["loss"], places=6)
        # offset noise only affects training
        offset = self.train("--steps", 1, "--noise-offset", 0.3, "--validate", images, "--validate-times", 1, data=DATA)
        self.assertEqual(self.curve(offset)[0], self.curve(judged)[0])

    def test_a_run_that_goes_on_is_judged_as_the_whole(self):
        options = ("--lr", 3e-3, *SHARE, "--validate-every", 2, "--keep-best", "yes")
        whole = self.train("--steps", 6, *options, "--ranks", 2, **TINY)
        out = self.train("--steps", 3, *options, "--ranks", 1, **TINY)
        self.assertEqual([one["step"] for one in self.curve(out)], [0, 2, 3])
        best = read_json(out / "best.json")
        self.train("--steps", 6, *options, "--ranks", 2, "--resume", out / "checkpoints", out=out, **TINY)
        self.same_tensors(out, whole)
        rest = report(out)["validation"]
        self.assertEqual(rest, [one for one in report(whole)["validation"] if one["step"] > 3])
        self.assertEqual([line["step"] for line in lines(out) if "validation_loss" in line], [0, 2, 3, 4, 6])
        self.assertLess(read_json(out / "best.json")["validation_loss"], best["validation_loss"])
        self.refuses("--steps", 7, "--resume", out / "checkpoints", names=["--resume", "held_out 0.03"], **TINY)
        self.refuses("--steps", 7, "--validate", 0.1, "--resume", out / "checkpoints",
                     names=["--resume", "held_out 0.03"], **TINY)

    def test_the_best_checkpoint_stays(self):
        """In a run that its learning rate soon ruins, and that another run resumes."""
        options = (*SHARE, "--validate-every", 1, "--keep-best", "yes", "--lr", 0.02)
        out = self.train("--steps", 6, *options, "--ranks", 2, **TINY)
        curve = {one["step"]: one["loss"] for one in self.curve(out)}
        best = min(curve, key=curve.get)
        self.assertLess(best, 6)
        note = read_json(out / "best.json")
        self.assertEqual((note["step"], note["validation_loss"]), (best, curve[best]))
        self.assertEqual([path.name for path in (out / "best").iterdir()], [f"step-{best:08}"])
        rest = self.train("--steps", 6, *options, "--ranks", 1, "--resume", out / "best", **TINY)
        self.same_tensors(rest, out)
        # resumed in its own folder from a step before the best: that checkpoint belongs to the old course
        self.assertGreater(best, 1)
        again = fresh()
        options += ("--checkpoint-every", 1, "--keep", 0)
        self.train("--steps", best, *options, out=again, **TINY)
        self.assertEqual(read_json(again / "best.json"), note)
        unmatched = {**note, "validation_loss": 0.001}
        (again / "best.json").write_text(json.dumps(unmatched))
        self.train("--steps", best, *options, "--resume", again / "checkpoints/step-00000001", out=again, **TINY)
        self.assertEqual(read_json(again / "best.json"), note)
        # the best of an earlier step still counts, unless it was measured differently
        for times, found in ((4, 0), (3, best)):
            (again / "best.json").write_text(json.dumps({**unmatched, "step": 0}))
            self.train("--steps", best, *options, "--validate-times", times,
                       "--resume", again / "checkpoints/step-00000001", out=again, **TINY)
            self.assertEqual(read_json(again / "best.json")["step"], found)

    def test_the_weights_that_a_run_begins_with_may_be_the_best(self):
        options = (*SHARE, "--validate-every", 1, "--keep-best", "yes", "--lr", 0.2)
        out = self.train("--steps", 1, *options, **TINY)
        self.train("--steps", 3, *options, "--resume", out / "checkpoints", out=out, **TINY)
        self.assertEqual(read_json(out / "best.json")["step"], 0)
        self.assertEqual([path.name for path in (out / "best").iterdir()], ["step-00000000"])

    def test_wrong_use_is_refused(self):
        images = write_images(ROOM / "others", idx_bytes(count=3), name="t10k-images-idx3-ubyte")
        for options, names in ((("--validate", "1.5"), ["--validate", "between 0 and 1"]),
                               (("--validate", "0"), ["--validate", "between 0 and 1"]),
                               (("--validate", ROOM / "nowhere"), ["nowhere", "t10k-images"]),
                               (("--validate", images, "--validate-times", 0), ["--validate-times"]),
                               (("--validate", "0.99999"), ["--validate", "none are left"]),
                               (("--keep-best", "yes"), ["--keep-best", "--validate"]),
                               (("--validate-every", 3), ["--validate-every", "--validate"])):
            with self.subTest(options):
                self.refuses("--steps", 2, *options, names=names, data=DATA)
        self.refuses("--steps", 0, "--validate", 0.1, names=["--validate", "--steps 0"], data=DATA)


class Pictures(Case):
    """Captioned pictures, encoded once into the run's folder, whatever happens to the training pictures."""

    @classmethod
    def setUpClass(cls):
        def run(*options):
            cls().invoke((PROGRAM, "--model", "sd_tiny", *options), 0)

        cls.folder, cls.data = tiny_pipeline.write_captioned(ROOM, run)

    def learn(self, *options, data=None, **more):
        return self.train("--from", self.folder, "--steps", 3, "--validate-every", 2, *options, model="sd_tiny",
                          data=data or self.data, **more)

    def test_a_share_is_as_two_folders(self):
        names = sorted(path.stem for path in self.data.glob("*.png"))
        share = self.learn("--ranks", 2, "--validate", 0.25, "--flip", "yes", "--caption-dropout", 0.4,
                           "--shuffle-tags", 0)
        (listing,) = share.glob("data-*.txt")
        trained = {line.split()[-1].split(".")[0] for line in listing.read_text().splitlines()}
        self.assertEqual(len(trained), 3)
        parts = fresh(), fresh()
        for name in names:
            part = parts[0 if name in trained else 1]
            part.mkdir(exist_ok=True)
            for path in self.data.glob(f"{name}.*"):
                shutil.copy(path, part)
        want = report(share)["validation"]
        self.assertEqual([one["step"] for one in want], [0, 2, 3])
        for how in ("--ranks 1 --encode each-step", "--ranks 2 --encode bubbles", "--ranks 3 --placement sequential",
                    f"--ranks 2 --encode once --cache {fresh()}"):
            with self.subTest(how):
                tags = () if "once" in how else ("--shuffle-tags", 0)
                out = self.learn(*how.split(), "--validate", parts[1], "--flip", "yes", "--caption-dropout", 0.4, *tags,
                                 data=parts[0])
                made = report(out)
                self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
                self.assertEqual(made["validation"][0], want[0])
                if tags:
                    self.assertEqual((made["loss"], made["validation"]), (report(share)["loss"], want))
        # encoded results stay in the folder for a resumed run
        self.assertTrue(any((share / "validation").rglob("*.safetensors")))
        before = Safetensors(share / "checkpoint.safetensors").metadata["pulse.step"]
        self.assertEqual(before, "3")

    def test_the_noise_is_that_of_any_seed(self):
        runs = [self.learn("--seed", seed, "--validate", 0.25) for seed in (1, 2)]
        one, other = (report(run)["validation"] for run in runs)
        self.assertEqual(one[0], other[0])
        self.assertNotEqual(one[1], other[1])

    def test_pictures_that_are_repeated_count_once(self):
        often = fresh()
        shutil.copytree(self.data, often / "7_often")
        plain, repeated = (report(self.learn("--validate", data))["validation"][0] for data in (self.data, often))
        self.assertAlmostEqual(plain["loss"], repeated["loss"], places=6)

    def test_the_best_is_exported(self):
        options = ("--validate", 0.25, "--keep-best", "yes", "--lr", 3, "--lr-schedule", "cosine")
        run = self.learn(*options)
        best = read_json(run / "best.json")["step"]
        self.assertLess(best, 3)
        folder, out = fresh(), fresh()
        self.train("--from", self.folder, "--validate-every", 2, *options, "--resume", run / "best", "--steps", 0,
                   "--export", folder, model="sd_tiny", data=self.data, out=out)
        self.assertEqual(Safetensors(out / "checkpoint.safetensors").metadata["pulse.step"], str(best))
        self.assertTrue((folder / "unet/diffusion_pytorch_model.safetensors").exists())
        self.assertEqual(read_json(run / "best.json")["step"], best)

    def test_wrong_use_is_refused(self):
        self.refuses("--from", self.folder, "--steps", 3, "--validate", 0.25, "--buckets", 16, model="sd_tiny",
                     data=self.data, names=["--validate", "--buckets"])
        self.refuses("--from", self.folder, "--steps", 3, "--validate", ROOM / "nowhere", model="sd_tiny",
                     data=self.data, names=["--validate", "nowhere"])
        self.refuses("--from", self.folder, "--steps", 3, "--validate", 0.9, model="sd_tiny", data=self.data,
                     names=["--validate is too large", "none are left"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
