"""pulse_train on ranks that are processes: the same as on threads, bit for bit, and an end with a word whatever happens.

Usage: pulse_train_mpi.py PROGRAM RANKS MPIRUN [flags...]: the command line that starts RANKS processes, but for the program.
"""

import atexit
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from files import idx_bytes, write_images

PROGRAM, RANKS, LAUNCH = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
# Far above what any run here takes; a program that hangs must not hang the tests.
PATIENCE = 120
STEPS = 3
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train_mpi."))
atexit.register(shutil.rmtree, ROOM, True)
DATA = write_images(ROOM / "images", idx_bytes())
serial = itertools.count()


def fresh():
    """A path that does not exist yet."""
    return ROOM / f"run{next(serial)}"


def options(*more, out, steps=STEPS):
    """A warm-up of 0 lets the weights move from the first step on, so that losses tell runs apart."""
    size = () if "--plan" in more else ("--microbatch-size", 1)
    size += () if "--plan" in more or "--microbatches" in more else ("--microbatches", 4)
    return [str(word) for word in ("--model", "ddpm_fmnist_small", "--data", DATA, "--warmup", 0, "--steps", steps, "--sample", 0,
                                   "--out", out, *size, *more)]


def on_threads(*more, ranks=RANKS, out=None, steps=STEPS):
    out = out or fresh()
    subprocess.run([PROGRAM, *options("--ranks", ranks, *more, out=out, steps=steps)], check=True, capture_output=True, timeout=PATIENCE)
    return out


def start(*more, out, steps=STEPS):
    return subprocess.Popen([*LAUNCH, PROGRAM, "--transport", "mpi", *options(*more, out=out, steps=steps)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def loss(out):
    return json.loads((out / "report.json").read_text())["loss"]


def processes_of(launcher):
    """The process ids of the ranks that a launcher has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                if line[0] == PROGRAM.encode() and os.getsid(int(entry.name)) != os.getsid(0):
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    if parent == launcher.pid:
                        found.append(int(entry.name))
            except (OSError, IndexError):
                continue
    return found


class Case(unittest.TestCase):
    def ends(self, child, code=None):
        try:
            output = child.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            self.fail("it hangs: " + child.communicate()[0])
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
    def test_the_same_bits_as_on_threads(self):
        threads = on_threads()
        processes = self.trained()
        self.same(processes, threads)
        self.assertEqual(len(set(loss(threads))), STEPS)
        one, other = (json.loads((out / "report.json").read_text()) for out in (threads, processes))
        self.assertEqual(other["ranks"], RANKS)
        self.assertEqual(other["planned_peak_bytes"], other["measured_peak_bytes"])
        self.assertEqual(other["bytes_per_step"]["skip"], 0)
        self.assertEqual(set(path.name for path in threads.iterdir()), set(path.name for path in processes.iterdir()))

    def test_two_replicas(self):
        threads = on_threads("--replicas", 2, "--microbatches", 2)
        processes = self.trained("--replicas", 2, "--microbatches", 2)
        self.same(processes, threads)
        self.assertEqual(loss(threads)[0], loss(on_threads(steps=1))[0])
        made = json.loads((processes / "report.json").read_text())
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        self.assertEqual(made["ranks"], RANKS)
        self.assertGreater(made["bytes_per_step"]["gradient"], 0)
        # Some sum over the replicas begins before its rank's last pass has ended.
        events = [e for e in json.loads((processes / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
        last = {rank: max(e["ts"] + e["dur"] for e in events if e["pid"] == rank and e["cat"] in "FBW") for rank in range(RANKS)}
        self.assertTrue(any(e["cat"] == "A" and e["ts"] < last[e["pid"]] for e in events))

    def test_what_crosses_is_what_the_plan_says(self):
        plan = self.trained(steps=1) / "plan.json"
        out = self.trained("--plan", plan, steps=1)
        wanted = json.loads(plan.read_text())["predicted"]
        self.assertEqual(json.loads((out / "report.json").read_text())["bytes_per_step"]["boundary"], wanted["boundary_bytes"])

    def test_continues_what_the_other_began(self):
        whole = on_threads()
        for begun, go_on in ((on_threads(ranks=2, steps=1), self.trained), (self.trained(steps=1), on_threads)):
            rest = go_on("--resume", begun / "checkpoints")
            self.assertEqual(loss(rest), loss(whole)[1:])
            self.assertEqual((rest / "checkpoint.safetensors").read_bytes(), (whole / "checkpoint.safetensors").read_bytes())


class Ends(Case):
    def test_what_one_rank_cannot_read_ends_all(self):
        output = self.ends(start("--plan", ROOM / "nowhere.json", out=fresh()))
        self.assertIn("rank 0: ", output)
        self.assertIn(f"rank {RANKS - 1}: another rank has failed: ", output)
        self.assertIn("nowhere.json", output)

    def test_a_plan_for_other_ranks(self):
        plan = on_threads(ranks=RANKS // 2, steps=0) / "plan.json"
        output = self.ends(start("--plan", plan, out=fresh()))
        self.assertRegex(output, f"the plan is for {RANKS // 2} [^\n]*ranks[^\n]*, there are {RANKS}")

    def test_arguments(self):
        for wrong in (("--ranks", 2), ("--timeout", 0)):
            with self.subTest(wrong):
                self.assertIn(wrong[0], self.ends(start(*wrong, out=fresh())))

    def test_a_signal_that_mpirun_passes_on_ends_it_well(self):
        out = fresh()
        child = start("--checkpoint-every", 1, out=out, steps=1000000)
        self.first_checkpoint(child, out)
        child.send_signal(signal.SIGUSR1)
        self.assertIn("stopped after step", self.ends(child, 0))
        steps = len(loss(out))
        self.assertEqual(loss(out), loss(on_threads(steps=steps)))

    def test_a_killed_rank_ends_all(self):
        for victim in (0, -1):
            out = fresh()
            child = start("--checkpoint-every", 1, "--timeout", 10, out=out, steps=1000000)
            self.first_checkpoint(child, out)
            ranks = sorted(processes_of(child))
            self.assertEqual(len(ranks), RANKS)
            os.kill(ranks[victim], signal.SIGKILL)
            self.ends(child)
            rest = on_threads("--resume", out / "checkpoints", steps=json.loads(max(out.glob("checkpoints/step-*/manifest.json"),
                              key=lambda path: json.loads(path.read_text())["sequence"]).read_text())["state"]["step"] + 1)
            self.assertEqual(len(loss(rest)), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + (["Training"] if RANKS > 4 else []))
