"""pulse_train with frozen networks in the bubbles: the bits of encoding before each step, on any plan, on processes,
after any kill.

Usage: pulse_train_frozen.py PROGRAM CASE [MPIRUN flags...]: the command line that starts processes, without their
number and the program.

PULSE_TEST_PLANS: number of random plans; PULSE_TEST_KILLS: number of killed runs; PULSE_TEST_SEED: their seed.
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
from drawn_plans import scattered
from files import png_size
from processes import processes_of
from pulse_train import PATIENCE, PROGRAM, ROOM, Case, command, drawn, fresh, report

CASE, LAUNCH = sys.argv[1], sys.argv[2:]
DRAW = random.Random(int(os.environ.get("PULSE_TEST_SEED", 1)))
BUBBLES = ("--encode", "bubbles")


def write_data():
    def run(*options):
        subprocess.run([str(word) for word in (PROGRAM, "--model", "sd_tiny", *options)], check=True,
                       capture_output=True, timeout=PATIENCE)

    return tiny_pipeline.write_captioned(ROOM, run)


def drawn_plan(replicas):
    """Options of a feasible plan: sd_tiny can be folded into at most 8 stages."""
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
        cls.prepare()

    @classmethod
    def prepare(cls):
        cls().learn("--steps", 1, "--profile-out", cls.profile, *BUBBLES)

    def line(self, *options, out):
        """Reads the profile if there is one, so that planning does not measure."""
        known = ("--profile", self.profile) if self.profile.exists() else ()
        size = {}
        if "--plan" in options:
            known, size = (), {"size": ()}  # the file has both
        line = command("--from", self.folder, "--flip", "yes", "--caption-dropout", 0.4, *known, *options, out=out,
                       model="sd_tiny", data=self.data, **size)
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
        """Steps on one rank per replica, encoded in each step."""
        if (replicas, steps) not in self.trained:
            self.trained[replicas, steps] = self.learn("--steps", steps, "--ranks", replicas, "--replicas", replicas,
                                                       "--encode", "each-step")
        return self.trained[replicas, steps]

    def begun(self, steps, replicas, *encode):
        """Options that resume after `steps` steps of another plan; none for 0 steps."""
        if steps == 0:
            return ()
        half = self.learn("--steps", steps, *drawn_plan(replicas), *encode)
        return ("--resume", half / "checkpoint.safetensors")

    def same_steps(self, out, whole, options):
        """The last steps equal the whole run's, in the planned memory."""
        made = report(out)
        self.assertEqual(made["loss"], report(whole)["loss"][-len(made["loss"]):], options)
        self.same_tensors(out, whole, options)
        self.same_memory(made, options)

    def same_memory(self, made, options):
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"], options)


    def kill_and_resume(self, *encode):
        steps = 60
        whole = self.each_step(1, steps)
        for kill in range(int(os.environ.get("PULSE_TEST_KILLS", 3))):
            processes = kill % 5 == 2 and LAUNCH
            with self.subTest(kill=kill, processes=processes):
                out = fresh()
                options = ("--steps", 1000000, "--checkpoint-every", 1, *encode)
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
                done = max(json.loads(path.read_text())["state"]["step"]
                           for path in out.glob("checkpoints/step-*/manifest.json"))
                self.assertLess(done, steps, "the runs to be killed are too fast for so few steps")
                rest = self.learn("--steps", steps, "--ranks", DRAW.choice([1, 2]), "--resume", out / "checkpoints",
                                  *encode)
                self.assertEqual(len(report(rest)["loss"]), steps - done)
                self.same_steps(rest, whole, done)
                shutil.rmtree(out)
                shutil.rmtree(rest)


class Plans(Encoded):
    def test_drawn_plans_train_as_encoding_before_each_step(self):
        steps = 4
        for number in range(int(os.environ.get("PULSE_TEST_PLANS", 6))):
            replicas = DRAW.choice([1, 1, 2])
            options = drawn_plan(replicas)
            with self.subTest(number=number, options=options):
                encode = DRAW.choice([BUBBLES, ("--encode", "each-step")])
                resumed = self.begun(DRAW.choice([0, 0, 1, 2, 3]), replicas, *encode)
                out = self.learn("--steps", steps, *options, *resumed, *BUBBLES)
                self.same_steps(out, self.each_step(replicas, steps), options)
                self.assertGreater(sum(map(len, json.loads((out / "plan.json").read_text())["frozen_tasks"])), 0)
                shutil.rmtree(out)

    def test_layers_on_any_rank_in_calls_of_any_number_of_samples(self):
        parts = json.loads(self.profile.read_text())["frozen"]
        file = fresh()
        for options in (("--ranks", 3), ("--ranks", 2, "--placement", "sequential"), ("--ranks", 1)):
            with self.subTest(options=options):
                made = self.learn("--steps", 1, *options, *BUBBLES)
                plan = scattered(DRAW, json.loads((made / "plan.json").read_text()), parts)
                sizes = {task["samples"] for device in plan["frozen_tasks"] for task in device}
                self.assertGreater(max(sizes), 1)
                file.write_text(json.dumps(plan))
                out = self.learn("--steps", 4, "--plan", file, *BUBBLES)
                self.assertEqual(json.loads((out / "plan.json").read_text())["frozen_tasks"], plan["frozen_tasks"])
                self.same_steps(out, self.each_step(1, 4), options)


class Processes(Encoded):
    def test_the_bits_of_threads(self):
        for ranks, replicas, options in ((2, 1, ()), (3, 1, ("--placement", "sequential")),
                                         (4, 2, ("--recomputation", "stages"))):
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


