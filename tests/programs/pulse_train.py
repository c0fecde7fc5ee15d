"""pulse_train as its users see it: what it writes, what it refuses, and the laws that hold for every pipeline.

Usage: pulse_train.py PROGRAM [unittest arguments]
"""

import atexit
import fcntl
import functools
import itertools
import json
import math
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import xml.etree.ElementTree as xml
import zlib

from drawn_plans import drawn
from files import (
    Checkpoint, Safetensors, idx_bytes, last_checkpoint, png_size, serial_plan, write_cluster, write_images)
from unet_layout import Layout

PROGRAM = sys.argv.pop(1)
SMALL = "ddpm_fmnist_small"
# for tests that do not depend on the model: a third of the time
TINY = {"model": "sd_tiny", "data": "synthetic"}
MICROBATCHES = ("--microbatch-size", "2", "--microbatches", "4")
ARTIFACTS = {"samples.png", "loss.svg", "timeline.svg", "trace.json", "checkpoints", "checkpoint.safetensors",
             "plan.json", "report.json", "metrics.jsonl", "tensorboard"}
OPTIONS = ("--data", "--from", "--config-of", "--init", "--tokenizer", "--export", "--export-of", "--export-type",
           "--export-shard", "--crop", "--flip", "--masked-loss", "--captions", "--caption-column",
           "--on-missing-caption", "--caption-dropout", "--shuffle-tags", "--on-bad-picture", "--prompt", "--prompts",
           "--class", "--negative", "--guidance", "--backend", "--precision", "--gpus", "--ranks", "--global-batch",
           "--time-engines", "--deterministic", "--pipeline", "--replicas", "--waves", "--microbatch-size",
           "--microbatches", "--steps", "--lr", "--optimizer", "--weights", "--seed", "--placement", "--routing",
           "--recomputation", "--split-backward", "--shard-optimizer", "--gradient-release", "--clip-by",
           "--memory-limit", "--schedule", "--plan-time", "--profile", "--cluster", "--profile-out", "--cluster-out",
           "--plan-only", "--checkpoint-every", "--log-every", "--keep", "--resume", "--sample", "--sample-every",
           "--out", "--plan", "--data-changed", "--validate", "--validate-every", "--validate-times", "--keep-best",
           "--prediction", "--flow-shift", "--flow-times", "--sigma-data", "--self-conditioning", "--control-from",
           "--control-data", "--control-picture", "--cascade-with", "--cascade-from", "--cascade-export",
           "--cascade-noise")
# Far longer than any run here takes: a program that hangs must not hang the tests.
PATIENCE = 120

ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train."))
atexit.register(shutil.rmtree, ROOM, True)
IMAGES = idx_bytes()
DATA = write_images(ROOM / "images", IMAGES)
serial = itertools.count()
# Most runs here are about training: they plan for these links instead of measuring any, and do not search.
CLUSTER = write_cluster(ROOM / "cluster.json")
QUICK = ("--cluster", CLUSTER, "--plan-time", 0)


def fresh():
    """A path that does not exist yet."""
    return ROOM / f"run{next(serial)}"


def measured_once(options, size, data, model):
    """Options with which a model's first run saves its measurements, and later runs read them."""
    others = {"--buckets", "--cascade-with", "--global-batch", "--masked-loss", "--plan", "--profile", "--profile-out",
              "--size"}
    encoded = data not in (DATA, "synthetic")
    if others & set(options) or model is None or size[:1] != ("--microbatch-size",) or encoded > ("--from" in options):
        return ()
    at = ROOM / f"profile_{model}_{size[1]}{'_encoded' * encoded}.json"
    if encoded and "--encode" in options and not at.exists(): # only a plan with frozen networks includes their costs
        return ()
    return ("--profile" if at.exists() else "--profile-out", at)


def simply_placed(options):
    """Fixes the placement unless the run is about that: planning for each one takes as long as a tiny step."""
    if {"--global-batch", "--placement", "--plan", "--routing", "--schedule"} & set(options):
        return ()
    return ("--placement", "folded", *(() if "--waves" in options else ("--waves", 1)))


def command(*options, out, size=MICROBATCHES, data=DATA, model=SMALL, sample=0, sample_steps=2):
    """A warm-up of 0 lets the weights move from the first step on, so that losses tell runs apart."""
    planning = () if "--plan" in options else (*QUICK, *simply_placed(options))
    return [PROGRAM, "--data", data, *(("--model", model) if model else ()), "--sample", sample,
            "--sample-steps", sample_steps, "--warmup", 0, "--out", out, *planning,
            *measured_once(options, size, data, model), *size, *options]


class Case(unittest.TestCase):
    longMessage = True

    def invoke(self, line, code):
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, code, f"{line}\n{done.stdout}{done.stderr}")
        return done

    def train(self, *options, out=None, **more):
        """The folder of a run that must succeed without output on stderr."""
        out = out or fresh()
        done = self.invoke(command(*options, out=out, **more), 0)
        self.assertEqual(done.stderr, "")
        return out

    def refuses(self, *options, names, out=None, raw=None, **more):
        """The run must end with code 2 and one line that contains all `names`, and leave nothing behind."""
        out = out or fresh()
        before = sorted(out.rglob("*")) if out.is_dir() else out.exists()
        done = self.invoke(raw or command(*options, out=out, **more), 2)
        self.assertRegex(done.stderr, r"\Apulse_train: [^\n]+\n\Z")
        self.assertLess(len(done.stderr), 400, done.stderr)
        for word in names:
            self.assertIn(word, done.stderr)
        self.assertEqual(sorted(out.rglob("*")) if out.is_dir() else out.exists(), before)

    def same_training(self, one, other, note=""):
        """Compares bit for bit: the losses as doubles, and every tensor of the checkpoints."""
        self.assertEqual(report(one)["loss"], report(other)["loss"], note)
        self.same_tensors(one, other, note)

    def same_run(self, one, other, drawn=("samples.png",)):
        """The same training, validation and drawings, with the planned bytes."""
        self.same_training(one, other)
        self.assertEqual(report(other)["validation"], report(one)["validation"])
        self.assertEqual(report(other)["planned_peak_bytes"], report(other)["measured_peak_bytes"])
        for name in drawn:
            self.assertEqual((other / name).read_bytes(), (one / name).read_bytes())

    def same_tensors(self, one, other, note=""):
        ours, theirs = (Safetensors(folder / "checkpoint.safetensors") for folder in (one, other))
        self.assertEqual(ours.shapes, theirs.shapes, note)
        different = [name for name in ours.tensors if ours.tensors[name] != theirs.tensors[name]]
        self.assertEqual(different, [], note)
        self.assertEqual(ours.metadata, theirs.metadata, note)


def read_json(path):
    return json.loads(path.read_text())


def report(folder):
    return read_json(folder / "report.json")


def step_of(folder):
    return int(Safetensors(folder / "checkpoint.safetensors").metadata["pulse.step"])


