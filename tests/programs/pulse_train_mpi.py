"""pulse_train on ranks that are processes: the same as on threads, bit for bit, and every run ends, with an error
message if anything fails.

Usage: pulse_train_mpi.py PROGRAM RANKS MPIRUN [flags...]: the command line that starts RANKS processes, without the
program.
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
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from files import idx_bytes, write_cluster, write_images
from processes import processes_of

PROGRAM, RANKS, LAUNCH = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
# Far longer than any run here takes: a program that hangs must not hang the tests.
PATIENCE = 120
STEPS = 3
EVERY_STEP = ("--checkpoint-every", 1, "--keep", 0)
# Passed to a run that is to be killed: seconds in which every survivor must end.
TIMEOUT = 30
OPEN_MPI = "--oversubscribe" in LAUNCH # pulse passes it this flag
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train_mpi."))
atexit.register(shutil.rmtree, ROOM, True)
# a model whose steps take no time; tests that need images use another
TRAINED = ("--model", "sd_tiny", "--data", "synthetic")
CLUSTER = write_cluster(ROOM / "cluster.json")
serial = itertools.count()


def fresh():
    """A path that does not exist yet."""
    return ROOM / f"run{next(serial)}"


@functools.cache
def profile():
    """The costs of the layers, for runs that are not about planning: while rank 0 measures, the others would spin."""
    at = fresh()
    subprocess.run([PROGRAM, *TRAINED, "--ranks", "1", "--microbatch-size", "1",
                    "--microbatches", "4", "--plan-time", "0", "--plan-only", "--profile-out", at, "--out", fresh()],
                   check=True, capture_output=True, timeout=PATIENCE)
    return at


def planning(*more):
    """Fixes the placement, without a search; a run with --plan-time measures its layers and links."""
    if "--plan" in more or "--plan-time" in more:
        return ()
    return ("--placement", "folded", "--plan-time", 0, "--cluster", CLUSTER, "--profile", profile())


def options(*more, out, steps=STEPS):
    """A warm-up of 0 lets the weights move from the first step on, so that losses tell runs apart."""
    size = () if "--plan" in more else ("--microbatch-size", 1)
    size += () if "--plan" in more or "--microbatches" in more else ("--microbatches", 4)
    trained = () if "--data" in more else TRAINED
    return [str(word) for word in (*trained, "--warmup", 0, "--steps", steps, "--sample", 0, "--out", out, *size,
                                   *planning(*more), *more)]


def on_threads(*more, ranks=RANKS, out=None, steps=STEPS):
    out = out or fresh()
    degree = () if "--plan" in more else ("--ranks", ranks)
    subprocess.run([PROGRAM, *options(*degree, *more, out=out, steps=steps)], check=True, capture_output=True,
                   timeout=PATIENCE)
    return out


@functools.cache
def whole_on_threads():
    """A run on threads that keeps every step."""
    return on_threads(*EVERY_STEP)


def start(*more, out, steps=STEPS, alone=False):
    """`alone`: Open MPI does not end the other ranks when one is killed, and each prints its status."""
    program = ["--enable-recovery", "sh", "-c", '"$@"; echo "status $?"', "sh", PROGRAM] if alone else [PROGRAM]
    return subprocess.Popen([*LAUNCH, *program, "--transport", "mpi", *options(*more, out=out, steps=steps)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def start_with_another(*more, out, program=PROGRAM, images=None):
    """The last rank gets additional options, other images, or another program."""
    count, first = LAUNCH[-2:]
    assert int(first) == RANKS
    of_images = ("--model", "ddpm_fmnist_small", "--plan-time", 0, "--data")
    one, other = (["--transport", "mpi", *options(*((*of_images, data) if data else ()), out=out, steps=1)]
                  for data in images or (None, None))
    other += [str(word) for word in more]
    return subprocess.Popen([*LAUNCH[:-2], count, str(RANKS - 1), PROGRAM, *one, ":", count, "1", program, *other],
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def rebuilt():
    """The program with another build id, as the linker would give other code."""
    content = bytearray(pathlib.Path(PROGRAM).read_bytes())
    note = content.index(struct.pack("<III4s", 4, 20, 3, b"GNU\0")) # owner, bytes, kind: NT_GNU_BUILD_ID
    content[note + 16] ^= 1
    path = fresh()
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def loss(out):
    return json.loads((out / "report.json").read_text())["loss"]


class Case(unittest.TestCase):
    def ends(self, child, code=None, any_code=False):
        try:
            output = child.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            self.fail("it hangs: " + child.communicate()[0])
        if any_code:
            return output
        if code is None:
            self.assertNotEqual(child.returncode, 0, output)
        else:
            self.assertEqual(child.returncode, code, output)
        return output

    def trained(self, *more, out=None, steps=STEPS):
        out = out or fresh()
        self.ends(start(*more, out=out, steps=steps), 0)
        return out

    def same(self, one, other):
        self.assertEqual(loss(one), loss(other))
        self.assertEqual((one / "checkpoint.safetensors").read_bytes(), (other / "checkpoint.safetensors").read_bytes())

    def first_checkpoint(self, child, out):
        until = time.monotonic() + PATIENCE
        while not list(out.glob("checkpoints/step-*/manifest.json")):
            self.assertTrue(time.monotonic() < until and child.poll() is None, "no checkpoint came")
            time.sleep(0.01)


class Training(Case):
    @classmethod
    @functools.cache
    def whole(cls):
        return cls().trained(*EVERY_STEP)

    def test_the_same_bits_as_on_threads(self):
        threads, processes = whole_on_threads(), self.whole()
        self.same(processes, threads)
        self.assertEqual(len(set(loss(threads))), STEPS)
        one, other = (json.loads((out / "report.json").read_text()) for out in (threads, processes))
        self.assertEqual(other["ranks"], RANKS)
        self.assertEqual(other["planned_peak_bytes"], other["measured_peak_bytes"])
        self.assertEqual(other["bytes_per_step"]["skip"], 0)
        self.assertEqual(set(path.name for path in threads.iterdir()), set(path.name for path in processes.iterdir()))

    def test_validation(self):
        judged = ("--validate", 0.03, "--validate-times", 2, "--validate-every", 1, "--keep-best", "yes")
        threads = on_threads(*judged)
        processes = self.trained(*judged, "--timeout", 1e17)  # never: three billion years
        self.same(processes, threads)
        one, other = (json.loads((out / "report.json").read_text())["validation"] for out in (threads, processes))
        self.assertEqual([each["step"] for each in one], list(range(STEPS + 1)))
        self.assertEqual(one, other)
        self.assertEqual((threads / "best.json").read_text(), (processes / "best.json").read_text())

    def test_two_replicas(self):
        threads = on_threads("--replicas", 2, "--microbatches", 2)
        processes = self.trained("--replicas", 2, "--microbatches", 2)
        self.same(processes, threads)
        self.assertEqual(loss(threads)[0], loss(whole_on_threads())[0])
        made = json.loads((processes / "report.json").read_text())
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        self.assertEqual(made["ranks"], RANKS)
        self.assertGreater(made["bytes_per_step"]["gradient"], 0)
        # Some sum over the replicas begins before its rank's last pass ends.
        events = [e for e in json.loads((processes / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
        last = {rank: max(e["ts"] + e["dur"] for e in events if e["pid"] == rank and e["cat"] in "FBW")
                for rank in range(RANKS)}
        self.assertTrue(any(e["cat"] == "A" and e["ts"] < last[e["pid"]] for e in events))

    def test_processes_plan_from_links_that_they_measure(self):
        """Options that are not given are tuned on rank 0; the bits are those of threads that run its plan."""
        cluster = fresh()
        images = ("--model", "ddpm_fmnist_small", "--data", write_images(fresh(), idx_bytes()))
        processes = self.trained(*images, "--plan-time", 0.5, "--cluster-out", cluster)
        self.same(processes, on_threads(*images, "--plan", processes / "plan.json"))
        found = json.loads(cluster.read_text())
        self.assertEqual((found["nodes"], found["devices_per_node"]), (1, RANKS))
        self.assertGreater(found["intra_node"]["latency_us"], 0)
        # Unlike devices, described in a file that only rank 0 reads.
        memory = found.pop("memory_bytes")
        found["devices"] = [{"device": "x", "memory_bytes": memory, "relative_speed": 1 if rank == 0 else 0.1}
                            for rank in range(RANKS)]
        cluster.write_text(json.dumps(found))
        unlike = self.trained("--plan-time", 0, "--pipeline", RANKS, "--cluster", cluster)
        self.same(unlike, on_threads("--plan", unlike / "plan.json"))
        layers = [0] * RANKS
        for stage in json.loads((unlike / "plan.json").read_text())["stages"]:
            layers[stage["device"]] += stage["last_layer"] + 1 - stage["first_layer"]
        self.assertEqual(layers[0], max(layers))
        self.assertGreater(layers[0], min(layers))

    def test_what_crosses_is_what_the_plan_says(self):
        plan = self.whole() / "plan.json"
        out = self.trained("--plan", plan, steps=1)
        wanted = json.loads(plan.read_text())["predicted"]
        self.assertEqual(json.loads((out / "report.json").read_text())["bytes_per_step"]["boundary"],
                         wanted["boundary_bytes"])

    def test_continues_what_the_other_began(self):
        whole = whole_on_threads()
        by_processes = self.whole() / "checkpoints/step-00000001"
        for begun, go_on in ((on_threads(ranks=2, steps=1) / "checkpoints", self.trained), (by_processes, on_threads)):
            rest = go_on("--resume", begun)
            self.assertEqual(loss(rest), loss(whole)[1:])
            self.assertEqual((rest / "checkpoint.safetensors").read_bytes(),
                             (whole / "checkpoint.safetensors").read_bytes())


class Ends(Case):
    def test_what_one_rank_cannot_read_ends_all(self):
        output = self.ends(start("--plan", ROOM / "nowhere.json", out=fresh()))
        self.assertIn("rank 0: ", output)
        self.assertIn(f"rank {RANKS - 1}: another rank has failed: ", output)
        self.assertIn("nowhere.json", output)

    def test_a_plan_for_other_ranks(self):
        plan = on_threads(ranks=RANKS // 2, steps=0) / "plan.json"
        output = self.ends(start("--plan", plan, out=fresh()))
        self.assertRegex(output, f"the plan is for {RANKS // 2} [^\n]*ranks[^\n]*, not for {RANKS}")

    def test_arguments(self):
        for wrong in (("--ranks", 2), ("--timeout", 0)):
            with self.subTest(wrong):
                self.assertIn(wrong[0], self.ends(start(*wrong, out=fresh())))

    def test_ranks_that_are_not_the_same(self):
        """All ranks report what differs and on which rank, before anything is written."""
        images = [write_images(fresh(), idx_bytes(seed=seed)) for seed in (1, 2)]
        digits = "[0-9a-f]{16}"
        for name, wanted, child in (
                ("build",
                 rf"build: rank 3 has {digits} \([^\n]*\), rank 0 has {digits} \([^\n]*\); "
                 r"--seed: rank 3 has 7, rank 0 has 1\n",
                 start_with_another("--seed", 7, out=ROOM / "none", program=rebuilt())),
                ("images", rf"images: rank 3 has 256 \({digits}\), rank 0 has 256 \({digits}\)\n",
                 start_with_another(out=ROOM / "none", images=images))):
            with self.subTest(name):
                output = self.ends(child, 2)
                said = re.findall(r"pulse_train: rank (\d): pulse: the ranks differ: " + wanted, output)
                self.assertEqual(sorted(said), [str(rank) for rank in range(RANKS)], output)
                self.assertFalse((ROOM / "none").exists())

    def test_without_a_transport(self):
        """Processes that do not know each other would write the same files."""
        out = fresh()
        for more in ((), ("--transport", "threads")):
            child = subprocess.run([*LAUNCH, PROGRAM, *options(*more, out=out)], capture_output=True, text=True,
                                   timeout=PATIENCE)
            self.assertEqual(child.returncode, 2, child.stderr)
            self.assertRegex(child.stderr, rf"pulse_train: --transport: [^\n]* {RANKS} processes [^\n]*--transport mpi")
        self.assertFalse(out.exists())
        # MPI does not know torchrun's processes
        alone = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
        child = subprocess.run([PROGRAM, "--transport", "mpi", *options(out=out)], env=alone, capture_output=True,
                               text=True, timeout=PATIENCE)
        self.assertEqual(child.returncode, 2, child.stderr)
        self.assertIn("torchrun has started 2 processes", child.stderr)
        self.assertFalse(out.exists())

    def test_a_signal_that_mpirun_passes_on_ends_it_well(self):
        out = fresh()
        child = start("--checkpoint-every", 1, out=out, steps=1000000)
        self.first_checkpoint(child, out)
        child.send_signal(signal.SIGUSR1)
        self.assertIn("stopped after step", self.ends(child, 0))
        steps = len(loss(out))
        self.assertEqual(loss(out), loss(on_threads(steps=steps)))

    def test_a_signal_to_one_rank_ends_all_well(self):
        out = fresh()
        child = start("--checkpoint-every", 1, out=out, steps=1000000)
        self.first_checkpoint(child, out)
        os.kill(max(processes_of(child, PROGRAM)), signal.SIGINT)
        self.assertIn("stopped after step", self.ends(child, 0))
        self.assertTrue((out / "checkpoint.safetensors").exists())

    def test_a_silent_rank_ends_all(self):
        out = fresh()
        child = start("--checkpoint-every", 1, "--timeout", 12, out=out, steps=1000000)
        self.first_checkpoint(child, out)
        victim = max(processes_of(child, PROGRAM))
        os.kill(victim, signal.SIGSTOP)
        self.assertRegex(self.ends(child), rf"rank \d \(host [^,]*, process {victim}\) has given no sign of life for")


class Kills(Case):
    def test_killed_at_any_instant(self):
        """Every survivor ends by itself, in time, and names the killed rank; the last checkpoint resumes exactly.

        PULSE_TEST_KILLS: how many; PULSE_TEST_SEED: which.
        """
        seed = int(os.environ.get("PULSE_TEST_SEED", 1))
        draw = random.Random(seed)
        for kill in range(int(os.environ.get("PULSE_TEST_KILLS", 3))):
            with self.subTest(kill=kill, seed=seed):
                alone = OPEN_MPI and kill % 3 != 2
                out = fresh()
                child = start("--checkpoint-every", 1, "--timeout", TIMEOUT, out=out, steps=1000000, alone=alone)
                self.first_checkpoint(child, out)
                ranks = sorted(processes_of(child, PROGRAM))
                self.assertEqual(len(ranks), RANKS)
                time.sleep(draw.uniform(0, 0.3))
                victim = draw.choice(ranks)
                os.kill(victim, signal.SIGKILL)
                killed = time.monotonic()
                output = self.ends(child, any_code=alone)
                self.assertLess(time.monotonic() - killed, TIMEOUT)
                if alone:
                    said = (rf"pulse_train: rank (\d): another rank has failed: [^\n]*process {victim}\) "
                            "was killed or has exited")
                    self.assertEqual(len(set(re.findall(said, output))), RANKS - 1, output)
                    # A rank that MPI_Abort of another one ends first does not print its status.
                    self.assertLessEqual(set(re.findall(r"status (\d+)", output)), {"1", "137"}, output)
                    self.assertIn("status 1\n", output)
                self.go_on(out)
                shutil.rmtree(out)

    def go_on(self, out):
        """A resumed run ends like one that was not killed."""
        manifests = [json.loads(path.read_text()) for path in out.glob("checkpoints/step-*/manifest.json")]
        done = max(manifests, key=lambda manifest: manifest["sequence"])["state"]["step"]
        whole, rest = on_threads(steps=done + 2), on_threads("--resume", out / "checkpoints", steps=done + 2)
        self.assertEqual(loss(rest), loss(whole)[done:])
        ends = [(run / "checkpoint.safetensors").read_bytes() for run in (rest, whole)]
        self.assertEqual(*ends)
        shutil.rmtree(rest)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + (["Training"] if RANKS > 4 else []))