class Buckets(Encoded):
    """Steps of several sizes: the bits of one rank, in the planned memory, on any plan, on processes, after any
    kill."""

    @classmethod
    def prepare(cls):
        tiny_pipeline.add_shapes(cls.data)

    def line(self, *options, out):
        return super().line("--buckets", "16:4:8-32", *options, out=out)

    def same_memory(self, made, options):
        if all(one["steps"] > 0 for one in made["extents"]):
            return super().same_memory(made, options)
        # planned for all buckets, measured for those that occurred
        for planned, measured in zip(made["planned_peak_bytes"], made["measured_peak_bytes"]):
            self.assertGreaterEqual(planned, measured, options)

    def test_drawn_plans(self):
        steps = 11
        for number in range(int(os.environ.get("PULSE_TEST_PLANS", 4))):
            replicas = DRAW.choice([1, 1, 2])
            options = drawn_plan(replicas)
            with self.subTest(number=number, options=options):
                resumed = self.begun(DRAW.choice([0, 0, 1, 4, 7]), replicas,
                                     *DRAW.choice([BUBBLES, ("--encode", "each-step")]))
                encode = (BUBBLES, ("--encode", "once", "--cache", fresh()), BUBBLES, ())[number % 4]
                out = self.learn("--steps", steps, *options, *resumed, *encode)
                self.same_steps(out, self.each_step(replicas, steps), options)
                tasks = [one.get("frozen_tasks") for one in json.loads((out / "plan.json").read_text())["extents"]]
                if encode == BUBBLES:  # a task encodes for a next step of any size
                    self.assertGreater(sum(map(len, tasks[0])), 0)
                    self.assertEqual(tasks, tasks[:1] * len(tasks))
                elif encode:
                    self.assertEqual(tasks, [None] * len(tasks))
                shutil.rmtree(out)

    def test_the_plan_and_the_report_have_every_bucket(self):
        out = self.learn("--steps", 14, "--ranks", 2, "--placement", "folded")
        plan, made = json.loads((out / "plan.json").read_text()), report(out)
        sizes = [(4, 14), (4, 16), (8, 8), (14, 4), (16, 4)]
        for found in (plan["extents"], made["extents"]):
            self.assertEqual([(one["height"], one["width"]) for one in found], sizes)
        self.assertNotIn("schedule", plan)
        self.assertAlmostEqual(sum(one["share"] for one in plan["extents"]), 1)
        # an epoch has 7 or 8 steps (--microbatch-size and --microbatches make 8 samples)
        self.assertEqual(sum(one["steps"] for one in made["extents"]), 14)
        for one, expected in zip(made["extents"], plan["extents"]):
            self.assertEqual(one["step_us"], expected["predicted"]["step_us"])
            self.assertGreater(one["measured_step_us"], 0)
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        # the same plan again, with pictures drawn in another size
        again = fresh()
        line = command("--from", self.folder, "--buckets", "16:4:8-32", "--flip", "yes", "--caption-dropout", 0.4,
                       "--steps", 14, "--plan", out / "plan.json", "--prompt", "a cat", "--size", "8x20", out=again,
                       model="sd_tiny", data=self.data, size=(), sample=1)
        done = self.invoke(line, 0)
        for words in ("  8 x 28 ", " 16 x 16 ", "an epoch has ", "samples fill the last steps of buckets"):
            self.assertIn(words, done.stdout)
        self.assertEqual(png_size(again / "pictures/0000.png"), (20, 8))
        self.same_steps(again, out, ())
        plan["extents"].pop()
        (again / "other.json").write_text(json.dumps(plan))

        def refused(*options, names):
            done = self.invoke(self.line(*options, out=fresh()), 2)
            for name in names:
                self.assertIn(name, done.stderr)

        for file, buckets in ((again / "other.json", ("--buckets", "16:4:8-32")), (out / "plan.json", ())):
            line = command("--from", self.folder, *buckets, "--steps", 1, "--plan", file, out=fresh(), model="sd_tiny",
                           data=self.data, size=())
            self.assertIn("extents", self.invoke(line, 2).stderr)

        refused("--profile-out", fresh(), names=["--profile-out", "--buckets"])
        refused("--buckets", "16:5", names=["--buckets"])  # given twice
        wrong = {"16:6": "height must be a multiple of", "16:4:9-32": "multiples of 4",
                 "16:4:32-8": "in ascending order", "16:": "AREA[:STEP", "16:4:8": "AREA[:STEP", "16x:4": "AREA[:STEP",
                 "16:4:20-32": "no size of 20 to 32"}
        for value, name in wrong.items():
            line = self.line(out=fresh())
            line[line.index("16:4:8-32")] = value
            self.assertIn(name, self.invoke(line, 2).stderr)

    def test_processes(self):
        for ranks, replicas, options in ((2, 1, BUBBLES),
                                         (4, 1, ("--placement", "sequential", "--encode", "each-step")),
                                         (4, 2, ("--recomputation", "stages", *BUBBLES))):
            with self.subTest(ranks=ranks, options=options):
                out = fresh()
                child = self.start_processes(ranks, "--steps", 11, "--replicas", replicas, *options, out=out)
                said, _ = child.communicate(timeout=PATIENCE)
                self.assertEqual(child.returncode, 0, said)
                self.same_steps(out, self.each_step(replicas, 11), options)

    def test_killed_and_resumed(self):
        self.kill_and_resume(*BUBBLES)


class Kills(Encoded):
    def test_killed_between_encoding_and_use(self):
        """At any instant after the first step, samples of a later step are already encoded."""
        self.kill_and_resume(*BUBBLES)


if __name__ == "__main__":
    if CASE in ("Processes", "Buckets.test_processes") and not LAUNCH:
        sys.exit(print("skipped: no mpirun") or 77)
    unittest.main(argv=[sys.argv[0], CASE])
