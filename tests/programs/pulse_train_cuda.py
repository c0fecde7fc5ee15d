"""pulse_train on CUDA devices compared with pulse_train on the host: on a GPU, or with CUDA emulated.

Usage: pulse_train_cuda.py PROGRAM MODEL PRECISIONS [unittest arguments]        (PRECISIONS: bf16,fp32)

Exits with 77 without a CUDA device, or fails then if PULSE_REQUIRE_GPU is 1. For half precision resuming is tested
separately: it skips steps until its loss scale fits.

How far a device may be from the host: storing in a precision has a relative RMS rounding error u of 2^-9 in bf16, 2^-12
in fp16 and in the factors of tf32, and (generously) 2^-24 in fp32. Between a weight and its gradient there are up to
R = 12 roundings per layer, some six tensors forward and their gradients back, which add up like a random walk to
sqrt(R) u; float sums of up to K terms add sqrt(R K) 2^-24. With a factor of 2 for amplification by layers:
e = 2 (sqrt(R) u + sqrt(R K) 2^-24).

Half of R lies before the answer, whose elements are then off by a = e / sqrt(2) (sqrt(L) + 1), where targets have size
1 and L is the mean squared error. Over N elements L is off by three deviations of the mean of 2 sqrt(L) a, plus a^2.
AdamW turns an error d of a gradient g into an error of a weight of at most 2 lr d / g per step, as long as it moves
weights by at most lr per step. So the loss of step t is off by up to 2 lr t sum |d| more, where sum |d| is the
difference of the first gradients, which is checked against e.
"""

import atexit
import functools
import itertools
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import device_tests
import tiny_pipeline
from drawn_plans import scattered
from files import Safetensors, png_bytes, write_cluster, write_png

PROGRAM, MODEL, PRECISIONS = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
del sys.argv[1:4]
ROUNDING = {"bf16": 2.0 ** -9, "fp16": 2.0 ** -12, "tf32": 2.0 ** -12, "fp32": 2.0 ** -24}
FOLLOWING = [precision for precision in PRECISIONS if precision != "fp16"]
# A step takes a third of a second, so there are just enough to show that the second half continues the first.
EMULATED = "emulated" in pathlib.Path(PROGRAM).name
STEPS = 4 if EMULATED else 10
RATE = 1e-3
# Far longer than any run here takes.
PATIENCE = 250

ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_train_cuda."))
atexit.register(shutil.rmtree, ROOM, True)
CLUSTER = write_cluster(ROOM / "cluster.json")
serial = itertools.count()


def measured_once(options):
    """Options with which the first run of a backend and precision saves its measurements of layers, and later runs read
    them; one run measures the links and leaves them."""
    if "--plan" in options:
        return ()
    links = () if "--cluster-out" in options else ("--cluster", CLUSTER)
    if {"--from", "--profile"} & set(options):
        return links
    at = ROOM / f"profile_{precision_of(options)}.json"
    return (*links, "--profile" if at.exists() else "--profile-out", at)


@functools.cache
def profile_with_frozen(model, folder, data, where, *more):
    """Measurements of a model and of the frozen networks that encode its pictures."""
    at = ROOM / f"profile{next(serial)}.json"
    trained("--from", folder, "--ranks", 1, "--encode", "bubbles", "--plan-only", "--profile-out", at, *more, *where,
            data=data, model=model)
    return at


def command(*options, out, steps=STEPS, sample=0, data="synthetic", model=MODEL):
    usual = ("--microbatch-size", 1, "--microbatches", 2, "--placement", "folded", "--plan-time", 0)
    planning = () if "--plan" in options else usual
    planning += measured_once(options)
    return [str(word) for word in (
        PROGRAM, "--data", data, "--model", model, "--sample", sample, "--sample-steps", 2, "--warmup", 0, "--lr", RATE,
        "--clip", 0, *planning, "--steps", steps, "--out", out, *options)]


def precision_of(options):
    return options[options.index("--precision") + 1] if "--precision" in options else "host"


def on(precision):
    return ("--backend", "cuda", "--precision", precision)


def trained(*options, **more):
    """The folder of a run that must succeed without output on stderr."""
    out = ROOM / f"run{next(serial)}"
    done = subprocess.run(command(*options, out=out, **more), capture_output=True, text=True, timeout=PATIENCE)
    # pulse's notes about a fallback are no errors.
    said = [line for line in done.stderr.splitlines() if not line.startswith("pulse: ")]
    if done.returncode != 0 or said:
        raise AssertionError(f"{options}: {done.returncode}\n{done.stdout}{done.stderr}")
    return out


