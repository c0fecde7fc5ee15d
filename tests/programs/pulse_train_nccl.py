"""pulse_train on NCCL ranks that are processes: the same as on threads, bit for bit, and every run ends, with an error
message if anything fails.

Usage: pulse_train_nccl.py PROGRAM MODEL PRECISION gpu|emulated [unittest arguments]

All ranks are on one device: a GPU, or an emulated one with emulated NCCL. Exits with 77 without a CUDA device, or fails
then if PULSE_REQUIRE_GPU is 1.
"""

import atexit
import functools
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import device_tests
import tiny_pipeline
from files import write_cluster

PROGRAM, MODEL, PRECISION, WHERE = sys.argv[1:5]
del sys.argv[1:5]
EMULATED = WHERE == "emulated"
# Far longer than any run here takes: a program that hangs must not hang the tests.
PATIENCE = 200
STEPS = 2
# Passed to a run that is to fail: seconds in which every rank must end.
TIMEOUT = 30
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train_nccl."))
CLUSTER = write_cluster(ROOM / "cluster.json")
atexit.register(shutil.rmtree, ROOM, True)
serial = itertools.count()
# Variables that a launcher of the tests themselves may have set.
LAUNCHERS = re.compile(r"(PULSE_(RANK|WORLD|LOCAL|NODE|STORE|RUN)|OMPI_|PMIX?_|MPI_LOCAL|SLURM_|MASTER_|TORCHELASTIC_|"
                       r"GROUP_RANK$|(LOCAL_)?RANK$|(LOCAL_)?WORLD_SIZE$)")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
if EMULATED:
    ENVIRONMENT["PULSE_EMULATED_NCCL"] = str(ROOM)


def fresh(name="run"):
    """A path that does not exist yet."""
    return ROOM / f"{name}{next(serial)}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.cache
def profile(*more):
    """The costs of the trained model and of its encoders, for runs that are not about planning."""
    at = fresh("profile")
    encoded = ("--encode", "bubbles") if "--from" in more else ()
    measuring = options(*more, *encoded, "--gpus", 0, "--plan-time", 0, "--plan-only", "--profile-out", at, out=fresh())
    subprocess.run([PROGRAM, *measuring], check=True, capture_output=True, timeout=PATIENCE, env=ENVIRONMENT)
    return at


def planning(*more):
    """Fixes the placement, without a search; a run with --plan-time measures its layers and links."""
    if "--plan" in more or "--plan-time" in more:
        return ()
    known = ("--placement", "folded", "--plan-time", 0, "--cluster", CLUSTER)
    if {"--backend", "--buckets", "--cascade-with"} & set(more):  # no device is used, or there is no such profile
        return known
    trained = [at for at, word in enumerate(more) if word in ("--model", "--from", "--data")]
    return (*known, "--profile", profile(*(word for at in trained for word in more[at:at + 2])))


def options(*more, out, steps=STEPS):
    """A warm-up of 0 lets the weights move from the first step on, so that losses tell runs apart."""
    size = () if "--plan" in more else ("--microbatch-size", 1)
    size += () if "--plan" in more or "--microbatches" in more else ("--microbatches", 2)
    where = () if "--backend" in more else ("--backend", "cuda", "--precision", PRECISION)
    data = () if "--data" in more else ("--data", "synthetic")
    model = () if "--model" in more else ("--model", MODEL)
    return [str(word) for word in (*where, *model, *data, "--warmup", 0,
                                   "--steps", steps, "--sample", 0, "--out", out, *size, *planning(*more), *more)]


def on_threads(*more, ranks=1, steps=STEPS):
    out = fresh()
    degree = () if "--plan" in more else ("--ranks", ranks)
    subprocess.run([PROGRAM, *options(*degree, "--gpus", "0", *more, out=out, steps=steps)], check=True,
                   capture_output=True, timeout=PATIENCE, env=ENVIRONMENT)
    return out


def planned_on_the_host(*more, ranks):
    """A plan that needs no measurement, for runs without a profile to share."""
    out = fresh("plan")
    planning = options("--backend", "host", "--ranks", ranks, "--plan-only", *more, out=out)
    subprocess.run([PROGRAM, *planning], check=True, capture_output=True, timeout=PATIENCE, env=ENVIRONMENT)
    return out / "plan.json"


