"""pulse_train with frozen networks in the bubbles: the bits of encoding before each step, on any plan, on processes, after any kill.

Usage: pulse_train_frozen.py PROGRAM CASE [MPIRUN flags...]: the command line that starts processes, but for their number and the
program.

PULSE_TEST_PLANS: plans that are drawn; PULSE_TEST_KILLS: runs that are killed; PULSE_TEST_SEED: which.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import tiny_pipeline
from processes import processes_of
from pulse_train import PATIENCE, PROGRAM, ROOM, Case, command, drawn, fresh, report

CASE, LAUNCH = sys.argv[1], sys.argv[2:]
DRAW = random.Random(int(os.environ.get("PULSE_TEST_SEED", 1)))
BUBBLES = ("--encode", "bubbles")


def write_data():
    def run(*options):
        subprocess.run([str(word) for word in (PROGRAM, "--model", "sd_tiny", *options)], check=True, capture_output=True,
                       timeout=PATIENCE)

    return tiny_pipeline.write_captioned(ROOM, run)


def drawn_plan(replicas):
    """Options of a plan that there is: skips of sd_tiny stay on a device in a fold of up to 8 stages."""
    while True:
        pipeline = DRAW.choice([1, 2, 3, 4])
        options = drawn(DRAW, pipeline, replicas)
        if pipeline < 4 or "folded" not in options or options[options.index("--waves") + 1] == 1:
            return options


class Encoded(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder, cls.data = write_data()
        cls.profile = fresh()
        cls.trained = {}
        cls().learn("--steps", 1, "--profile-out", cls.profile, *BUBBLES)

    def line(self, *options, out):
        """The plan does not wait for what it needs to know of the machine."""
        known = ("--profile", self.profile) if self.profile.exists() else ()
        line = command("--from", self.folder, "--flip", "yes", "--caption-dropout", 0.4, *known, *options, out=out, model="sd_tiny",
                       data=self.data)
        return [str(word) for word in line]

    def learn(self, *options):
        out = fresh()
        done = self.invoke(self.line(*options, out=out), 0)
        self.assertEqual(done.stderr, "")
        return out

    def start_processes(self, ranks, *options, out):
        return subprocess.Popen([*LAUNCH, str(ranks), *self.line("--transport", "mpi", *options, out=out)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def each_step(self, replicas, steps):
        """Steps on one rank a replica."""
        if (replicas, steps) not in self.trained:
            self.trained[replicas, steps] = self.learn("--steps", steps, "--ranks", replicas, "--replicas", replicas, "--encode",
                                                       "each-step")
        return self.trained[replicas, steps]

    def same_steps(self, out, whole, options):
        """The last steps of the whole run, in the memory that was planned."""
        made = report(out)
        self.assertEqual(made["loss"], report(whole)["loss"][-len(made["loss"]):], options)
        self.same_tensors(out, whole, options)
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"], options)


class Plans(Encoded):
    def test_drawn_plans_train_as_encoding_before_each_step(self):
        steps = 4
        for number in range(int(os.environ.get("PULSE_TEST_PLANS", 6))):
            replicas = DRAW.choice([1, 1, 2])
            options = drawn_plan(replicas)
            with self.subTest(number=number, options=options):
                at = DRAW.choice([0, 0, 1, 2, 3])
                resumed = ()
                if at:
                    half = self.learn("--steps", at, *drawn_plan(replicas), *DRAW.choice([BUBBLES, ("--encode", "each-step")]))
                    resumed = ("--resume", half / "checkpoint.safetensors")
                out = self.learn("--steps", steps, *options, *resumed, *BUBBLES)
                self.same_steps(out, self.each_step(replicas, steps), options)
                self.assertGreater(sum(map(len, json.loads((out / "plan.json").read_text())["frozen_tasks"])), 0)
                shutil.rmtree(out)


class Processes(Encoded):
    def test_the_bits_of_threads(self):
        for ranks, replicas, options in ((2, 1, ()), (3, 1, ("--placement", "sequential")), (4, 2, ("--recomputation", "stages"))):
            with self.subTest(ranks=ranks, options=options):
                out = fresh()
                child = self.start_processes(ranks, "--steps", 3, "--replicas", replicas, *options, *BUBBLES, out=out)
                said, _ = child.communicate(timeout=PATIENCE)
                self.assertEqual(child.returncode, 0, said)
                self.same_steps(out, self.each_step(replicas, 3), options)


    def test_a_picture_that_is_gone_leaves_the_last_whole_step(self):
        for options in (BUBBLES, ("--encode", "each-step")):
            with self.subTest(options=options):
                out = fresh()
                child = self.start_processes(2, "--steps", 1000000, *options, out=out)
                said = ""
                while "step 1/" not in said:
                    said += child.stdout.readline() or self.fail(said)
                picture = self.data / "2.png"
                content = picture.read_bytes()
                picture.unlink()
                said = child.communicate(timeout=PATIENCE)[0]
                picture.write_bytes(content)
                self.assertNotEqual(child.returncode, 0)
                for word in ("--data", "2.png", "--on-bad-picture skip", "--resume"):
                    self.assertIn(word, said)
                (kept,) = (out / "checkpoints").iterdir()
                steps = json.loads((kept / "manifest.json").read_text())["state"]["step"] + 1
                self.assertIn(f"step {steps} cannot", said)
                rest = self.learn("--steps", steps, "--resume", out / "checkpoints", *options)
                self.same_steps(rest, self.each_step(1, steps), options)


class Kills(Encoded):
    def test_killed_between_encoding_and_use(self):
        """At any instant behind the first step, samples of a step that has not run are encoded."""
        steps = 60
        whole = self.each_step(1, steps)
        for kill in range(int(os.environ.get("PULSE_TEST_KILLS", 3))):
            processes = kill % 5 == 2 and LAUNCH
            with self.subTest(kill=kill, processes=processes):
                out = fresh()
                options = ("--steps", 1000000, "--checkpoint-every", 1, *BUBBLES)
                if processes:
                    child = self.start_processes(2, *options, out=out)
                else:
                    child = subprocess.Popen(self.line("--ranks", DRAW.choice([1, 2, 3]), *options, out=out), text=True,
                                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
                until = time.monotonic() + PATIENCE
                while not any(out.glob("checkpoints/step-*/manifest.json")):
                    self.assertTrue(child.poll() is None and time.monotonic() < until, "no checkpoint came")
                    time.sleep(0.001)
                time.sleep(DRAW.uniform(0, 0.3))
                os.kill(DRAW.choice(processes_of(child, PROGRAM)) if processes else child.pid, signal.SIGKILL)
                child.communicate(timeout=PATIENCE)
                done = max(json.loads(path.read_text())["state"]["step"] for path in out.glob("checkpoints/step-*/manifest.json"))
                self.assertLess(done, steps, "the runs to be killed are too fast for so few steps")
                rest = self.learn("--steps", steps, "--ranks", DRAW.choice([1, 2]), "--resume", out / "checkpoints", *BUBBLES)
                self.assertEqual(len(report(rest)["loss"]), steps - done)
                self.same_steps(rest, whole, done)
                shutil.rmtree(out)
                shutil.rmtree(rest)


if __name__ == "__main__":
    if CASE == "Processes" and not LAUNCH:
        sys.exit(print("skipped: no mpirun") or 77)
    unittest.main(argv=[sys.argv[0], CASE])