def report(folder):
    return json.loads((folder / "report.json").read_text())


def checkpoint(folder):
    return folder / "checkpoint.safetensors"


def gradients(folder):
    """Gradients of the first step: AdamW's first moment is a tenth of them after it."""
    tensors = Safetensors(checkpoint(folder)).tensors
    return [10 * value for name in sorted(tensors) if name.startswith("optimizer.m.")
            for value in struct.unpack(f"<{len(tensors[name]) // 4}f", tensors[name])]


class Bounds:
    """Error bounds from the model's layers, as a plan names them, and its checkpoint's shapes."""

    def __init__(self, folder):
        layers = json.loads((folder / "plan.json").read_text())["stages"][-1]["last_layer"] + 1
        shapes = Safetensors(checkpoint(folder)).shapes
        self.roundings = 12 * layers
        self.terms = max(math.prod(shape[1:]) for shape in shapes.values() if len(shape) > 1)
        self.elements = 2 * (28 * 28 if MODEL == "ddpm_fmnist_small" else 8 * 8 * 4)

    def gradient(self, precision):
        return 2 * (math.sqrt(self.roundings) * ROUNDING[precision]
                    + math.sqrt(self.roundings * self.terms) * ROUNDING["fp32"])

    def loss(self, precision, step, loss, difference):
        """`difference`: sum of the absolute differences of all first gradients."""
        answer = self.gradient(precision) / math.sqrt(2) * (math.sqrt(loss) + 1)
        return (6 * math.sqrt(loss) * answer / math.sqrt(self.elements) + answer * answer
                + 2 * RATE * step * difference)