@functools.cache
def pipeline_of_four():
    return on_threads("--microbatches", 4, ranks=4)


# What launchers tell rank r of n processes on one machine; `place` is a fresh port.
def by_hand(r, n, place):
    return {"PULSE_RANK": r, "PULSE_WORLD_SIZE": n, "PULSE_STORE": f"127.0.0.1:{place}"}


def by_torchrun(r, n, place):
    return {"RANK": r, "WORLD_SIZE": n, "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": place - 1, "TORCHELASTIC_RUN_ID": place,
            "TORCHELASTIC_RESTART_COUNT": 0}


def by_mpirun(r, n, place):
    return {"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": n, "OMPI_COMM_WORLD_LOCAL_RANK": r,
            "OMPI_COMM_WORLD_LOCAL_SIZE": n, "PMIX_NAMESPACE": place}


def by_srun(r, n, place):
    return {"SLURM_PROCID": r, "SLURM_STEP_NUM_TASKS": n, "SLURM_LOCALID": r, "SLURM_NODEID": 0, "SLURM_JOB_ID": place,
            "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": "localhost"}


def start(*more, out, ranks=4, steps=STEPS, launcher=by_hand, arguments=None, gpus=None, missing=0):
    """The processes of a run, each with its own output; the last ones may be missing."""
    place = free_port()
    gpus = ("--gpus", gpus or ",".join("0" * ranks)) if gpus != "" else ()
    children = []
    for r in range(ranks - missing):
        said = {name: str(value) for name, value in launcher(r, ranks, place).items()} if launcher else {}
        words = [str(word) for word in (arguments(r, ranks) if arguments else ())]
        children.append(subprocess.Popen([PROGRAM, "--transport", "nccl", *gpus, *words,
                                          *options(*more, out=out, steps=steps)],
                                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         env=ENVIRONMENT | said))
    return children


def loss(out):
    return json.loads((out / "report.json").read_text())["loss"]


