"""The example that trains on a folder of pictures gives the results of pulse_train: on threads, and on processes of MPI
or of NCCL.

Usage: train_on_pictures.py PULSE_TRAIN MODEL PROGRAM [MPIRUN flags... | nccl | buckets]
"""

import atexit
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import tiny_pipeline

PULSE_TRAIN, MODEL, PROGRAM, LAUNCH = *sys.argv[1:4], sys.argv[4:]
ON_NCCL = LAUNCH == ["nccl"]
IN_BUCKETS = LAUNCH == ["buckets"]
PATIENCE = 200
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="train_on_pictures."))
atexit.register(shutil.rmtree, ROOM, True)


def pulse_train(*options):
    subprocess.run([str(word) for word in (PULSE_TRAIN, "--model", MODEL, *options)], check=True, capture_output=True,
                   timeout=PATIENCE)


FOLDER, DATA = tiny_pipeline.write_captioned(ROOM, pulse_train)
if IN_BUCKETS:
    tiny_pipeline.add_shapes(DATA)


def example(*arguments):
    """Exit status and output of all ranks, and their errors."""
    def started(launcher, **environment):
        return subprocess.Popen([str(word) for word in (*launcher, PROGRAM, *arguments)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environment)

    if ON_NCCL: # it is emulated
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            store = f"127.0.0.1:{probe.getsockname()[1]}"
        ranks = [started((), PULSE_RANK=str(rank), PULSE_WORLD_SIZE="2", PULSE_STORE=store,
                         PULSE_EMULATED_NCCL=str(ROOM))
                 for rank in range(2)]
    else:
        ranks = [started(() if IN_BUCKETS else LAUNCH)]
    said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    outputs, errors = ("".join(texts) for texts in zip(*said))
    return next((rank.returncode for rank in ranks if rank.returncode), 0), outputs, errors


class TrainOnPictures(unittest.TestCase):
    def test_losses_and_folder_are_those_of_pulse_train(self):
        out = ROOM / "example"
        steps = 9 if IN_BUCKETS else 3
        code, said, errors = example(FOLDER, DATA, steps, out)
        self.assertEqual((code, errors), (0, ""), said)
        self.assertEqual(len(list((out / "checkpoints").iterdir())), 1)
        if not LAUNCH: # other runs encode in each step, or into a cache
            self.assertRegex(said, r"device .* frozen .* peak")
        planned = re.search(r"plan: P(\d+) D(\d+) [^,]+, (\d+) x (\d+) samples", said)
        pipeline, replicas, microbatches, size = planned.groups()
        run = ROOM / "run"
        buckets = ("--buckets", "28:4") if IN_BUCKETS else ()
        pulse_train("--from", FOLDER, "--data", DATA, *buckets, "--steps", steps, "--ranks", 2, "--replicas", replicas,
                    "--microbatches", microbatches, "--microbatch-size", size, "--caption-dropout", 0.1, "--lr", 1e-4,
                    "--warmup", 0, "--encode", "each-step", "--out", run, "--export", ROOM / "exported",
                    "--export-of", "weights")
        losses = json.loads((run / "report.json").read_text())["loss"]
        made = [float(loss) for loss in re.findall(r"step \d+  loss (.+)", said)]
        weights = pathlib.Path("unet", "diffusion_pytorch_model.safetensors")
        if IN_BUCKETS:
            self.assertRegex(said, r"extent .* share .*\n(.*\d x \d.*\n){3,}the mean step")
        self.assertNotEqual((out / "model" / weights).read_bytes(), (FOLDER / weights).read_bytes())
        if ON_NCCL: # a different backend from pulse_train's
            self.assertEqual(len(made), len(losses))
            self.assertLess(max(abs(ours / theirs - 1) for ours, theirs in zip(made, losses)), 1e-4)
        else:
            self.assertEqual(made, [float(f"{loss:.9g}") for loss in losses])
        for theirs in (ROOM / "exported").rglob("*"):
            ours = out / "model" / theirs.relative_to(ROOM / "exported")
            self.assertTrue(ours.exists(), ours)
            if theirs.is_file() and not (ON_NCCL and theirs.name == weights.name):
                self.assertEqual(ours.read_bytes(), theirs.read_bytes(), ours)

    def test_what_it_cannot_use_is_named_and_nothing_is_left(self):
        full = ROOM / "full"
        (full / "model").mkdir(parents=True)
        (full / "model" / "letter").write_text("from a friend")
        room = f"{ROOM / 'refused'}/" # with the slash that a shell's completion adds
        for culprit, *arguments in (("networks: ", ROOM / "tokenizer", DATA, 1, room),
                                    (f"networks: '{ROOM / 'none'}' is not a folder", ROOM / "none", DATA, 1, room),
                                    ("data: ", FOLDER, ROOM / "none", 1, room),
                                    ("letter' is not a folder", FOLDER, DATA, 1, full / "model" / "letter"),
                                    ("STEPS", FOLDER, DATA, "none", room),
                                    (str(full / "model"), FOLDER, DATA, 1, full)):
            with self.subTest(culprit=culprit):
                code, _, errors = example(*arguments)
                if not LAUNCH or ON_NCCL or IN_BUCKETS: # mpirun has its own exit status
                    self.assertEqual(code, 2)
                self.assertNotEqual(code, 0)
                self.assertIn(culprit, errors)
        self.assertFalse((ROOM / "refused").exists())
        self.assertEqual([path.name for path in full.rglob("*")], ["model", "letter"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