class Files(Case):
    """A run's files follow their formats, according to independent readers."""

    @classmethod
    def setUpClass(cls):
        cls.out = fresh()
        cls.steps = 7
        cls.output = subprocess.run([str(w) for w in command("--steps", cls.steps, "--placement", "folded", out=cls.out,
                                                                sample=5)], check=True,
                                    capture_output=True, text=True, timeout=PATIENCE).stdout

    def test_every_file_is_there_and_said(self):
        self.assertEqual({path.name for path in self.out.iterdir()}, ARTIFACTS)
        for name in ARTIFACTS:
            self.assertIn(f"  {self.out / name}\n", self.output)

    def test_pictures(self):
        width, height = png_size(self.out / "samples.png")
        self.assertGreaterEqual(width * height, 5 * 28 * 28)
        for name in ("loss.svg", "timeline.svg"):
            self.assertEqual(xml.parse(self.out / name).getroot().tag, "{http://www.w3.org/2000/svg}svg")

    def test_trace_has_every_pass_once(self):
        plan = read_json(self.out / "plan.json")
        seen = [(e["cat"], e["args"]["stage"], e["args"]["microbatch"], e["pid"])
                for e in read_json(self.out / "trace.json")["traceEvents"] if e["ph"] == "X" and e["cat"] in "FBW"]
        listed = [(p["op"], p["stage"], p["microbatch"], device)
                  for device, passes in enumerate(plan["schedule"]) for p in passes]
        self.assertEqual(sorted(seen), sorted(listed))

    def test_checkpoint(self):
        file = Safetensors(self.out / "checkpoint.safetensors")
        wanted = {prefix + name: shape for prefix in ("", "optimizer.m.", "optimizer.v.", "ema.")
                  for name, shape in Layout().weights.items()}
        self.assertEqual(file.shapes, wanted)
        (folder,) = (self.out / "checkpoints").iterdir()
        self.assertEqual(folder.name, f"step-{self.steps:08}")
        shards = Checkpoint(folder)
        self.assertEqual((shards.shapes, shards.tensors), (file.shapes, file.tensors))
        self.assertEqual(shards.manifest["state"]["step"], self.steps)
        self.assertEqual(shards.manifest["plan"], f"{zlib.crc32((self.out / 'plan.json').read_bytes()):08x}")
        self.assertEqual(file.metadata["pulse.step"], str(self.steps))
        self.assertEqual(file.metadata["pulse.position"], str(self.steps * 8))
        for name, content in file.tensors.items():
            self.assertTrue(all(map(math.isfinite, struct.unpack(f"<{len(content) // 4}f", content))), name)

    def check_fields(self, value, fields, where):
        self.assertEqual(set(value), set(fields), where)
        for name, kind in fields.items():
            held = value[name]
            if isinstance(kind, list):
                self.assertIsInstance(held, list, where)
                for one in held:
                    self.check_value(one, kind[0], f"{where}.{name}")
            else:
                self.check_value(held, kind, f"{where}.{name}")

    def check_value(self, held, kind, where):
        if isinstance(kind, dict):
            self.check_fields(held, kind, where)
        elif isinstance(kind, list):
            self.assertIsInstance(held, list, where)
            for one in held:
                self.check_value(one, kind[0], where)
        elif kind is float:
            number = isinstance(held, (int, float)) and not isinstance(held, bool)
            self.assertTrue(number and math.isfinite(held), where)
        else:
            self.assertIs(type(held), kind, where)

    def test_plan(self):
        plan = read_json(self.out / "plan.json")
        timed = {"op": str, "stage": int, "microbatch": int, "start_us": float, "end_us": float}
        self.check_fields(plan, {
            "format": str, "model": str, "placement": str, "pipeline_degree": int, "data_degree": int, "waves": int,
            "microbatches": int, "microbatch_size": int, "split_backward": bool, "skip_routing": str,
            "recomputation": str, "spare_sends": int,
            "stages": [{"index": int, "device": int, "first_layer": int, "last_layer": int}], "schedule": [[timed]],
            "predicted": {"step_us": float, "lower_bound_us": float, "bubble_ratio": float, "samples_per_s": float,
                          "peak_memory_bytes": [int], "boundary_bytes": int, "skip_bytes": int}}, "plan")
        self.assertEqual((plan["format"], plan["model"], plan["placement"]), ("pulse-plan/1", SMALL, "folded"))
        self.assertEqual((plan["pipeline_degree"], plan["microbatches"], plan["microbatch_size"]), (2, 4, 2))
        self.assertEqual(plan["stages"][-1]["last_layer"] + 1, len(Layout().layers))

    def test_report(self):
        made = report(self.out)
        self.check_fields(made, {
            "format": str, "ranks": int, "steps": int, "loss": [float], "samples_per_s": float, "step_us": float,
            "measured_step_us": float, "bubble_ratio": float,
            "bytes_per_step": {"boundary": int, "skip": int, "gradient": int},
            "sequential_relayed_bytes_per_step": int, "encode_seconds": float, "captions_cut": int,
            "planned_peak_bytes": [int], "measured_peak_bytes": [int]}, "report")
        self.assertEqual((made["format"], made["ranks"], made["steps"]), ("pulse-report/1", 2, self.steps))
        self.assertEqual(len(made["loss"]), self.steps)
        self.assertAlmostEqual(made["samples_per_s"], 8e6 / made["measured_step_us"],
                               delta=1e-6 * made["samples_per_s"])
        self.assertEqual(made["step_us"], read_json(self.out / "plan.json")["predicted"]["step_us"])
        self.assertTrue(0 <= made["bubble_ratio"] < 1)

    def test_no_samples_when_none_are_asked_for(self):
        self.assertEqual({path.name for path in self.train("--steps", 1).iterdir()}, ARTIFACTS - {"samples.png"})

    def test_samplers_draw_from_the_same_noise_and_weights(self):
        pictures = [self.train("--steps", 1, "--sampler", name, sample=2) / "samples.png" for name in ("ddim", "dpm++")]
        self.assertEqual(png_size(pictures[0]), png_size(pictures[1]))
        self.assertNotEqual(pictures[0].read_bytes(), pictures[1].read_bytes())

    def test_compressed_images_are_the_same_images(self):
        packed = write_images(ROOM / "packed", IMAGES, packed=True)
        # One epoch: every image contributes to the result.
        self.same_training(self.train("--steps", 32, data=packed), self.train("--steps", 32))


