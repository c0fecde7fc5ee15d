"""What pulse_train records while it runs: metrics.jsonl, and files for TensorBoard.

Usage: pulse_train_metrics.py PROGRAM PACKAGES [unittest arguments]        (PACKAGES: a folder with tensorboard)
"""

import atexit
import itertools
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PACKAGES = sys.argv[1], sys.argv[2]
del sys.argv[1:3]
sys.path.insert(0, PACKAGES)
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train_metrics."))
atexit.register(shutil.rmtree, ROOM, True)
serial = itertools.count()
STEPS = 6
NUMBERS = ("loss", "gradient_norm", "learning_rate", "samples_per_s")


def run(*options, out=None, steps=STEPS, sample=0):
    out = out or ROOM / f"run{next(serial)}"
    done = subprocess.run([str(word) for word in (
        PROGRAM, "--data", "synthetic", "--model", "sd_tiny", "--ranks", 2, "--microbatch-size", 1, "--microbatches", 2,
        "--placement", "folded", "--plan-time", 0, "--sample", sample, "--sample-steps", 2, "--lr", 1e-3, "--warmup", 4,
        "--steps", steps, "--out", out, *options)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{options}: {done.returncode}\n{done.stdout}{done.stderr}")
    return out, done.stderr


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def shown(folder):
    read = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    read.Reload()
    return read


def rounded(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.whole, said = run("--sample-every", 2, sample=2)
        assert said == "", said
        cls.losses = json.loads((cls.whole / "report.json").read_text())["loss"]

    def same_in_tensorboard(self, folder):
        """Every number of metrics.jsonl appears exactly once."""
        made, read = lines(folder), shown(folder)
        self.assertEqual(sorted(read.Tags()["scalars"]), sorted(NUMBERS))
        for name in NUMBERS:
            self.assertEqual([(event.step, event.value) for event in read.Scalars(name)],
                             [(line["step"], rounded(line[name])) for line in made], name)

    def test_every_step_has_a_line(self):
        made = lines(self.whole)
        self.assertEqual([line["step"] for line in made], list(range(1, STEPS + 1)))
        self.assertEqual([line["loss"] for line in made], self.losses)
        for line in made:
            self.assertEqual(set(line), {"step", *NUMBERS})
            self.assertGreater(line["gradient_norm"], 0)
            self.assertGreater(line["samples_per_s"], 0)
            self.assertAlmostEqual(line["learning_rate"], 1e-3 * min(1, line["step"] / 4))
        self.same_in_tensorboard(self.whole)

    def test_pictures_are_shown(self):
        files = {step: self.whole / f"drawn/step-0000000{step}/samples.png" for step in (2, 4)}
        files[STEPS] = self.whole / "samples.png"
        read = shown(self.whole).Images("drawn")
        self.assertEqual([event.step for event in read], list(files))
        for event, file in zip(read, files.values()):
            png = file.read_bytes()
            self.assertEqual(event.encoded_image_string, png)
            self.assertEqual((event.width, event.height), struct.unpack(">II", png[16:24]))

    def test_a_run_that_goes_on_in_its_folder_has_a_line_a_step(self):
        out, _ = run("--checkpoint-every", 2, "--keep", 0, steps=5)
        with open(out / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step":6,"lo')  # a run that was killed
        run("--resume", out / "checkpoints" / "step-00000002", out=out)
        self.assertEqual([line["step"] for line in lines(out)], list(range(1, STEPS + 1)))
        self.assertEqual([line["loss"] for line in lines(out)], self.losses)
        self.same_in_tensorboard(out)
        self.assertEqual(len(list((out / "tensorboard").iterdir())), 1)  # not all readers know which file counts
        # another run in the same folder starts over, even if it resumes from elsewhere
        run("--resume", self.whole / "checkpoints", out=out, steps=STEPS + 1)
        self.assertEqual([line["step"] for line in lines(out)], [STEPS + 1])
        self.same_in_tensorboard(out)
        run(out=out, steps=2)
        self.assertEqual([line["loss"] for line in lines(out)], self.losses[:2])
        self.same_in_tensorboard(out)

    def test_validation_is_a_curve_beside(self):
        out, _ = run("--validate", 0.01, "--validate-every", 4, "--validate-times", 2)
        made = [line for line in lines(out) if "validation_loss" in line]
        self.assertEqual([line["step"] for line in made], [0, 4, STEPS])
        self.assertEqual([line["step"] for line in lines(out) if "loss" in line], list(range(1, STEPS + 1)))
        read = shown(out)
        wanted = {"validation_loss": [line["validation_loss"] for line in made]}
        for time in ("250", "750"):
            wanted["validation_loss_at/" + time] = [line["validation_loss_at"][time] for line in made]
        self.assertEqual(sorted(read.Tags()["scalars"]), sorted((*NUMBERS, *wanted)))
        for name, values in wanted.items():
            self.assertEqual([(event.step, event.value) for event in read.Scalars(name)],
                             list(zip((0, 4, STEPS), map(rounded, values))), name)

    def test_a_run_that_goes_on_keeps_the_validation_before_its_first_step(self):
        out, _ = run("--validate", 0.01, steps=2)
        run("--validate", 0.01, "--resume", out / "checkpoints", out=out, steps=3)
        made = [line for line in lines(out) if "validation_loss" in line]
        self.assertEqual([line["step"] for line in made], [0, 2, 3])
        self.assertEqual([(event.step, event.value) for event in shown(out).Scalars("validation_loss")],
                         [(line["step"], rounded(line["validation_loss"])) for line in made])

    def test_some_steps(self):
        out, _ = run("--log-every", 3)
        self.assertEqual([(line["step"], line["loss"]) for line in lines(out)],
                         [(3, self.losses[2]), (6, self.losses[5])])
        self.same_in_tensorboard(out)

    def test_a_run_goes_on_where_nothing_can_be_written(self):
        out = ROOM / f"run{next(serial)}"
        (out / "metrics.jsonl").mkdir(parents=True)
        _, said = run(out=out)
        self.assertRegex(said, r"\Apulse_train: [^\n]*metrics\.jsonl[^\n]*; no metrics are written any more\n\Z")
        self.assertEqual(json.loads((out / "report.json").read_text())["loss"], self.losses)


if __name__ == "__main__":
    unittest.main(verbosity=2)