class Cuda(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.host = trained("--ranks", 1)
        cls.bounds = Bounds(cls.host)
        first = trained("--ranks", 1, steps=1)
        (cls.usual,), cls.first = report(first)["loss"], gradients(first)
        cls.whole = {precision: trained("--ranks", 1, *on(precision)) for precision in PRECISIONS}
        cls.difference = {}

    def difference_of(self, precision):
        if precision not in self.difference:
            theirs = gradients(trained("--ranks", 1, *on(precision), steps=1))
            self.assertEqual(len(theirs), len(self.first))
            self.difference[precision] = [a - b for a, b in zip(self.first, theirs)]
        return self.difference[precision]

    def follows(self, losses, wanted, precision, first_step=0):
        self.assertEqual(len(losses), len(wanted))
        apart = sum(map(abs, self.difference_of(precision)))
        for step, (found, want) in enumerate(zip(losses, wanted), first_step):
            bound = self.bounds.loss(precision, step, want, apart)
            self.assertLess(abs(found - want), bound, f"{precision}, step {step}")

    def test_first_gradients_are_the_hosts(self):
        norm = math.hypot(*self.first)
        self.assertGreater(norm, 0)
        for precision in FOLLOWING:
            with self.subTest(precision):
                self.assertLess(math.hypot(*self.difference_of(precision)), self.bounds.gradient(precision) * norm)

    def test_loss_curves_are_the_hosts(self):
        wanted = report(self.host)["loss"]
        for precision in FOLLOWING:
            with self.subTest(precision):
                losses = report(self.whole[precision])["loss"]
                self.follows(losses, wanted, precision)
                # Not the result of another precision under this name.
                self.assertNotEqual(losses, wanted)
        self.assertEqual(len({tuple(report(folder)["loss"]) for folder in self.whole.values()}), len(PRECISIONS))

    def test_weights_and_averages_are_the_hosts(self):
        """Within what AdamW may move them: in t steps m / sqrt(v) is at most sqrt(t sum w^2), w the weights of the
        gradients in m, which is below 1.1 for t up to 10."""
        wanted = Safetensors(checkpoint(self.host)).tensors
        for precision in FOLLOWING:
            found = Safetensors(checkpoint(self.whole[precision])).tensors
            self.assertEqual(found.keys(), wanted.keys())
            for name in wanted:
                if not name.startswith("optimizer."):
                    apart = max(abs(a - b) for (a,), (b,) in zip(struct.iter_unpack("<f", found[name]),
                                                                 struct.iter_unpack("<f", wanted[name])))
                    self.assertLess(apart, 2 * 1.1 * RATE * STEPS, f"{precision}, {name}")

    def test_a_pipeline_that_is_cut_and_resumed_is_the_same_bits(self):
        for precision in {PRECISIONS[0], PRECISIONS[-1]} - set(FOLLOWING[1:]):
            links = ROOM / f"links_{precision}.json"
            half = trained("--ranks", 2, "--gpus", "0,0", "--cluster-out", links, *on(precision), steps=STEPS // 2)
            self.assertEqual(json.loads(links.read_text())["devices_per_node"], 2)
            rest = trained("--ranks", 1, "--resume", checkpoint(half), *on(precision))
            whole = self.whole[precision]
            self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(whole)["loss"])
            ours, theirs = Safetensors(checkpoint(rest)), Safetensors(checkpoint(whole))
            self.assertEqual(ours.tensors, theirs.tensors)
            self.assertEqual(ours.metadata, theirs.metadata)
            self.assertEqual("pulse.config.loss_scale" in ours.metadata, precision == "fp16")
            self.check_report(half)

    def test_validation_is_the_hosts_and_the_same_bits_on_any_ranks(self):
        options = ("--validate", 0.006, "--validate-times", 2, "--validate-every", 1)
        (host, *_) = report(trained("--ranks", 1, *options, steps=1))["validation"]
        for precision in PRECISIONS:
            with self.subTest(precision):
                # two steps, so that the first is not the last
                steps = 2 if precision == PRECISIONS[0] else 1
                one, two = (trained(*ranks, *options, *on(precision), steps=steps)
                            for ranks in (("--ranks", 1), ("--ranks", 2, "--gpus", "0,0")))
                found = report(one)["validation"]
                self.assertEqual([each["step"] for each in found], list(range(steps + 1)))
                self.assertEqual(report(two)["validation"], found)
                self.assertEqual(Safetensors(checkpoint(one)).tensors, Safetensors(checkpoint(two)).tensors)
                for time, want in host["at"].items():
                    if precision in FOLLOWING:
                        self.assertLess(abs(found[0]["at"][time] - want), self.bounds.loss(precision, 0, want, 0))

    def test_other_forms_of_the_optimizer(self):
        """Each form has the bits of one rank on any pipeline, continues from another, and takes the planned memory,
        which shrinks with what it keeps. In so few steps losses stay near those of master weights, up to the rounding
        of the weights."""
        if "bf16" not in PRECISIONS:
            self.skipTest("they are for bf16")
        precision = on("bf16")
        usual = report(self.whole["bf16"])
        taken = [usual["measured_peak_bytes"][0]]
        steps = 3 if EMULATED else 4  # two updates: after a single one, 8 bits change nothing
        for form in (("--optimizer", "adamw8"), ("--optimizer", "adamw8", "--weights", "kahan", "--ema", 0),
                     ("--optimizer", "adamw8", "--weights", "stochastic", "--ema", 0)):
            with self.subTest(form):
                one = trained("--ranks", 1, *form, *precision, steps=steps)
                half = trained("--ranks", 2, "--gpus", "0,0", *form, *precision, steps=steps // 2)
                rest = trained("--ranks", 2, "--gpus", "0,0", "--resume", checkpoint(half), *form, *precision,
                               steps=steps)
                self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(one)["loss"])
                self.assertEqual(Safetensors(checkpoint(rest)).tensors, Safetensors(checkpoint(one)).tensors)
                self.check_report(half)
                for loss, wanted in zip(report(one)["loss"], usual["loss"]):
                    self.assertAlmostEqual(loss, wanted, delta=0.02 * wanted)
                self.assertNotEqual(report(one)["loss"], usual["loss"][:steps])
                taken.append(report(one)["measured_peak_bytes"][0])
        self.assertEqual(sorted(taken, reverse=True), taken)
        self.assertEqual(len(set(taken)), 4)
        pair = ("--replicas", 2, "--optimizer", "adamw8", "--weights")
        for weights in ("kahan", "stochastic"):
            with self.subTest(weights):
                whole, shared = (trained(*pair, weights, "--ranks", ranks, "--gpus", "0,0", *more, *precision, steps=2)
                                 for ranks, more in ((2, ()), (4, ("--shard-optimizer",))))
                self.assertEqual(report(shared)["loss"], report(whole)["loss"])
                self.assertEqual(Safetensors(checkpoint(shared)).tensors, Safetensors(checkpoint(whole)).tensors)
                self.assertEqual(report(shared)["planned_peak_bytes"], report(shared)["measured_peak_bytes"])
        kahan = trained("--ranks", 1, "--weights", "kahan", *precision, steps=1)
        converted = trained("--ranks", 1, "--resume", checkpoint(kahan), "--weights", "stochastic", *precision, steps=2)
        self.assertEqual(len(report(converted)["loss"]), 1)

    def test_adafactor(self):
        """Each form of the weights has the bits of one rank on any pipeline, the planned memory, and the host's losses,
        also if it continues from AdamW's moments."""
        if "bf16" not in PRECISIONS:
            self.skipTest("they are for bf16")
        precision = on("bf16")
        adafactor = ("--optimizer", "adafactor")
        wanted = report(trained("--ranks", 1, *adafactor, steps=2))["loss"]
        taken = [report(self.whole["bf16"])["measured_peak_bytes"][0]]
        for form in ((), ("--weights", "kahan", "--ema", 0), ("--weights", "stochastic", "--ema", 0)):
            with self.subTest(form):
                form = (*adafactor, *form)
                one = trained("--ranks", 1, *form, *precision, steps=2)
                half = trained("--ranks", 2, "--gpus", "0,0", *form, *precision, steps=1)
                rest = trained("--ranks", 2, "--gpus", "0,0", "--resume", checkpoint(half), *form, *precision, steps=2)
                self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(one)["loss"])
                self.assertEqual(Safetensors(checkpoint(rest)).tensors, Safetensors(checkpoint(one)).tensors)
                self.check_report(half)
                self.follows(report(one)["loss"], wanted, "bf16")
                taken.append(report(one)["measured_peak_bytes"][0])
        self.assertEqual(sorted(set(taken), reverse=True), taken)
        going_on = (trained("--ranks", 1, "--resume", checkpoint(begun), *adafactor, *where, steps=STEPS + 2)
                    for begun, where in ((self.host, ()), (self.whole["bf16"], precision)))
        host, device = (report(out)["loss"] for out in going_on)
        self.follows(device, host, "bf16", STEPS)

    def test_engines_are_timed_and_a_run_goes_on_with_them(self):
        """On any number of ranks, without timing anything again; without a budget there is no file."""
        half, where = ROOM / "timed", on(PRECISIONS[0])
        for again in (False, True):
            kept = (half / "engines.json").read_text() if again else None
            done = subprocess.run(command("--ranks", 2, "--gpus", "0,0", "--time-engines", 60, *where, out=half,
                                          steps=1), capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            if again:
                self.assertEqual((half / "engines.json").read_text(), kept)
        engines = [one for group in json.loads((half / "engines.json").read_text())["groups"]
                   for one in group["engines"]]
        timed = [one for one in engines if one["seconds"] > 0]
        self.assertRegex(done.stdout, rf"\nengines  *{len(timed)} of {len(engines)} shapes were timed in \d+\.\d\d s; ")
        self.assertIn("/engines.json\n", done.stdout)
        self.assertGreater(len(timed), 10)
        for one in engines:
            self.assertEqual((one["uses"] % 2, one["uses"] > 0), (0, True))  # microbatches
            self.assertLessEqual(one["us"], one["first_us"])
        latest = max((half / "checkpoints").glob("step-*"))
        going_on = [trained("--ranks", ranks, "--gpus", "0,0", "--resume", at, *where, steps=2)
                    for ranks, at in ((1, f"{latest}/"), (2, checkpoint(half)))]
        for rest in going_on:
            self.assertEqual((rest / "engines.json").read_text(), (half / "engines.json").read_text())
        self.assertEqual(*(Safetensors(checkpoint(rest)).tensors for rest in going_on))
        self.assertFalse((self.whole[PRECISIONS[0]] / "engines.json").exists())
        # engines of another device are reported as not used, and a damaged file is refused
        again = command("--ranks", 1, "--resume", half / "checkpoints", *where, out=ROOM / "refused", steps=2)
        kept = (half / "engines.json").read_text()
        (half / "engines.json").write_text(kept.replace(" sm_", " sm_1"))
        done = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Apulse: ignoring engines from [^\n]*timed/engines\.json: [^\n]*\n\Z")
        (half / "engines.json").write_text("{")
        done = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Apulse_train: [^\n]*timed/engines\.json[^\n]*\n\Z")
        # a new run without them in that folder leaves none to a later run
        done = subprocess.run(command("--ranks", 1, *where, out=half, steps=1), capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse((half / "engines.json").exists())

    def check_report(self, half):
        """Bytes equal the plan's, and every pass has a time."""
        made, plan = report(half), json.loads((half / "plan.json").read_text())
        moved = made["bytes_per_step"]
        self.assertEqual((moved["boundary"], moved["skip"]), (plan["predicted"]["boundary_bytes"], 0))
        self.assertGreater(moved["boundary"], 0)
        self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        seen = [(e["cat"], e["args"]["stage"], e["args"]["microbatch"], e["pid"])
                for e in json.loads((half / "trace.json").read_text())["traceEvents"]
                if e["ph"] == "X" and e["cat"] in "FBW"]
        listed = [(p["op"], p["stage"], p["microbatch"], device)
                  for device, passes in enumerate(plan["schedule"]) for p in passes]
        self.assertEqual(sorted(seen), sorted(listed))

    def test_the_host_continues_a_device_and_a_device_the_host(self):
        precision = FOLLOWING[-1]
        wanted = report(self.host)["loss"]
        there = trained("--ranks", 1, "--resume", checkpoint(self.whole[precision]), steps=STEPS)
        self.assertEqual(report(there)["loss"], [])
        weights = Safetensors(checkpoint(self.whole[precision]))
        self.assertEqual(Safetensors(checkpoint(there)).tensors, weights.tensors)
        half = trained("--ranks", 1, steps=STEPS - 2)
        back = trained("--ranks", 1, "--resume", checkpoint(half), *on(precision), sample=1)
        self.follows(report(back)["loss"], wanted[STEPS - 2:], precision, STEPS - 2)
        self.assertTrue((back / "samples.png").exists())

    def test_objectives_are_the_hosts(self):
        for objective in ("sample --noise scaled-linear --zero-snr yes", "flow --flow-shift size", "edm"):
            with self.subTest(objective):
                options = ("--ranks", 1, "--noise-offset", 0.2, "--prediction", *objective.split())
                (wanted,) = report(trained(*options, steps=1))["loss"]
                (found,) = report(trained(*options, *on(FOLLOWING[-1]), steps=1))["loss"]
                bound = self.bounds.loss(FOLLOWING[-1], 0, wanted, 0)
                self.assertLess(abs(found - wanted), bound)
                self.assertGreater(abs(self.usual - wanted), bound)

    def test_a_device_that_is_not_there_is_refused(self):
        out = ROOM / "refused"
        done = subprocess.run(command("--gpus", "1023", *on(PRECISIONS[0]), out=out), capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Apulse_train: --gpus: there is no CUDA device 1023[^\n]*\n\Z")
        self.assertFalse(out.exists())


class Encoded(unittest.TestCase):
    """Captioned pictures, which frozen networks encode on the device, and pictures by prompt. The encoders' layers add
    their rounding errors to the backbone's."""

    OPTIONS = ("--flip", "yes", "--caption-dropout", 0.3)

    @classmethod
    def setUpClass(cls):
        if MODEL != "sd_tiny":
            raise unittest.SkipTest("one model with text is enough")
        cls.folder, cls.data = tiny_pipeline.write_captioned(ROOM, cls.run_quietly)
        cls.host = cls.learn("--ranks", 1)
        cls.bounds = Bounds(cls.host)
        cls.bounds.roundings += 12 * (9 + 4)

    @staticmethod
    def run_quietly(*options):
        done = subprocess.run([str(word) for word in (PROGRAM, "--model", MODEL, *options)], capture_output=True,
                              text=True, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{options}: {done.returncode}\n{done.stdout}{done.stderr}")

    @classmethod
    def profile(cls, where):
        return profile_with_frozen(MODEL, cls.folder, cls.data, where)

    @classmethod
    def learn(cls, *options, steps=1, sample=0):
        where = on(precision_of(options)) if "--precision" in options else ()
        known = () if "--plan" in options else ("--profile", cls.profile(where))
        return trained("--from", cls.folder, *cls.OPTIONS, *known, *options, data=cls.data, steps=steps, sample=sample)

    def test_the_first_step_is_the_hosts(self):
        first = gradients(self.host)
        (wanted,) = report(self.host)["loss"]
        for precision in FOLLOWING:
            with self.subTest(precision):
                out = self.learn("--ranks", 1, *on(precision))
                apart = math.hypot(*(a - b for a, b in zip(first, gradients(out), strict=True)))
                self.assertLess(apart, self.bounds.gradient(precision) * math.hypot(*first))
                (loss,) = report(out)["loss"]
                self.assertLess(abs(loss - wanted), self.bounds.loss(precision, 0, wanted, 0))
                self.assertNotEqual(loss, wanted)
        # it differs from that of synthetic samples
        (other,) = report(trained("--ranks", 1, "--from", self.folder, steps=1))["loss"]
        self.assertGreater(abs(other - wanted), self.bounds.loss(FOLLOWING[-1], 0, wanted, 0))

    def test_once_is_each_step_on_every_pipeline(self):
        precision, cache = PRECISIONS[0], ROOM / "cache"
        each = self.learn("--ranks", 1, "--encode", "each-step", *on(precision), steps=3)
        once = ("--encode", "once", "--cache", cache)
        pipeline = ("--ranks", 2, "--gpus", "0,0")
        for options in ((*pipeline, "--encode", "each-step"), (*pipeline, *once), ("--ranks", 1, *once)):
            with self.subTest(options):
                out = self.learn(*options, *on(precision), steps=3)
                self.assertEqual(report(out)["loss"], report(each)["loss"])
                self.assertEqual(Safetensors(checkpoint(out)).tensors, Safetensors(checkpoint(each)).tensors)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        self.assertGreater(report(each)["planned_peak_bytes"][0], report(out)["planned_peak_bytes"][0])
        self.assertGreater(report(each)["encode_seconds"], 0)

    def test_in_the_bubbles_are_the_bits_of_each_step(self):
        for precision in {PRECISIONS[0], PRECISIONS[-1]}:
            each = self.learn("--ranks", 1, "--encode", "each-step", *on(precision), steps=2)
            runs = [("--ranks", 2, "--gpus", "0,0")]
            if precision == PRECISIONS[0]:
                half = self.learn("--ranks", 1, "--encode", "bubbles", *on(precision))
                runs.append(("--ranks", 1, "--resume", checkpoint(half)))
                # any layers of the frozen networks on any rank
                plan = ROOM / "scattered.json"
                made = self.learn("--ranks", 2, "--gpus", "0,0", "--encode", "bubbles", *on(precision))
                parts = json.loads(self.profile(on(precision)).read_text())["frozen"]
                known = json.loads((made / "plan.json").read_text())
                plan.write_text(json.dumps(scattered(random.Random(1), known, parts)))
                runs.append(("--plan", plan, "--gpus", "0,0"))
            for options in runs:
                with self.subTest(precision, options=options):
                    out = self.learn(*options, "--encode", "bubbles", *on(precision), steps=2)
                    self.assertEqual(report(out)["loss"], report(each)["loss"][-len(report(out)["loss"]):])
                    self.assertEqual(Safetensors(checkpoint(out)).tensors, Safetensors(checkpoint(each)).tensors)
                    self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])

    def test_validation_reads_what_was_encoded_once(self):
        options = ("--validate", 0.25, "--validate-times", 2)
        each, ahead = (self.learn(*how, *options, *on(PRECISIONS[0]))
                       for how in (("--ranks", 1, "--encode", "each-step"),
                                   ("--ranks", 2, "--gpus", "0,0", "--encode", "bubbles")))
        self.assertEqual([one["step"] for one in report(each)["validation"]], [0, 1])
        self.assertEqual(report(ahead)["validation"], report(each)["validation"])
        self.assertEqual(report(ahead)["loss"], report(each)["loss"])
        self.assertEqual(report(ahead)["planned_peak_bytes"], report(ahead)["measured_peak_bytes"])

    def test_steps_of_three_sizes(self):
        """The first step equals the host's; all have the bits of one rank, on any pipeline, resumed, in the planned
        memory."""
        data = ROOM / "shapes"
        shutil.copytree(self.data, data)
        tiny_pipeline.add_shapes(data)
        # the first four steps of this seed include all three sizes
        options = ("--from", self.folder, *self.OPTIONS, "--buckets", "16:8:8-24", "--seed", 3)
        host = trained(*options, "--ranks", 1, data=data, steps=1)
        bounds = Bounds(host)
        bounds.roundings += 12 * (9 + 4)
        precision = PRECISIONS[0]
        alone = ("--plan", host / "plan.json")
        one = trained(*options, *alone, *on(precision), data=data, steps=4)
        self.assertEqual(len(report(one)["extents"]), 3)
        self.assertTrue(all(size["steps"] > 0 for size in report(one)["extents"]))
        wanted = report(host)["loss"][0]
        self.assertLess(abs(report(one)["loss"][0] - wanted), bounds.loss(precision, 0, wanted, 0))
        half = trained(*options, "--ranks", 2, "--gpus", "0,0", *on(precision), data=data, steps=2)
        # the plan encodes in the bubbles
        self.assertIn("frozen_tasks", json.loads((half / "plan.json").read_text())["extents"][0])
        pipeline = ("--plan", half / "plan.json", "--gpus", "0,0")
        for how in (pipeline, (*pipeline, "--encode", "once", "--cache", ROOM / f"shapes_{precision}"),
                    (*alone, "--encode", "each-step", "--resume", checkpoint(half))):
            out = trained(*options, *how, *on(precision), data=data, steps=4)
            self.assertEqual(report(out)["loss"], report(one)["loss"][-len(report(out)["loss"]):])
            self.assertEqual(Safetensors(checkpoint(out)).tensors, Safetensors(checkpoint(one)).tensors)
            self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        self.assertEqual(report(one)["planned_peak_bytes"], report(one)["measured_peak_bytes"])

    def test_pictures_by_prompt_are_the_hosts(self):
        drawn = []
        for where in ((), *map(on, FOLLOWING)):
            out = ROOM / f"drawn{next(serial)}"
            self.run_quietly("--from", self.folder, "--out", out, "--steps", 0, "--sample-steps", 2,
                             "--prompt", "a red cat", "--prompt", "photo", *where)
            drawn.append([png_bytes(out / "pictures" / f"000{i}.png") for i in (0, 1)])
        self.assertNotEqual(drawn[0][0], drawn[0][1])
        for precision, found in zip(FOLLOWING, drawn[1:]):
            for one, wanted in zip(found, drawn[0]):
                error = math.sqrt(sum((a - b) ** 2 for a, b in zip(one, wanted, strict=True)) / len(wanted))
                # rounding to whole numbers, plus the rounding errors of two steps and the decoder, for values of size 1
                self.assertLess(error, 0.5 + 255 / 2 * 3 * self.bounds.gradient(precision), precision)

    def test_training_ends_with_pictures(self):
        out = self.learn("--ranks", 1, "--prompt", "a cat", *on(PRECISIONS[0]), sample=1)
        self.assertEqual(json.loads((out / "pictures/metadata.jsonl").read_text())["text"], "a cat")


class Controlled(unittest.TestCase):
    """A ControlNet: locked weights and hints on a device."""

    @classmethod
    def setUpClass(cls):
        if MODEL != "sd_tiny" or "bf16" not in PRECISIONS:
            raise unittest.SkipTest("one run of these is enough")
        probe = [PROGRAM, "--model", "controlnet_tiny", "--data", "synthetic", "--gpus", "1023", *on("bf16")]
        if "does not train" in subprocess.run(probe, capture_output=True, text=True, timeout=PATIENCE).stderr:
            raise unittest.SkipTest("no such model in this build")
        cls.folder, cls.data = tiny_pipeline.write_captioned(cls.room(), cls.make_folder)
        cls.hints = ROOM / "hints"
        cls.hints.mkdir()
        source = random.Random(4)
        for picture in cls.data.glob("*.png"):
            write_png(cls.hints / picture.name, 64, source.randbytes(3 * 64 * 64))

    @staticmethod
    def room():
        made = ROOM / "controlled_data"
        made.mkdir()
        return made

    @staticmethod
    def make_folder(*options):
        subprocess.run([str(word) for word in (PROGRAM, "--model", "sd_tiny", *options)], check=True,
                       capture_output=True, timeout=PATIENCE)

    @classmethod
    def learn(cls, *options, steps=2, sample=0, where=on("bf16")):
        hints = ("--control-data", cls.hints)
        known = ("--profile", profile_with_frozen("controlnet_tiny", cls.folder, cls.data, where, *hints))
        return trained("--from", cls.folder, *hints, "--flip", "yes", *known, *options, *where, steps=steps,
                       sample=sample, data=cls.data, model="controlnet_tiny")

    def test_it_is_the_hosts_and_the_same_bits_on_pipelines_that_go_on_and_draw(self):
        host = self.learn("--ranks", 1, where=())
        alone = self.learn("--ranks", 1, "--encode", "each-step")
        for one, other in zip(report(host)["loss"], report(alone)["loss"], strict=True):
            self.assertLess(abs(one - other), 0.03 * one)
            self.assertNotEqual(one, other)
        pipeline = ("--ranks", 2, "--gpus", "0,0")
        half = self.learn(*pipeline, "--encode", "bubbles", steps=1)
        self.assertEqual(report(half)["loss"], report(alone)["loss"][:1])
        self.assertEqual(report(half)["planned_peak_bytes"], report(half)["measured_peak_bytes"])
        hint = next(iter(sorted(self.hints.iterdir())))
        rest = self.learn(*pipeline, "--encode", "once", "--cache", ROOM / "controlled_cache",
                          "--resume", half / "checkpoints", "--prompt", "a cat", "--control-picture", hint,
                          "--export", ROOM / "controlled_export", sample=1)
        self.assertEqual(report(rest)["loss"], report(alone)["loss"][1:])
        self.assertEqual(Safetensors(checkpoint(rest)).tensors, Safetensors(checkpoint(alone)).tensors)
        self.assertTrue((rest / "pictures/0000.png").exists())
        self.assertTrue((ROOM / "controlled_export/config.json").exists())

    def test_adafactor(self):
        form = ("--optimizer", "adafactor", "--weights", "stochastic", "--ema", 0)
        alone = self.learn("--ranks", 1, *form, steps=1)
        pipeline = self.learn("--ranks", 2, "--gpus", "0,0", *form, steps=1)
        self.assertEqual(report(pipeline)["loss"], report(alone)["loss"])
        self.assertEqual(Safetensors(checkpoint(pipeline)).tensors, Safetensors(checkpoint(alone)).tensors)
        self.assertEqual(report(pipeline)["planned_peak_bytes"], report(pipeline)["measured_peak_bytes"])


class Beside(unittest.TestCase):
    """Models that read a second image in additional channels, on a device."""

    @classmethod
    def setUpClass(cls):
        if MODEL != "sd_tiny" or "bf16" not in PRECISIONS:
            raise unittest.SkipTest("one run of these is enough")

    def learn(self, *options, where=on("bf16"), steps=2, sample=0):
        out = ROOM / f"run{next(serial)}"
        planning = () if "--plan" in options else ("--microbatch-size", 1, "--microbatches", 2, "--plan-time", 0)
        line = [PROGRAM, "--data", "synthetic", "--warmup", 0, "--lr", RATE, *planning, "--sample", sample,
                "--sample-steps", 2, "--steps", steps, "--out", out, *options, *where]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=PATIENCE)
        if "does not train" in done.stderr:
            self.skipTest("no such model in this build")
        self.assertEqual(done.returncode, 0, f"{options}\n{done.stdout}{done.stderr}")
        return out

    def test_they_are_the_hosts_and_the_same_bits_on_pipelines_that_go_on_and_draw(self):
        for model in ("sd_self_tiny --self-conditioning", "sd_pixels_tiny --cascade-with sd_pixels_up_tiny"):
            with self.subTest(model):
                options = ("--model", *model.split())
                host = self.learn(*options, "--ranks", 1, where=())
                # two backbones have no profile, and measuring them on a device takes longer than training
                two = ("--ranks", 2)
                if "--cascade-with" in model:
                    two = ("--plan", self.learn(*options, *two, "--plan-only", where=()) / "plan.json")
                alone = self.learn(*options, "--plan", host / "plan.json")
                for one, other in zip(report(host)["loss"], report(alone)["loss"], strict=True):
                    self.assertLess(abs(one - other), 0.03 * one)
                    self.assertNotEqual(one, other)
                half = self.learn(*options, *two, "--gpus", "0,0", steps=1)
                self.assertEqual(report(half)["loss"], report(alone)["loss"][:1])
                self.assertEqual(report(half)["planned_peak_bytes"], report(half)["measured_peak_bytes"])
                rest = self.learn(*options, "--plan", half / "plan.json", "--gpus", "0,0", "--resume",
                                  half / "checkpoints", sample=1)
                self.assertEqual(report(rest)["loss"], report(alone)["loss"][1:])
                self.assertEqual(Safetensors(checkpoint(rest)).tensors, Safetensors(checkpoint(alone)).tensors)
                self.assertTrue((rest / "samples.png").exists())


if __name__ == "__main__":
    device_tests.main(command("--gpus", "1023", *on(PRECISIONS[0]), out=ROOM / "probe"), PATIENCE)