class Law(Case):
    """However it is cut, placed, ordered and cached, training gives the same bits; traffic depends on the cut."""

    PIPELINES = [
        "--ranks 2", "--ranks 3", "--ranks 4", "--ranks 8",
        "--ranks 2 --waves 2", "--ranks 3 --waves 2 --split-backward no", "--ranks 2 --split-backward no",
        "--ranks 2 --recomputation skips", "--ranks 4 --recomputation skips --split-backward no",
        "--ranks 3 --schedule gpipe", "--ranks 4 --schedule gpipe --waves 2 --recomputation skips",
        "--ranks 1 --schedule gpipe", "--ranks 1 --waves 4",
        "--ranks 2 --placement sequential", "--ranks 3 --placement sequential --routing direct",
        "--ranks 4 --placement sequential --routing relayed", "--ranks 4 --placement sequential --schedule 1f1b",
        "--ranks 2 --placement sequential --schedule 1f1b --split-backward no --recomputation skips",
        "--ranks 3 --placement sequential --schedule gpipe --routing direct --recomputation skips",
        "--ranks 13 --placement sequential",
        "--ranks 2 --recomputation stages", "--ranks 4 --waves 2 --split-backward no --recomputation stages",
        "--ranks 3 --placement sequential --recomputation stages", "--ranks 4 --recomputation selective",
    ]

    def test_every_pipeline_trains_alike(self):
        layout = Layout()
        alone = self.train("--steps", 2, "--ranks", 1)
        self.check_bytes(alone, layout, "alone")
        for options in self.PIPELINES:
            with self.subTest(options):
                decided = ["--slack", 0.02]
                decided += [] if "--placement" in options else ["--placement", "folded"]
                decided += [] if "--routing" in options else ["--routing", "relayed"]
                out = self.train("--steps", 2, *decided, *options.split())
                self.same_training(alone, out, options)
                self.check_bytes(out, layout, options)
                shutil.rmtree(out)

    def check_bytes(self, out, layout, options):
        plan, made = read_json(out / "plan.json"), report(out)
        moved = made["bytes_per_step"]
        self.assertEqual((moved["boundary"], moved["skip"]), layout.traffic(plan), options)
        self.assertEqual((moved["boundary"], moved["skip"]),
                         (plan["predicted"]["boundary_bytes"], plan["predicted"]["skip_bytes"]), options)
        self.assertEqual(moved["gradient"], 0)
        if plan["placement"] == "folded" or plan["pipeline_degree"] == 1:
            self.assertEqual(moved["skip"], 0, options)
        else:
            self.assertGreater(moved["skip"], 0, options)
        relayed = made["sequential_relayed_bytes_per_step"]
        if plan["pipeline_degree"] == 1:
            self.assertEqual(relayed, 0)
        elif plan["placement"] == "sequential" and plan["skip_routing"] == "relayed":
            self.assertEqual(moved["boundary"] + moved["skip"], relayed, options)
        else:
            self.assertLess(moved["boundary"] + moved["skip"], relayed, options)
        self.assertEqual(len(made["planned_peak_bytes"]), plan["pipeline_degree"])
        self.assertEqual(made["planned_peak_bytes"], plan["predicted"]["peak_memory_bytes"], options)
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"], options)

    def test_what_decides_training_does_change_it(self):
        size = ("--microbatch-size", "1", "--microbatches", "2")
        usual = report(self.train("--steps", 2, size=size, **TINY))["loss"]
        seen = [usual]
        for options in ("--seed 2", "--lr 0.01", "--prediction epsilon", "--prediction sample", "--noise linear",
                        "--noise scaled-linear", "--zero-snr yes", "--min-snr 5", "--noise-offset 0.1",
                        "--prediction flow", "--prediction flow --flow-shift 3", "--prediction flow --flow-shift size",
                        "--prediction flow --flow-times uniform", "--prediction edm", "--prediction edm --sigma-data 1",
                        "--lr-schedule linear", "--lr-schedule cosine", "--clip 0.001"):
            losses = report(self.train("--steps", 2, *options.split(), size=size, **TINY))["loss"]
            self.assertNotIn(losses, seen, options)
            seen.append(losses)

    def test_objectives_are_functions_of_the_step_and_the_sample(self):
        usual = {"--steps": 4, "--prediction": "sample", "--noise": "scaled-linear", "--zero-snr": "yes",
                 "--min-snr": 5, "--noise-offset": 0.1, "--lr-schedule": "cosine"}
        words = list(itertools.chain(*usual.items()))
        alone = self.train("--ranks", 1, "--checkpoint-every", 2, *words, **TINY)
        self.same_training(alone, self.train("--ranks", 4, *words, **TINY))
        half = alone / "checkpoints" / "step-00000002"
        resumed = self.train("--ranks", 3, "--resume", half, *words, **TINY)
        self.assertEqual(report(resumed)["loss"], report(alone)["loss"][2:])
        self.same_tensors(resumed, alone)
        for option, value, names in (("--min-snr", 1, ["min_snr 5,", "1"]),
                                     ("--noise-offset", 0, ["noise_offset 0.1,", "0"]),
                                     ("--zero-snr", "no", ["zero_snr yes,", "no"]),
                                     ("--prediction", "v", ["prediction sample,", "v"]),
                                     ("--steps", 5, ["learning_rate_schedule cosine over 4 steps,", "5"])):
            other = itertools.chain(*(usual | {option: value}).items())
            self.refuses("--resume", half, *other, names=names, **TINY)
        for words in ("--prediction flow --flow-shift 3", "--prediction edm"):
            with self.subTest(words):
                words = ("--steps", 4, "--noise-offset", 0.1, *words.split())
                alone = self.train("--ranks", 1, "--checkpoint-every", 2, *words, sample=2, **TINY)
                half = alone / "checkpoints" / "step-00000002"
                other = self.train("--ranks", 3, "--resume", half, *words, sample=2, **TINY)
                self.same_tensors(other, alone)
                self.assertEqual((other / "samples.png").read_bytes(), (alone / "samples.png").read_bytes())
        for change in (("--flow-shift", 2), ("--flow-times", "uniform")):
            self.refuses("--resume", self.flow(), "--steps", 2, "--prediction", "flow", *change,
                         names=["--resume", "noise flow of 1000"], **TINY)

    def flow(self):
        return self.train("--steps", 1, "--prediction", "flow", **TINY) / "checkpoints"