class Case(unittest.TestCase):
    longMessage = True

    def end(self, children):
        """Exit codes and outputs."""
        until = time.monotonic() + PATIENCE
        outputs = []
        try:
            for child in children:
                outputs.append(child.communicate(timeout=max(0.1, until - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            for child in children:
                child.kill()
            self.fail("it hangs: " + "".join(child.communicate()[0] or "" for child in children))
        return [child.returncode for child in children], outputs

    def trained(self, *more, **how):
        out = fresh()
        codes, outputs = self.end(start(*more, out=out, **how))
        self.assertEqual(codes, [0] * len(codes), outputs)
        self.assertEqual(outputs[1:], [""] * (len(codes) - 1))
        return out

    def same(self, one, other):
        self.assertEqual(loss(one), loss(other))
        self.assertEqual((one / "checkpoint.safetensors").read_bytes(), (other / "checkpoint.safetensors").read_bytes())

    def refused(self, *more, words, **how):
        """Every rank ends with one line that contains the words, from itself or from another rank."""
        out = fresh()
        codes, outputs = self.end(start(*more, out=out, **how))
        self.assertIn(2, codes)
        for code, output in zip(codes, outputs):
            self.assertIn(code, (1, 2), output)
            self.assertRegex(output, r"\Apulse_train: [^\n]*" + words + r"[^\n]*\n\Z")
        self.assertFalse(out.exists())


class Training(Case):
    def test_a_pipeline_of_four(self):
        threads = pipeline_of_four()
        self.assertEqual(len(set(loss(threads))), STEPS)
        processes = self.trained("--microbatches", 4)
        self.same(processes, threads)
        made, plan = (json.loads((processes / name).read_text()) for name in ("report.json", "plan.json"))
        self.assertEqual(made["ranks"], 4)
        self.assertEqual((made["bytes_per_step"]["boundary"], made["bytes_per_step"]["skip"]),
                         (plan["predicted"]["boundary_bytes"], 0))
        shards = sorted(path.name for path in next((processes / "checkpoints").glob("step-*")).iterdir())
        self.assertEqual(shards, ["manifest.json"] + [f"rank-000{r}.safetensors" for r in range(4)])

    def test_a_pipeline_of_two(self):
        """With a plan from measured links."""
        judged = ("--validate", 0.006, "--validate-times", 2, "--validate-every", 1)
        processes = self.trained("--plan-time", 0, "--placement", "folded", *judged, ranks=2)
        threads = on_threads(*judged, ranks=2)
        self.same(processes, threads)
        one, other = (json.loads((out / "report.json").read_text())["validation"] for out in (threads, processes))
        self.assertEqual([each["step"] for each in one], list(range(STEPS + 1)))
        self.assertEqual(one, other)

    @unittest.skipUnless(EMULATED, "the cards of this machine are alike")
    def test_cards_of_two_kinds(self):
        """They are timed separately and get layers by their speed; a file with speeds is read by rank 0 only."""
        cards = ["a card", "another card"]
        launcher = lambda r, n, place: by_hand(r, n, place) | {"PULSE_EMULATED_DEVICE": cards[r]}
        measured, given = fresh("measured"), fresh("given")
        self.trained("--plan-time", 0, "--placement", "folded", "--cluster-out", measured, ranks=2, steps=1,
                     launcher=launcher)
        cluster = json.loads(measured.read_text())
        first, second = cluster["devices"]
        self.assertEqual([first["device"], second["device"]], cards)
        self.assertEqual(first["relative_speed"], 1)
        self.assertNotEqual(second["relative_speed"], 1)
        second["relative_speed"] = 0.1
        given.write_text(json.dumps(cluster))
        unlike = self.trained("--plan-time", 0, "--placement", "folded", "--cluster", given, ranks=2, launcher=launcher)
        self.same(unlike, on_threads(ranks=2))
        layers = [0, 0]
        for stage in json.loads((unlike / "plan.json").read_text())["stages"]:
            layers[stage["device"]] += stage["last_layer"] + 1 - stage["first_layer"]
        self.assertGreater(layers[0], layers[1])

    @staticmethod
    @functools.cache
    def captioned():
        return tiny_pipeline.write_captioned(fresh("captioned"), lambda *words: subprocess.run(
            [PROGRAM, "--model", MODEL, *map(str, words)], check=True, capture_output=True, timeout=PATIENCE,
            env=ENVIRONMENT))

    @unittest.skipUnless(MODEL == "sd_tiny", "one model with text is enough")
    def test_steps_of_three_sizes(self):
        folder, few = self.captioned()
        data = fresh("shapes")
        shutil.copytree(few, data)
        tiny_pipeline.add_shapes(data)
        # the first four steps of this seed include all three sizes
        options = ("--from", folder, "--data", data, "--flip", "yes", "--buckets", "16:8:8-24", "--seed", 3, "--encode")
        processes = self.trained(*options, "bubbles", ranks=2, steps=4)
        self.same(processes, on_threads(*options, "each-step", steps=4))
        extents = json.loads((processes / "report.json").read_text())["extents"]
        self.assertEqual(len(extents), 3)
        self.assertTrue(all(size["steps"] > 0 for size in extents))

    @unittest.skipUnless(MODEL == "sd_tiny", "one model with text is enough")
    def test_frozen_networks_in_the_bubbles(self):
        folder, data = self.captioned()
        encoded = ("--from", folder, "--data", data, "--flip", "yes", "--encode")
        processes = self.trained(*encoded, "bubbles", ranks=2)
        self.same(processes, on_threads(*encoded, "each-step"))
        made = json.loads((processes / "report.json").read_text())
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])

    @unittest.skipUnless(MODEL == "sd_tiny", "one run of these is enough")
    def test_models_that_read_another_image_beside(self):
        for model in ("sd_self_tiny --self-conditioning", "sd_pixels_tiny --cascade-with sd_pixels_up_tiny"):
            with self.subTest(model):
                words = ("--model", *model.split())
                try:
                    alone = ("--plan", planned_on_the_host(*words, ranks=1))
                    # rank 0 measures two backbones and sends the plan to the others
                    two = () if "--cascade-with" in words else ("--plan", planned_on_the_host(*words, ranks=2))
                    threads = on_threads(*words, *alone)
                except subprocess.CalledProcessError as failed:
                    if b"does not train" in failed.stderr:
                        self.skipTest("no such model in this build")
                    raise
                self.same(self.trained(*words, *two, ranks=2), threads)

    def test_two_replicas_of_two_that_share_optimizer_state(self):
        """The same bits as one rank with all microbatches; identified by arguments."""
        meeting = f"127.0.0.1:{free_port()}"
        processes = self.trained("--replicas", 2, "--shard-optimizer", launcher=None,
                                 arguments=lambda r, n: ("--rank", r, "--world-size", n, "--store", meeting))
        self.same(processes, on_threads("--replicas", 2, ranks=2))
        self.assertGreater(json.loads((processes / "report.json").read_text())["bytes_per_step"]["gradient"], 0)


class Ends(Case):
    def test_refusals(self):
        if EMULATED:
            self.refused(ranks=2, gpus="", words="ranks 0 and 1 use the same CUDA device")
        self.refused(ranks=2, gpus="0", words=r"2 ranks on host [^\n]*, but --gpus lists 1")
        self.refused("--replicas", 2, ranks=3, launcher=by_srun,
                     words="--replicas: 2 pipelines cannot share 3 processes")
        self.refused(ranks=2, gpus="0,1023", words="there is no CUDA device 1023")
        self.refused("--ranks", 2, ranks=1, words="--ranks: with --transport nccl")
        self.refused("--rank", 0, ranks=1, launcher=None, words="argument rank is given, but the world size is not")
        self.refused("--store", "file:meeting", ranks=1, words="--store: 'file:meeting' is a folder")
        self.refused("--backend", "host", ranks=1, gpus="", words="--transport nccl: requires --backend cuda")

    def test_a_plan_for_other_ranks(self):
        plan = pipeline_of_four() / "plan.json"
        out = fresh()
        codes, outputs = self.end(start("--plan", plan, out=out, ranks=2, launcher=by_torchrun))
        self.assertIn(2, codes)
        for output in outputs:
            self.assertRegex(output, r"the plan is for 4 x 1 ranks [^\n]*, not for 2")

    def test_a_rank_that_does_not_come(self):
        children = start("--timeout", 1, out=fresh(), ranks=3, missing=1)
        codes, outputs = self.end(children)
        self.assertEqual(codes, [1, 1], outputs)
        for output in outputs:
            self.assertRegex(output, r"rank 2 of 3 did not join within 1 s")

    def test_killed(self):
        """Every survivor ends by itself, in time, and names the killed rank; the last checkpoint resumes exactly."""
        draw = random.Random(int(os.environ.get("PULSE_TEST_SEED", 1)))
        for _ in range(int(os.environ.get("PULSE_TEST_KILLS", 1))):
            out = fresh()
            children = start("--checkpoint-every", 1, "--timeout", TIMEOUT, out=out, steps=1000000, launcher=by_mpirun)
            until = time.monotonic() + PATIENCE
            while not list(out.glob("checkpoints/step-*/manifest.json")):
                self.assertTrue(time.monotonic() < until and children[0].poll() is None, "no checkpoint came")
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.3))
            victim = children.pop(draw.randrange(len(children)))
            victim.kill()
            killed = time.monotonic()
            codes, outputs = self.end(children)
            self.assertLess(time.monotonic() - killed, TIMEOUT)
            self.assertEqual(codes, [1] * 3, outputs)
            for output in outputs:
                self.assertRegex(output, r"pulse_train: rank \d: another rank has failed: "
                                         rf"rank \d \(host [^,]*, process {victim.pid}\) was killed or has exited")
            victim.communicate()
            self.go_on(out)

    def go_on(self, out):
        last = max((json.loads(path.read_text()) for path in out.glob("checkpoints/step-*/manifest.json")),
                   key=lambda m: m["sequence"])
        steps = last["state"]["step"] + 1
        self.same_end(on_threads("--resume", out / "checkpoints", steps=steps), on_threads(steps=steps))

    def same_end(self, rest, whole):
        self.assertEqual(loss(rest), loss(whole)[-1:])
        self.assertEqual((rest / "checkpoint.safetensors").read_bytes(),
                         (whole / "checkpoint.safetensors").read_bytes())


if __name__ == "__main__":
    device_tests.main([PROGRAM, *options("--gpus", 1023, "--plan-time", 0, out=ROOM / "probe")], PATIENCE, ENVIRONMENT)