class Resume(Case):
    @classmethod
    def setUpClass(cls):
        cls.whole, cls.half = fresh(), fresh()
        for steps, out in ((6, cls.whole), (3, cls.half)):
            line = command("--steps", steps, "--seed", 7, out=out)
            subprocess.run([str(w) for w in line], check=True, capture_output=True, timeout=PATIENCE)
        cls.checkpoint = cls.half / "checkpoint.safetensors"

    def goes_on(self, *options, steps=6, seed=7, checkpoint=None, **more):
        return ("--steps", steps, "--seed", seed, "--resume", checkpoint or self.checkpoint, *options)

    def test_continues_bit_for_bit(self):
        for options in ("--ranks 2", "--ranks 1", "--ranks 4",
                        "--ranks 3 --placement sequential --recomputation skips"):
            with self.subTest(options):
                out = self.train(*self.goes_on(*options.split()))
                self.assertEqual(report(out)["loss"], report(self.whole)["loss"][3:])
                self.assertEqual(report(out)["steps"], 3)
                self.same_tensors(out, self.whole, options)

    def test_continues_in_its_own_folder(self):
        out = fresh()
        shutil.copytree(self.half, out)
        self.train(*self.goes_on(checkpoint=out / "checkpoint.safetensors"), out=out)
        self.same_tensors(out, self.whole)

    def test_continues_from_a_folder_of_any_number_of_ranks(self):
        out = fresh()
        self.train("--steps", 3, "--seed", 7, "--ranks", 3, "--checkpoint-every", 1, "--keep", 2, out=out)
        folder = out / "checkpoints"
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["step-00000002", "step-00000003"])
        for start, ranks in ((folder, 2), (folder / "step-00000002", 4)):
            with self.subTest(start.name):
                made = self.train(*self.goes_on("--ranks", ranks, checkpoint=start))
                self.same_tensors(made, self.whole)
        # Back to an earlier step and on in the same folder: the last written one counts, not the greatest step.
        self.train(*self.goes_on("--keep", 0, checkpoint=folder / "step-00000002", steps=3), out=out)
        self.assertEqual(last_checkpoint(folder).name, "step-00000003.2")

    def test_nothing_left_to_do(self):
        out = self.train(*self.goes_on(steps=2))
        self.assertEqual(report(out)["loss"], [])
        self.same_tensors(out, self.half)

    def test_another_run_is_refused(self):
        other = write_images(ROOM / "other", idx_bytes(count=64))
        self.refuses(*self.goes_on(seed=8), names=[str(self.checkpoint), "seed 7", "8"])
        self.refuses(*self.goes_on("--lr", "0.0010000001"), names=["learning_rate 0.001,", "0.0010000001"])
        self.refuses(*self.goes_on("--data-changed", "yes"), model="sd_tiny", data="synthetic",
                     names=["model ddpm_fmnist_small,", "sd_tiny"])
        self.refuses(*self.goes_on(), size=("--microbatch-size", "4", "--microbatches", "4"),
                     names=["microbatch_size 2, "])
        self.refuses(*self.goes_on(), data=other, names=["--data", "256", "64", "--data-changed"])
        self.refuses(*self.goes_on("--ema", "0.5"), names=["ema 0.999,", "0.5"])

    def test_a_loss_scale_is_kept(self):
        """A loss scale that half-precision training on a device left: ignored, but kept for a later device."""
        kept = {"loss_scale": "1024.5", "loss_scale_good_steps": "7", "loss_scale_skipped_steps": "1"}
        out = self.train(*self.goes_on(checkpoint=self.with_config(kept)))
        metadata = Safetensors(out / "checkpoint.safetensors").metadata
        self.assertEqual({name: metadata["pulse.config." + name] for name in kept}, kept)
        # The optimizer does not count a skipped step.
        self.assertEqual(report(out)["loss"][0], report(self.whole)["loss"][3])
        self.assertNotEqual(report(out)["loss"], report(self.whole)["loss"][3:])
        for name in kept:
            for value in ("", "much", "-1", "nan"):
                self.refuses(*self.goes_on(checkpoint=self.with_config(kept | {name: value})), names=["--resume", name])

    def with_config(self, words):
        """The checkpoint with additional entries in its metadata."""
        content = self.checkpoint.read_bytes()
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + size])
        header["__metadata__"] |= {"pulse.config." + name: value for name, value in words.items()}
        packed = json.dumps(header).encode()
        packed += b" " * (-len(packed) % 8)
        path = fresh()
        path.write_bytes(struct.pack("<Q", len(packed)) + packed + content[8 + size:])
        return path

    def test_a_damaged_checkpoint_is_refused(self):
        whole = self.checkpoint.read_bytes()
        damaged = fresh()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 0x10
        for content in (b"", whole[:5], whole[:10000], whole[:-1], whole + b"x", bytes(flipped), b"{}" + whole[2:],
                        IMAGES):
            damaged.write_bytes(content)
            self.refuses(*self.goes_on(checkpoint=damaged), names=[str(damaged)])
        self.refuses(*self.goes_on(checkpoint=ROOM / "nowhere"), names=[str(ROOM / "nowhere")])
        self.refuses(*self.goes_on(checkpoint=ROOM), names=[str(ROOM)])
        folder = fresh()
        shutil.copytree(self.half / "checkpoints", folder)
        for name in ("rank-0001.safetensors", "manifest.json"):
            file = folder / "step-00000003" / name
            content = file.read_bytes()
            flipped = bytearray(content)
            flipped[len(content) // 2] ^= 0x10
            for damage in (bytes(flipped), content[:-3]):
                file.write_bytes(damage)
                self.refuses(*self.goes_on(checkpoint=folder), names=[str(file)])
            file.write_bytes(content)
        (folder / "step-00000003" / "manifest.json").unlink()
        self.refuses(*self.goes_on(checkpoint=folder), names=[str(folder), "no complete checkpoint"])


class Replicas(Case):
    """Replicated pipelines compute the step of one replica order, however they are cut and whoever keeps the state."""

    HALF = ("--microbatch-size", "2", "--microbatches", "2")
    PARAMETERS = sum(math.prod(shape) for shape in Layout().weights.values())

    @classmethod
    def setUpClass(cls):
        cls.whole = fresh()
        line = command("--steps", 4, "--ranks", 2, "--replicas", 2, out=cls.whole, size=cls.HALF)
        subprocess.run([str(w) for w in line], check=True, capture_output=True, timeout=PATIENCE)

    def replicate(self, *options, **more):
        return self.train("--steps", 4, "--replicas", 2, *options, size=self.HALF, **more)

    def check_report(self, out, replicas, sharded=False):
        plan, made = read_json(out / "plan.json"), report(out)
        ranks = replicas * plan["pipeline_degree"]
        self.assertEqual((plan["data_degree"], made["ranks"]), (replicas, ranks))
        moved = made["bytes_per_step"]
        # Every gradient goes to the replica that sums it over all others, and the sum, or the new weight, comes back.
        self.assertEqual(moved["gradient"], 2 * (replicas - 1) * 4 * self.PARAMETERS)
        self.assertEqual(moved["boundary"], replicas * plan["predicted"]["boundary_bytes"])
        self.assertEqual(moved["skip"], replicas * plan["predicted"]["skip_bytes"])
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        predicted = plan["predicted"]["peak_memory_bytes"]
        by_replica = [made["planned_peak_bytes"][first:first + len(predicted)]
                      for first in range(0, ranks, len(predicted))]
        if sharded:
            # Shares of a layer differ by at most one element; the last replica has the largest.
            self.assertEqual(by_replica[-1], predicted)
            for planned in by_replica:
                for mine, most in zip(planned, predicted):
                    self.assertTrue(most - 3 * 4 * (len(Layout().layers) + 1) <= mine <= most)
        else:
            self.assertEqual(by_replica, [predicted] * replicas)

    def test_cut_and_state_change_nothing(self):
        self.check_report(self.whole, 2)
        for options in ("--ranks 4", "--ranks 2 --shard-optimizer", "--ranks 6 --waves 2 --shard-optimizer",
                        "--ranks 4 --placement sequential --split-backward no"):
            with self.subTest(options):
                out = self.replicate(*options.split())
                self.same_training(self.whole, out, options)
                self.check_report(out, 2, "--shard" in options)

    def test_moments_in_8_bits(self):
        # two updates: after a single one, 8 bits change nothing
        small = ("--steps", 3, "--replicas", 2, "--optimizer", "adamw8", "--ema", 0)
        one = self.train(*small, "--ranks", 2, size=self.HALF)
        for options in (("--ranks", 4), ("--ranks", 6, "--waves", 2, "--shard-optimizer")):
            with self.subTest(options):
                out = self.train(*small, *options, size=self.HALF)
                self.same_training(one, out, options)
                made = report(out)
                self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        self.assertNotEqual(report(one)["loss"], report(self.whole)["loss"][:3])
        self.assertLess(max(report(one)["measured_peak_bytes"]), max(report(self.whole)["measured_peak_bytes"]))

    def test_factored_moments(self):
        small = ("--optimizer", "adafactor", "--ema", 0)
        one = self.replicate("--ranks", 2, *small)
        names = Safetensors(one / "checkpoint.safetensors").tensors
        self.assertTrue(any(name.startswith("optimizer.columns.") for name in names))
        self.assertFalse(any(name.startswith("optimizer.m.") for name in names))
        for options in (("--ranks", 4), ("--ranks", 6, "--waves", 2)):
            with self.subTest(options):
                out = self.replicate(*small, *options)
                self.same_training(one, out, options)
                self.check_report(out, 2)
        self.assertNotEqual(report(one)["loss"], report(self.whole)["loss"])
        self.assertLess(max(report(one)["measured_peak_bytes"]), max(report(self.whole)["measured_peak_bytes"]))
        half = self.train("--steps", 2, "--ranks", 2, "--replicas", 2, *small, size=self.HALF)
        rest = self.replicate("--ranks", 4, *small, "--resume", half / "checkpoints")
        self.same_tensors(one, rest)
        # From AdamW's moments and back: the loss stays near that of a run that continues with AdamW.
        whole = self.train("--steps", 7, "--ranks", 2, "--replicas", 2, "--resume", self.whole / "checkpoints",
                           size=self.HALF)
        wanted = report(whole)["loss"]
        begun, found = self.whole, []
        for steps, options, parts in ((6, small[:2], {"v", "rows", "columns"}), (7, (), {"m", "v"})):
            begun = self.train("--steps", steps, "--ranks", 2, "--replicas", 2, *options,
                               "--resume", begun / "checkpoints", size=self.HALF)
            found += report(begun)["loss"]
            kept = Safetensors(begun / "checkpoint.safetensors").tensors
            self.assertEqual({name.split(".")[1] for name in kept if name.startswith("optimizer.")}, parts)
        self.assertEqual(found[0], wanted[0])
        for loss, near in zip(found, wanted, strict=True):
            self.assertAlmostEqual(loss, near, delta=0.1 * near)
        self.refuses("--ranks", 4, "--replicas", 2, "--optimizer", "adafactor", "--shard-optimizer",
                     names=["--shard-optimizer", "adafactor"])

    def test_three_and_four_replicas(self):
        size = ("--microbatch-size", "1", "--microbatches", "1")
        for replicas in (3, 4):
            with self.subTest(replicas=replicas):
                one = self.train("--steps", 2, "--ranks", replicas, "--replicas", replicas, size=size)
                other = self.train("--steps", 2, "--ranks", 2 * replicas, "--replicas", replicas, "--shard-optimizer",
                                   size=size)
                self.same_training(one, other)
                self.check_report(one, replicas)
                self.check_report(other, replicas, sharded=True)

    def test_replicas_share_out_the_samples_of_one_step(self):
        alone = report(self.train("--steps", 4, "--ranks", 1))["loss"]
        spread = report(self.whole)["loss"]
        self.assertEqual(alone[0], spread[0])
        for one, other in zip(alone, spread):
            self.assertAlmostEqual(one, other, delta=1e-3 * one)

    def test_continues_bit_for_bit(self):
        half = self.train("--steps", 2, "--ranks", 4, "--replicas", 2, "--shard-optimizer", size=self.HALF)
        checkpoint = half / "checkpoint.safetensors"
        for options in ("--ranks 2", "--ranks 6 --shard-optimizer"):
            with self.subTest(options):
                out = self.replicate("--resume", checkpoint, *options.split())
                self.same_tensors(out, self.whole, options)
                self.assertEqual(report(out)["loss"], report(self.whole)["loss"][2:])
        self.refuses("--steps", 4, "--ranks", 2, "--replicas", 1, "--resume", checkpoint, size=self.HALF,
                     names=["replicas 2, ", "1"])
        self.refuses("--steps", 4, "--ranks", 2, "--global-batch", 16, "--resume", checkpoint, size=(),
                     names=["--global-batch", "--resume", "has 8 samples", "16"])
        # Options that are not given stay as they were.
        out = self.train("--steps", 4, "--ranks", 4, "--resume", checkpoint, size=())
        self.same_tensors(out, self.whole)
        self.assertEqual(read_json(out / "plan.json")["data_degree"], 2)

    def test_gradients_that_are_released_change_no_bit(self):
        size = ("--microbatch-size", "1", "--microbatches", "1")
        words = ("--steps", 3, "--replicas", 2, "--clip-by", "last")
        keeping = self.train(*words, "--ranks", 2, size=size, **TINY)
        released = (*words, "--gradient-release", "yes")
        outs = [self.train(*released, "--ranks", 4, *more, "--split-backward", "no", size=size, **TINY)
                for more in ((), ("--shard-optimizer",))]
        outs.append(self.train("--steps", 3, "--clip-by", "last", "--plan", outs[0] / "plan.json", size=(), **TINY))
        for out in outs:
            self.same_training(keeping, out)
            self.assertTrue(read_json(out / "plan.json")["gradient_release"])
            self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        half = self.train("--steps", 2, *released[2:], "--ranks", 4, size=size, **TINY)
        whole = self.train("--steps", 3, *words[2:], "--ranks", 2, "--resume", half / "checkpoints", size=size, **TINY)
        self.same_tensors(whole, keeping)
        self.refuses("--ranks", 2, "--gradient-release", "yes", names=["--gradient-release", "--clip 0", "--clip-by"],
                     **TINY)
        self.refuses("--plan", outs[0] / "plan.json", size=(), names=["plan.json: gradient_release", "--clip 0"],
                     **TINY)

    def test_a_plan_says_how_many(self):
        again = self.train("--steps", 4, "--plan", self.whole / "plan.json", size=())
        self.same_training(self.whole, again)
        self.refuses("--replicas", 2, "--plan", self.whole / "plan.json", size=(), names=["--replicas"])

    def test_sums_are_in_the_trace_beside_later_passes(self):
        out = self.replicate("--ranks", 4, "--placement", "folded")
        events = [e for e in read_json(out / "trace.json")["traceEvents"] if e["ph"] == "X"]
        sums = [e for e in events if e["cat"] == "A"]
        self.assertEqual(len(sums), 2 * len(read_json(out / "plan.json")["stages"]))
        for rank in range(4):
            last = max(e["ts"] + e["dur"] for e in events if e["pid"] == rank and e["cat"] in "FBW")
            # The stage that finishes first has its gradients summed before the other one's passes end.
            self.assertLess(min(e["ts"] for e in sums if e["pid"] == rank), last)
            for e in sums:
                self.assertNotEqual(e["tid"], 0)

    def test_impossible_numbers_are_refused(self):
        self.refuses("--ranks", 4, "--replicas", 3, names=["--replicas", "3", "4"])
        self.refuses("--replicas", 0, names=["--replicas"])
        self.refuses("--shard-optimizer", names=["--shard-optimizer", "two replicas"])


class Planning(Case):
    """Options that are not given are tuned, from measurements of the ranks or from files, as in pulse_plan."""

    PLANNER = pathlib.Path(PROGRAM).with_name("pulse_plan")
    # The number of plans, and of pipelines that run, to draw; more on demand.
    DRAWN = int(os.environ.get("PULSE_TEST_PLANS", 6))

    @classmethod
    def setUpClass(cls):
        cls.measured = fresh()
        cls.measured.mkdir()
        cls.profile, cls.cluster = (cls.measured / name for name in ("profile.json", "cluster.json"))
        cls.said = cls.plan(cls.measured, "--ranks", 4, "--microbatch-size", 2, "--global-batch", 16, "--plan-time", 0,
                            "--profile-out", cls.profile, "--cluster-out", cls.cluster)

    @staticmethod
    def plan(out, *options):
        """Only plans; returns the output."""
        line = [PROGRAM, "--data", DATA, "--model", SMALL, "--plan-only", "--out", out, *options]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{line}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_plan_only_leaves_the_plan_and_what_was_measured(self):
        self.assertEqual({path.name for path in self.measured.iterdir()}, {"plan.json", "profile.json", "cluster.json"})
        self.assertRegex(self.said,
                         r"(?m)^plan: P\d D\d .*\nstep .*, lower bound .* \(gap \d+\.\d\d %\), bubble .*samples/s$")
        profile, cluster = read_json(self.profile), read_json(self.cluster)
        self.assertEqual((profile["format"], profile["model"], profile["microbatch_size"]),
                         ("pulse-profile/1", SMALL, 2))
        self.assertTrue(all(layer["forward_us"] > 0 for layer in profile["layers"]))
        self.assertEqual((cluster["format"], cluster["nodes"], cluster["devices_per_node"]), ("pulse-cluster/1", 1, 4))
        self.assertGreater(cluster["intra_node"]["bandwidth_gb_per_s"], 0)

    def test_the_planner_makes_the_same_plan(self):
        """Without a timed search, planning is a function of profile, cluster and request."""
        for ranks, options in ((4, ""), (4, "--placement folded --waves 2"), (2, "--pipeline 2 --recomputation stages"),
                               (4, "--microbatch-size 1"), (4, "--schedule list"),
                               (4, "--schedule gpipe --split-backward no"),
                               (4, "--schedule 1f1b --pipeline 2"), (4, "--pipeline 4 --memory-limit 20000000")):
            with self.subTest(ranks=ranks, options=options):
                ours, theirs = fresh(), fresh()
                known = ("--profile", self.profile, "--cluster", self.cluster, "--global-batch", 16, *options.split())
                self.plan(ours, "--ranks", ranks, "--plan-time", 0, *known)
                self.invoke([self.PLANNER, "--devices", ranks, "--time-limit", 0, "--out", theirs, *known], 0)
                if "--microbatch-size" in options:
                    # A profile of another size lacks the exact bytes for this one, which pulse_train knows.
                    made = [read_json(file) for file in (ours / "plan.json", theirs)]
                    for plan in made:
                        plan["predicted"].pop("peak_memory_bytes")
                    self.assertEqual(*made)
                else:
                    self.assertEqual((ours / "plan.json").read_text(), theirs.read_text())

    def test_the_planner_makes_the_plan_of_what_was_measured(self):
        out = fresh()
        self.invoke([self.PLANNER, "--profile", self.profile, "--cluster", self.cluster, "--devices", 4,
                     "--global-batch", 16, "--time-limit", 0, "--out", out], 0)
        self.assertEqual((self.measured / "plan.json").read_text(), out.read_text())

    def test_sizes_that_are_not_given_are_tuned(self):
        out = fresh()
        said = self.plan(out, "--ranks", 4, "--global-batch", 16)
        plan = read_json(out / "plan.json")
        self.assertEqual(plan["pipeline_degree"] * plan["data_degree"], 4)
        self.assertEqual(plan["microbatches"] * plan["microbatch_size"] * plan["data_degree"], 16)
        self.assertIn("measuring layers and links", said)
        # The default batch is 16 samples x 4 microbatches, however it is divided.
        self.plan(out, "--ranks", 2, "--profile", self.profile, "--cluster", self.cluster, "--plan-time", 0)
        plan = read_json(out / "plan.json")
        self.assertEqual(plan["microbatches"] * plan["microbatch_size"] * plan["data_degree"], 64)

    def test_drawn_pipelines_train_alike(self):
        """Each trains like one rank, or like one rank per replica, in the planned memory."""
        alone = {d: self.train("--steps", 2, "--ranks", d, "--replicas", d) for d in (1, 2)}
        draw = random.Random(13)
        for number in range(self.DRAWN):
            replicas = draw.choice([1, 1, 2])
            options = drawn(draw, draw.choice([1, 2, 3, 4]), replicas)
            with self.subTest(number=number, options=options):
                out = self.train("--steps", 2, "--profile", self.profile, *options)
                self.same_training(alone[replicas], out, options)
                made = report(out)
                self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
                shutil.rmtree(out)

    def test_no_drawn_plan_is_faster(self):
        def step_us(*options):
            out = fresh()
            self.plan(out, "--global-batch", 16, "--profile", self.profile, "--cluster", self.cluster, *options)
            return read_json(out / "plan.json")["predicted"]["step_us"]

        tuned = step_us("--ranks", 4, "--shard-optimizer", "tuned")
        draw = random.Random(31)
        for number in range(self.DRAWN):
            pipeline = draw.choice([1, 2, 4])
            options = drawn(draw, pipeline, 4 // pipeline)
            with self.subTest(number=number, options=options):
                self.assertLessEqual(tuned, step_us(*options) * (1 + 1e-9))


class PlanFile(Case):
    @classmethod
    def setUpClass(cls):
        cls.out = fresh()
        line = command("--steps", 2, "--ranks", 3, out=cls.out)
        subprocess.run([str(w) for w in line], check=True, capture_output=True, timeout=PATIENCE)
        cls.text = (cls.out / "plan.json").read_text()

    def save(self, plan):
        path = fresh()
        path.write_text(plan if isinstance(plan, str) else json.dumps(plan))
        return path

    def test_runs_again(self):
        """Nothing is measured, unless that is requested."""
        profile = fresh()
        for asked in ((), ("--profile-out", profile)):
            again = fresh()
            line = command("--steps", 2, "--plan", self.out / "plan.json", *asked, out=again, size=())
            self.assertEqual("measuring" in self.invoke(line, 0).stdout, asked != ())
            self.same_training(self.out, again)
            self.assertEqual((again / "plan.json").read_text(), self.text)
        measured = read_json(profile)
        self.assertEqual(measured["device"], "host")
        self.assertTrue(all(layer["forward_us"] > 0 for layer in measured["layers"]))

    def test_plans_of_another_hand(self):
        last = len(Layout().layers) - 1
        for placement, devices, waves, cuts in (("sequential", 3, 1, [4, 19]), ("sequential", 2, 1, [0]),
                                                ("interleaved", 2, 2, [3, 11, 20]),
                                                ("interleaved", 3, 2, [1, 2, 9, 22, 27]),
                                                ("folded", 1, 1, [17]), ("sequential", 1, 1, [])):
            plan = serial_plan(SMALL, placement, devices, waves, cuts + [last], 4, 2)
            for routing in ("direct", "relayed"):
                with self.subTest(plan=(placement, devices, cuts, routing)):
                    out = self.train("--steps", 2, "--plan", self.save({**plan, "skip_routing": routing}), size=())
                    self.same_training(self.out, out)
                    moved = report(out)["bytes_per_step"]
                    self.assertEqual((moved["boundary"], moved["skip"]), Layout().traffic(read_json(out / "plan.json")))

    def refuses_plan(self, plan, *names, **more):
        path = self.save(plan)
        self.refuses("--steps", 2, "--plan", path, size=(), names=[str(path), *names], **more)

    def test_a_wrong_plan_is_refused(self):
        def changed(change):
            plan = json.loads(self.text)
            change(plan)
            return plan

        self.refuses_plan(self.text, "model", SMALL, model="sd_tiny", data="synthetic")
        self.refuses_plan(self.text[:len(self.text) // 2], "JSON")
        self.refuses_plan("", "JSON")
        self.refuses_plan(changed(lambda p: p.update(format="pulse-plan/2")), "format")
        self.refuses_plan(changed(lambda p: p.pop("waves")), "waves")
        self.refuses_plan(changed(lambda p: p.update(colour="red")), "colour")
        self.refuses_plan(changed(lambda p: p.update(microbatches="4")), "microbatches")
        self.refuses_plan(changed(lambda p: p.update(data_degree=0)), "data_degree")
        self.refuses_plan(changed(lambda p: p["stages"][2].update(device=0)), "stages[2].device")
        self.refuses_plan(changed(lambda p: p["schedule"][1].pop()), "schedule")
        self.refuses_plan(changed(lambda p: p["schedule"][0][0].update(start_us=1e9)), "schedule[0][0]")
        last = len(Layout().layers) - 1
        for beyond in (last - 1, last + 1, 1 << 29):
            self.refuses_plan(changed(lambda p: p["stages"][-1].update(last_layer=beyond)), "layer")
        # A skip's ends on different devices, under a placement that promises otherwise.
        self.refuses_plan(serial_plan(SMALL, "folded", 2, 1, [1, 2, 3, last], 4, 2), "skips")
        nowhere = ROOM / "nowhere"
        self.refuses("--plan", nowhere, size=(), names=[str(nowhere)])
        self.refuses("--plan", ROOM, size=(), names=[str(ROOM)])

    def test_what_the_plan_decides_is_not_asked_twice(self):
        plan = self.out / "plan.json"
        for option, value in (("--ranks", 3), ("--waves", 1), ("--microbatch-size", 2), ("--microbatches", 4),
                              ("--placement", "folded"), ("--routing", "direct"), ("--recomputation", "none"),
                              ("--schedule", "list"), ("--split-backward", "yes"), ("--slack", 0.1),
                              ("--global-batch", 8), ("--pipeline", 3), ("--replicas", 1), ("--memory-limit", 1),
                              ("--plan-time", 1), ("--profile", plan), ("--cluster", CLUSTER), ("--cluster-out", plan)):
            self.refuses("--plan", plan, option, value, size=(), names=[option, "--plan"])


class Families(Case):
    """A model of each family that reads more of a sample than its time, on synthetic latents."""

    MODEL = {"model": "sd_tiny", "data": "synthetic"}
    # Weights that only read the conditions of a sample.
    READERS = {"sd_tiny": ("attn2.to_k.",), "sdxl_tiny": ("attn2.to_k.", "add_embedding.linear_1.weight"),
               "uvit_tiny": ("label_emb.weight",),
               "hunyuan_tiny": ("attn2.to_k.weight", "pooler.v_proj.weight", "text_embedder.linear_1.weight",
                                "style_embedder.weight", "text_embedding_padding", "extra_embedder.linear_1.weight")}

    def test_every_pipeline_trains_alike(self):
        for model, readers in self.READERS.items():
            how = {"model": model, "data": "synthetic"}
            alone = self.train("--steps", 3, "--ranks", 1, sample=3, **how)
            self.assertGreater(min(png_size(alone / "samples.png")), 8)
            for options in ("--ranks 2 --placement folded", "--ranks 4 --placement folded --recomputation skips",
                            "--ranks 4 --placement sequential --recomputation stages"):
                with self.subTest(f"{model} {options}"):
                    out = self.train("--steps", 3, *options.split(), **how)
                    self.same_training(alone, out)
                    self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
            spread = self.train("--steps", 1, "--ranks", 4, "--replicas", 2, size=Replicas.HALF, **how)
            self.assertEqual(report(spread)["loss"], report(alone)["loss"][:1], model)
            moments = Safetensors(alone / "checkpoint.safetensors").tensors
            for reader in readers:
                found = [content for name, content in moments.items()
                         if name.startswith("optimizer.m.") and reader in name]
                self.assertGreater(len(found), 0, reader)
                for content in found:
                    self.assertGreater(max(map(abs, struct.unpack(f"<{len(content) // 4}f", content))), 0, reader)

    def test_resumes(self):
        whole = self.train("--steps", 4, **self.MODEL)
        half = self.train("--steps", 2, **self.MODEL)
        rest = self.train("--steps", 4, "--resume", half / "checkpoint.safetensors", **self.MODEL)
        self.same_tensors(rest, whole)
        self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(whole)["loss"])

    def test_data_without_text_are_refused(self):
        for model in self.READERS:
            self.refuses(model=model, names=["--data", "--from", "synthetic"])

    def test_made_up_images_are_not_others(self):
        half = self.train("--steps", 1, data="synthetic")
        self.refuses("--steps", 2, "--resume", half / "checkpoint.safetensors",
                     names=["synthetic 512", "256", "--data-changed yes"])


class Errors(Case):
    def test_where(self):
        self.refuses("--backend", "cuda", "--gpus", "1023", names=["CUDA"])
        self.refuses("--precision", "bf16", names=["--precision", "host"])
        self.refuses("--gpus", "0", names=["--gpus", "--backend cuda"])
        self.refuses("--time-engines", "1", names=["--time-engines", "--backend cuda"])
        self.refuses("--deterministic", "no", names=["--deterministic", "--backend cuda"])
        self.refuses("--clip-by", "last", "--clip", "0", names=["--clip-by", "--clip 0"])
        self.refuses(model="sd21", data="synthetic", names=["sd21", "host", "-DPULSE_TRAIN_HOST=sd21"])
        self.refuses("--backend", "cuda", "--threads", "2", names=["--threads", "--backend host"])
        for waits in ((), ("--timeout", "300")):  # the usual one, for which the other processes wait
            self.refuses(raw=[PROGRAM, "--transport", "mpi", "--model", "sd_tiny", "--data", "synthetic", "--steps", 1,
                              "--out", fresh(), "--plan-time", "151", *waits], names=["--plan-time", "--timeout"])

    def test_images(self):
        nowhere = ROOM / "nowhere"
        self.refuses(data=nowhere, names=[str(nowhere)])
        empty = fresh()
        empty.mkdir()
        self.refuses(data=empty, names=[str(empty), "train-images-idx3-ubyte"])
        self.refuses(data=DATA / "train-images-idx3-ubyte", names=["train-images-idx3-ubyte"])
        wrong = {"cut": IMAGES[:-1], "headless": IMAGES[:9], "empty": b"", "long": IMAGES + b"x",
                 "labels": idx_bytes(magic=0x801), "none": idx_bytes(count=0), "27x28": idx_bytes(count=4, rows=27),
                 "32x32": idx_bytes(count=4, rows=32, columns=32), "text": b"these are no images at all"}
        for name, content in wrong.items():
            size = [name] if name[0].isdigit() else []
            self.refuses(data=write_images(fresh(), content), names=["images", *size])
        packed = write_images(fresh(), IMAGES, packed=True) / "train-images-idx3-ubyte.gz"
        packed.write_bytes(packed.read_bytes()[:-400])
        self.refuses(data=packed.parent, names=[str(packed)])

    def test_folder_for_results(self):
        file = DATA / "train-images-idx3-ubyte"
        for out in (file, file / "below", file / "far" / "below", pathlib.Path("/proc/pulse")):
            self.refuses(out=out, names=["--out", str(out)])
        # before anything is measured and planned
        self.assertEqual(self.invoke(command(out=file / "below"), 2).stdout, "")
        self.refuses(raw=command(out=""), names=["--out"])
        if os.geteuid() != 0:
            locked = fresh()
            locked.mkdir(mode=0o500)
            self.refuses(out=locked, names=[str(locked)])

    def test_nothing_new_beside_old_results(self):
        out = self.train("--steps", 1)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        self.refuses("--ranks", 20, "--placement", "folded", out=out, names=["20"])
        self.refuses("--resume", ROOM / "nowhere", out=out, names=["nowhere"])
        self.assertEqual({path: path.read_bytes() for path in out.rglob("*") if path.is_file()}, before)

    def test_epsilon_of_noise_alone(self):
        self.refuses("--zero-snr", "yes", "--prediction", "epsilon", names=["--zero-snr", "--prediction epsilon"])

    def test_flow_and_edm_have_no_betas(self):
        for objective in ("flow", "edm"):
            for option, value in (("--noise", "linear"), ("--zero-snr", "yes"), ("--min-snr", 5),
                                  ("--sampler", "dpm++")):
                self.refuses("--prediction", objective, option, value, names=[option, "flow and EDM"])
        for option, value in (("--flow-shift", 3), ("--flow-times", "uniform")):
            self.refuses("--prediction", "edm", option, value, names=[option, "--prediction flow"])
        self.refuses("--prediction", "flow", "--sigma-data", 1, names=["--sigma-data", "--prediction edm"])

    def test_impossible_pipelines(self):
        self.refuses("--ranks", 64, names=["64"])
        self.refuses("--ranks", 24, "--placement", "folded", names=["24 devices", "46 layers"])
        self.refuses("--ranks", 2, "--placement", "folded", "--waves", 16, names=["16 waves"])
        self.refuses("--ranks", 47, "--placement", "sequential", names=["47", "46 layers"])
        self.refuses("--ranks", 2, "--placement", "sequential", "--waves", 2, names=["waves"])
        self.refuses("--ranks", 2, "--placement", "folded", "--schedule", "1f1b", names=["1f1b"])
        self.refuses("--ranks", 2, "--global-batch", 12, names=["--microbatch-size", "12", "--global-batch"])
        self.refuses("--ranks", 2, "--pipeline", 2, "--replicas", 2, names=["--pipeline x --replicas is 4", "--ranks"])
        self.refuses("--ranks", 4, "--memory-limit", 1000, names=["memory"])

    def test_arguments(self):
        wrong = {"--ranks": ["0", "-1", "65", "two", "2.5", ""], "--waves": ["0", "17"],
                 "--microbatch-size": ["0", "1e3"], "--microbatches": ["0", "99999999999"],
                 "--steps": ["-1", "ten", "9223372036854775807", "9" * 30], "--lr": ["0", "-1", "nan", "inf"],
                 "--seed": ["-1", "1.5", "9" * 30], "--placement": ["zigzag", "1", ""],
                 "--split-backward": ["maybe", "2"], "--checkpoint-every": ["-1"], "--log-every": ["0"],
                 "--keep": ["-1"], "--sample": ["-1", "4097"], "--clip": ["nan", "-1"], "--ema": ["1.5", "nan"],
                 "--time-limit": ["-1", "nan"], "--schedule": ["best"], "--recomputation": ["gone"],
                 "--routing": ["post"], "--slack": ["nan"], "--threads": ["0"], "--warmup": ["-1"],
                 "--model": ["resnet"], "--noise": ["pink"], "--zero-snr": ["2"], "--min-snr": ["-1", "nan"],
                 "--noise-offset": ["-1", "inf"], "--cascade-noise": ["-1", "x"], "--cascade-with": ["none"],
                 "--lr-schedule": ["step"], "--optimizer": ["sgd"], "--weights": ["bf16"], "--sampler": ["euler"],
                 "--sigma-data": ["0", "nan"], "--flow-shift": ["0", "-1", "x", "2x", "inf"],
                 "--flow-times": ["normal"], "--validate-every": ["-1"], "--validate-times": ["0", "65"],
                 "--keep-best": ["2"], "--prediction": ["x"], "--sample-steps": ["0", "1001"], "--backend": ["tpu"],
                 "--precision": ["fp8"], "--gpus": ["x", "-1", "1024"], "--global-batch": ["0", "x"],
                 "--pipeline": ["0", "65"], "--replicas": ["0"], "--plan-time": ["-1", "nan"],
                 "--time-engines": ["-1", "nan", "x"], "--deterministic": ["maybe"], "--memory-limit": ["0", "1e9"],
                 "--shard-optimizer": ["maybe"], "--gradient-release": ["maybe"], "--clip-by": ["that"]}
        for option, values in wrong.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    self.refuses(raw=[PROGRAM, "--data", DATA, option, value], names=[option, f"'{value}'"])
        for weights in ("kahan", "stochastic"):
            self.refuses("--weights", weights, names=["--weights", "bf16"])
        for words in (["--nosuch"], ["stray"], ["--steps"], ["--steps", "1", "--steps", "2"]):
            self.refuses(raw=[PROGRAM, "--data", DATA, *words], names=[words[0]])
        for words, meant in (("--step 2", "--steps"), ("--caption-dropuot=0.1", "--caption-dropout")):
            self.refuses(raw=[PROGRAM, *words.split()], names=[re.split("[ =]", words)[0], f"did you mean {meant}?"])

    def test_a_run_that_diverges_says_so(self):
        done = self.invoke(command("--steps", 50, "--lr", "1e30", out=fresh()), 1)
        self.assertRegex(done.stderr, r"\Apulse_train: step \d+: the (loss|gradient) of [^\n]* is not finite[^\n]*; "
                                      r"the [^\n]*(output|gradient|conditioning)[^\n]* \(stage \d, microbatch \d\) "
                                      r"is the first that is not finite\n\Z")


class Interrupt(Case):
    @classmethod
    @functools.cache
    def whole(cls, steps):
        """An uninterrupted run of so many steps."""
        return cls().train("--steps", steps)

    def start(self, *options, out, **more):
        line = [str(word) for word in command(*options, out=out, **more)]
        child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        return child

    def wait_for(self, child, beginning):
        for line in child.stdout:
            if line.startswith(beginning):
                return
        self.fail(f"no '{beginning}': {child.stderr.read()}")

    def ends_well(self, child):
        asked = time.monotonic()
        output, errors = child.communicate(timeout=PATIENCE)
        self.assertEqual((child.returncode, errors), (0, ""))
        self.assertLess(time.monotonic() - asked, 10)
        return output

    def test_signals_end_a_run_well(self):
        for number, delay in ((signal.SIGINT, 0.4), (signal.SIGTERM, 0.0), (signal.SIGHUP, 0.1)):
            with self.subTest(number.name):
                out = fresh()
                child = self.start("--steps", 1000000, "--ranks", 3, out=out, sample=4096)
                self.wait_for(child, "step 1/")
                time.sleep(delay)
                child.send_signal(number)
                output = self.ends_well(child)
                self.assertIn(f"--resume {out / 'checkpoints'}", output)
                self.assertEqual({path.name for path in out.iterdir()}, ARTIFACTS - {"samples.png"})
                made, steps = report(out), step_of(out)
                self.assertEqual((made["steps"], len(made["loss"])), (steps, steps))
                # Reported even if no warm step has run.
                moved = made["bytes_per_step"]
                self.assertEqual((moved["boundary"], moved["skip"]), Layout().traffic(read_json(out / "plan.json")))
                whole = self.whole(steps + 2)
                rest = self.train("--steps", steps + 2, "--resume", out / "checkpoints")
                self.assertEqual(made["loss"] + report(rest)["loss"], report(whole)["loss"])
                self.same_tensors(rest, whole)

    def test_nohup(self):
        """A signal that the parent ignores stays ignored; the other one ends the run."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            child = self.start("--steps", 1000000, out=fresh())
        finally:
            signal.signal(signal.SIGHUP, before)
        self.wait_for(child, "step 1/")
        child.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(child.poll())
        child.send_signal(signal.SIGTERM)
        self.ends_well(child)

    def test_a_signal_ends_drawing(self):
        out = fresh()
        child = self.start("--steps", 2, out=out, sample=4096, sample_steps=1000)
        self.wait_for(child, "drawing")
        child.send_signal(signal.SIGINT)
        self.ends_well(child)
        self.assertEqual({path.name for path in out.iterdir()}, ARTIFACTS - {"samples.png"})
        self.assertEqual((report(out)["steps"], step_of(out)), (2, 2))

    def test_time_limit(self):
        out = fresh()
        self.ends_well(self.start("--steps", 1000000, "--time-limit", 0.3, out=out, sample=2))
        self.assertEqual({path.name for path in out.iterdir()}, ARTIFACTS)
        self.assertEqual(report(out)["steps"], step_of(out))

    def test_checkpoints_survive_a_kill(self):
        for attempt in range(6):
            out = fresh()
            every = 1 + attempt % 3
            child = self.start("--steps", 1000000, "--checkpoint-every", every, out=out)
            folder = out / "checkpoints"
            deadline = time.monotonic() + PATIENCE
            while not any(folder.glob("step-*/manifest.json")) and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.037 * attempt)
            child.kill()
            child.wait()
            # Complete according to an independent reader, and to pulse_train's.
            steps = Checkpoint(last_checkpoint(folder)).manifest["state"]["step"]
            self.assertEqual(steps % every, 0)
            self.assertEqual({path.name for path in out.iterdir()},
                             {folder.name, "plan.json", "metrics.jsonl", "tensorboard"})
            rest = self.train("--steps", steps + 1, "--resume", folder)
            whole = self.whole(steps + 1)
            self.assertEqual(report(rest)["loss"], report(whole)["loss"][-1:])
            self.same_tensors(rest, whole)


class Output(Case):
    def test_plain_lines_when_piped(self):
        done = self.invoke(command("--steps", 3, "--placement", "folded", out=fresh(), sample=1), 0)
        self.assertNotRegex(done.stdout, r"[\r\x1b\x08\0]")
        self.assertRegex(done.stdout, r"(?m)^step 3/3  loss \d+\.\d+  \d+\.\d samples/s  0:00 left$")
        for words in ("step time", "bubble", "skip 0.00", "sequential placement", "2 ranks, folded placement"):
            self.assertIn(words, done.stdout)

    def on_terminal(self, columns, *options):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        # these steps take longer than the interval between redraws
        steps = ("--microbatch-size", 1, "--microbatches", 4)
        line = [str(word) for word in command(*options, out=fresh(), size=steps)]
        child = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        output = b""
        try:
            while block := os.read(ours, 65536):
                output += block
        except OSError:
            pass  # how a terminal reports that its last writer is gone
        os.close(ours)
        self.assertEqual(child.wait(PATIENCE), 0, output)
        return output.decode()

    def test_a_bar_on_a_terminal(self):
        for columns in (100, 80, 60, 20):
            with self.subTest(columns=columns):
                output = self.on_terminal(columns, "--steps", 30)
                drawn = re.findall(r"\r([^\r\n]*)\x1b\[K", output)
                self.assertGreater(len(drawn), 2, output)
                self.assertLess(max(map(len, drawn)), columns)
                if columns >= 80:
                    for bar in drawn:
                        self.assertRegex(bar,
                                         r"^\[#*\.*\] step \d+/30  loss \d\.\d+  \d+\.\d samples/s  \d+:\d\d left$")
                    self.assertRegex(drawn[-1], r"^\[#+\] step 30/30 ")
                    self.assertEqual(sorted(drawn, key=lambda bar: bar.count("#")), drawn)
                # The summary begins on its own line.
                self.assertRegex(output, r"\x1b\[K\r\n\r\n2 ranks")

    def test_help(self):
        done = self.invoke([PROGRAM, "--help"], 0)
        self.assertEqual(done.stderr, "")
        described = dict(re.findall(r"(?ms)^  (--[a-z-]+) (.*?)(?=^  -|\n\n|\Z)", done.stdout))
        for option in OPTIONS:
            self.assertIn(option, described)
            self.assertRegex(described[option], r"\s[A-Z][a-z]+ [a-z]", option)
        self.assertIn("folded|interleaved|sequential", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
