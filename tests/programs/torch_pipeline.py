"""examples/torch_pipeline on tiny backbones: plans on PyTorch's pipeline runtime compared with the whole backbone.

Usage: torch_pipeline.py FOLDER PACKAGES BACKBONES PULSE_PLAN [unittest arguments]
Ends with 77 if PyTorch or diffusers (maybe in PACKAGES) is missing. For a long campaign, PULSE_TEST_TORCH_PLANS=40 and
PULSE_TEST_TORCH_SEED=1.
"""

import atexit
import contextlib
import io
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings
import weakref

FOLDER, PACKAGES, BACKBONES, PLAN = (sys.argv.pop(1) for _ in range(4))
PLANS = int(os.environ.get("PULSE_TEST_TORCH_PLANS", "10"))
PATIENCE = 150 + 10 * PLANS
sys.path[1:1] = [FOLDER, PACKAGES]
warnings.filterwarnings("ignore")
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1",
                  TRANSFORMERS_VERBOSITY="error")
try:
    import diffusers
    import torch
    import torch.distributed as dist
    import torch.distributed.pipelining
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import drawn_plans
import pipeline
import plan as plans
import reports
import tiny_pipeline
import train
from data import MadeUp, Pictures
from files import write_png
from layers import Refused

diffusers.utils.logging.set_verbosity_error()
diffusers.utils.logging.disable_progress_bar()
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="torch_pipeline."))
atexit.register(lambda of=os.getpid(): of == os.getpid() and shutil.rmtree(ROOM, True))
subprocess.run([BACKBONES, str(ROOM)], check=True, timeout=PATIENCE)
MODELS = {"small_sd": 3, "small_sdxl": 4, "ddpm_tiny": 77, "small_hunyuan_v12": 77, "small_projected": 3}
EXACT = ("--device", "cpu", "--precision", "fp32")
forked = multiprocessing.get_context("fork")


def on_ranks(count, body, *arguments):
    """The results of body(*arguments) on each of `count` processes; an error of one is raised here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = forked.Queue()

    def rank(number):
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(port))
        torch.set_num_threads(1)
        try:
            answers.put((number, body(*arguments), None))
            dist.barrier()
        except BaseException as error:
            answers.put((number, None, f"rank {number}: {type(error).__name__}: {error}"))
        answers.close()
        answers.join_thread()
        os._exit(0)

    processes = [forked.Process(target=rank, args=(number,), daemon=True) for number in range(count)]
    for one in processes:
        one.start()
    found = {}
    try:
        for _ in processes:
            number, value, error = answers.get(timeout=PATIENCE)
            if error:
                raise AssertionError(error)
            found[number] = value
    finally:
        for one in processes:
            one.kill()
    return [found[number] for number in range(count)]


def planned(folder, *options, profile):
    """Whether pulse_plan finds a plan, which it then writes to the folder."""
    words = [PLAN, "--profile", profile, "--time-limit", "0", "--microbatch-size", "2", *options, "--torch", folder]
    return subprocess.run([str(word) for word in words], capture_output=True, timeout=PATIENCE).returncode == 0


def program(*words):
    """The output of train.py with these arguments, and its exit status."""
    sys.argv[1:], said = map(str, words), io.StringIO()
    with contextlib.redirect_stdout(said):
        status = train.main() or 0
    return said.getvalue(), status


def profiled(*words):
    """Runs profile_torch.py with the packages already loaded: loading them takes longer than the run."""
    dist.init_process_group("gloo")
    sys.argv[1:] = map(str, words)
    try:
        runpy.run_path(str(pathlib.Path(FOLDER).parent / "profile_torch.py"), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise AssertionError(f"profile_torch.py ends with {end.code}") from end


def folder_of(name):
    """A folder with that backbone and random weights."""
    folder = ROOM / "backbones" / name
    if not folder.exists():
        torch.manual_seed(3)
        config = json.loads((ROOM / name / "config.json").read_text())
        getattr(diffusers, config["_class_name"]).from_config(config).save_pretrained(folder)
    return folder


def prepared(name, folder, precision):
    """A plan and the options of its check, shared by four ranks."""
    sys.argv[1:] = map(str, ("--plan", folder, "--from", folder_of(name), "--tokens", MODELS[name], "--check",
                             "--device", "cpu", "--precision", precision))
    options = train.read_arguments()
    with unittest.mock.patch.dict(os.environ, WORLD_SIZE="4"):
        plan, = train.prepared(options)
    options.device = torch.device("cpu")
    return plan, options


def compared(jobs):
    """For each plan: whether the check failed, how many skips are left over, and the bytes sent."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    rows = []
    for name, precision, chosen, plan, options in jobs:
        made, said = train.Pipeline(plan, options), []
        failed = reports.check(made, options, MadeUp(options), train.loss_of, said.append)
        left = [stage.submod.skips for stage in made.stages]
        rows.append((failed, sum(len(one.tensors) + len(one.gradients) for one in left), reports.sent(made)))
        if dist.get_rank() == 0:
            print(f"{name}, {precision}, {plan.pipeline_degree} x {plan.data_degree}, "
                  f"{plan.microbatches} microbatches, {chosen}: {said[0]}", file=sys.stderr, flush=True)
    return rows


def relayed_bytes(plan):
    """Bytes of skips per step if each passes through all stages between, by hand."""
    fields, table = plan.fields, json.loads((plan.folder / "stages.json").read_text())
    place = {name: (stage["index"], stage["device"]) for stage in table["stages"] for name in stage["layers"]}
    devices = [stage["device"] for stage in table["stages"]]
    total = 0
    for edge in table["skips"]:
        (begin, on), (end, other) = place[edge["from"]], place[edge["to"]]
        if on != other:
            total += edge["bytes"] * sum(devices[s] != devices[s + 1] for s in range(begin, end))
    return 2 * total * fields["microbatches"]


class Gradients(unittest.TestCase):
    def test_drawn_plans_give_those_of_the_whole_backbone(self):
        draw, jobs = random.Random(int(os.environ.get("PULSE_TEST_TORCH_SEED", "27"))), []
        while len(jobs) < PLANS:
            name = list(MODELS)[len(jobs) % len(MODELS)]
            degree = (4, 2)[len(jobs) // 2 % 2]
            chosen = drawn_plans.drawn(draw, degree, 4 // degree)[4:]
            chosen = [word for word in chosen if word != "--shard-optimizer"]
            if len(jobs) % 3 and "folded" not in chosen:
                continue
            microbatches, folder = draw.randint(1, 6), ROOM / f"drawn{len(jobs)}"
            if planned(folder, "--devices", 4, "--pipeline", degree, "--data", 4 // degree, "--global-batch",
                       2 * microbatches * (4 // degree), *chosen, profile=ROOM / name / "2x4.json"):
                # In so small a Hunyuan-DiT, bf16 rounding errors reach a tenth of a gradient.
                precision = "bf16" if len(jobs) % 3 == 2 and "hunyuan" not in name else "fp32"
                jobs.append((name, precision, " ".join(map(str, chosen)), *prepared(name, folder, precision)))
        rows = on_ranks(4, compared, jobs)
        for (name, precision, chosen, plan, _), (failed, _, sent) in zip(jobs, rows[0]):
            with self.subTest(f"{name}, {precision}, {plan.microbatches} microbatches, {chosen}"):
                self.assertFalse(failed)
                sent = [count * (2 if precision == "bf16" else 1) / plan.data_degree for count in sent]
                self.assertEqual(sent[0], plan.predicted["boundary_bytes"])
                self.assertEqual(sent[1], relayed_bytes(plan))
                if plan.placement == "folded" or plan.skip_routing == "relayed":
                    self.assertEqual(sent[1], plan.predicted["skip_bytes"])
        self.assertEqual({row[1] for each in rows for row in each}, {0})

    def test_what_is_recomputed_is_not_kept(self):
        runs = []

        def run(x, y):
            between = torch.tanh(x) + torch.rand(4)
            runs.append(weakref.ref(between))
            return torch.sigmoid(between) * y, y.exp()

        torch.manual_seed(1)
        x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
        state = torch.get_rng_state()
        wanted = torch.autograd.grad(sum(run(x, y)).sum(), (x, y))
        torch.set_rng_state(state)
        outputs = pipeline.Recomputed(run, (x, y)).forward()
        self.assertIsNone(runs[-1]())
        after = torch.get_rng_state()
        # As in a split backward: one input after the other.
        found = [torch.autograd.grad(sum(outputs).sum(), one, retain_graph=True)[0] for one in (x, y)]
        self.assertEqual(len(runs), 3)
        self.assertTrue(torch.equal(after, torch.get_rng_state()))
        for one, other in zip(found, wanted):
            self.assertTrue(torch.equal(one, other))

    def test_skips_that_are_recomputed_do_not_wait(self):
        for kind, waits in (("none", True), ("stages", True), ("skips", False)):
            folder = ROOM / f"recomputed.{kind}"
            self.assertTrue(planned(folder, "--devices", 2, "--pipeline", 2, "--placement", "folded", "--waves", 1,
                                    "--global-batch", 4, "--recomputation", kind, profile=ROOM / "ddpm_tiny/2x4.json"))
            backbone = diffusers.UNet2DModel.from_pretrained(folder_of("ddpm_tiny")).train()
            sample = torch.randn(2, backbone.config.in_channels, *(backbone.config.sample_size,) * 2)
            first, *_, last = pipeline.split(backbone, plans.read_plan(folder), 0, sample)
            first(sample, torch.tensor([3, 5]))
            kept = list(first.skips.tensors.values())
            self.assertEqual([torch.is_tensor(one) for one in kept], [waits] * len(kept))
            leaves = last.waiting(0)
            self.assertEqual([leaf.shape[0] for leaf in leaves], [2] * len(kept))
            self.assertGreater(len(kept), 0)


class Captions(unittest.TestCase):
    def test_they_may_have_any_characters(self):
        """Those between lines or paragraphs too, whether in metadata.jsonl or beside the pictures."""
        options = types.SimpleNamespace(root=ROOM, device="cpu", sample_size=(16, 16), kind=diffusers.UNet2DModel,
                                        cache=False)
        captions = ["a cat", "une for\u00eat", "one\u2028two\u2029three\u0085four"]
        for mark in ("", "\ufeff"):
            for beside in (False, True):
                folder = ROOM / f"captions{beside}{len(mark)}"
                folder.mkdir()
                rows = []
                for index, text in enumerate(captions):
                    write_png(folder / f"{index}.png", 16, bytes(3 * 16 * 16))
                    rows.append(json.dumps({"file_name": f"{index}.png", "text": text}, ensure_ascii=False))
                    if beside:
                        (folder / f"{index}.txt").write_bytes((mark + text + "\r\n").encode())
                if not beside:
                    (folder / "metadata.jsonl").write_bytes((mark + "\r\n".join(rows) + "\r\n \r\n").encode())
                with self.subTest(beside=beside, mark=mark):
                    self.assertEqual([text for _, text in Pictures(folder, options).pairs], captions)


class Program(unittest.TestCase):
    """From a profile to a trained folder, as a user would do it."""

    @classmethod
    def setUpClass(cls):
        cls.source, cls.data = ROOM / "pipeline", ROOM / "pictures"
        tiny_pipeline.write_sdxl(cls.source)
        cls.data.mkdir()
        drawn = random.Random(14)
        for index, text in enumerate(("a red cat", "photo of a car", "", "cat")):
            write_png(cls.data / f"{index}.png", 16, drawn.randbytes(3 * 16 * 16))
            (cls.data / f"{index}.txt").write_text(text)
        cls.profile = ROOM / "profile.json"
        on_ranks(1, profiled, "--from", cls.source, "--tokens", "7", "--microbatch-size", "2", "--rounds", "3",
                 "--device", "cpu", "--out", cls.profile)
        cls.folded, cls.relayed = ROOM / "folded", ROOM / "relayed"
        relayed = "--placement", "sequential", "--schedule", "1f1b", "--routing", "relayed"
        for folder, options in ((cls.folded, ("--placement", "folded", "--waves", 1)), (cls.relayed, relayed)):
            assert planned(folder, "--devices", 2, "--pipeline", 2, "--global-batch", 8, *options, profile=cls.profile)
        cls.shorter = ROOM / "shorter"
        assert planned(cls.shorter, "--devices", 2, "--pipeline", 2, "--global-batch", 4, profile=cls.profile)

    def words(self, plan, *more):
        return "--plan", plan, "--from", self.source, "--tokens", 7, *EXACT, *more

    def test_the_dry_run_starts_nothing_and_names_what_devices_hold(self):
        said, status = program(*self.words(self.folded, "--dry-run"))
        self.assertEqual((status, dist.is_initialized()), (0, False))
        for text in ("device 0", "device 1", "stage 3", "conv_in to ", " to conv_out"):
            self.assertIn(text, said)
        for folder in (self.folded, self.relayed):
            told = [f"{plans.read_plan(folder).predicted[key]:,}" for key in ("boundary_bytes", "skip_bytes")]
            said, _ = program(*self.words(folder, "--dry-run"))
            self.assertIn(f"sends {told[0]} bytes for boundaries and {told[1]} for skips; the plan has {told[0]} and "
                          f"{told[1]}", said)

    def test_the_check_counts_the_bytes_of_the_plan(self):
        predicted = plans.read_plan(self.folded).predicted
        (said, status), _ = on_ranks(2, program, *self.words(self.folded, "--check"))
        self.assertEqual(status, 0, said)
        self.assertIn(f"sent {predicted['boundary_bytes']:,} bytes for boundaries and 0 for skips", said)
        (said, status), _ = on_ranks(2, program, *self.words(self.folded, "--check", "--precision", "bf16"))
        self.assertEqual(status, 0, said)
        self.assertIn(f"sent {predicted['boundary_bytes'] // 2:,} bytes for boundaries and 0 for skips", said)

    def test_the_check_fails_where_a_loss_is_no_number(self):
        def spoiled(*words):
            train.loss_of = lambda answered, target: answered.float().mean() * math.nan
            return program(*words)

        (said, status), _ = on_ranks(2, spoiled, *self.words(self.folded, "--check"))
        self.assertEqual(status, 1, said)

    def test_every_plan_trains_the_same_weights_on_pictures(self):
        trained = {}
        for plan in (self.folded, self.relayed):
            out = ROOM / f"{plan.name}.out"
            words = self.words(plan, "--data", self.data, "--cache", "--steps", 3, "--learning-rate", 1e-3, "--out",
                               out)
            said = "".join(each[0] for each in on_ranks(2, program, *words))
            self.assertRegex(said, r"step 1  loss \d+\.\d+\nstep 2  loss \d+\.\d+\nstep 3  loss \d+\.\d+\n$")
            trained[plan] = diffusers.StableDiffusionXLPipeline.from_pretrained(out).unet.state_dict()
        before = diffusers.UNet2DConditionModel.from_pretrained(self.source / "unet").state_dict()
        moved = 0
        for name, value in trained[self.folded].items():
            moved += not torch.equal(value, before[name])
            # AdamW's first steps are as long for gradients that are pure rounding errors
            near = torch.isclose(value, trained[self.relayed][name], rtol=1e-3, atol=1e-5).float().mean().item()
            self.assertGreater(near, 0.9, name)
        self.assertGreater(moved, 0.9 * len(before))

    def test_plans_are_compared(self):
        (said, _), _ = on_ranks(2, program, *self.words(self.folded, "--steps", 2, "--compare", self.relayed))
        rows = [line.split() for line in said.splitlines()]
        self.assertEqual([row[0] for row in rows], ["plan", "folded", "relayed"])
        for row, plan in zip(rows[1:], (self.folded, self.relayed)):
            predicted = plans.read_plan(plan).predicted
            self.assertEqual(row[-2:], [f"{predicted[kind] / 1e6:.3f}" for kind in ("boundary_bytes", "skip_bytes")])
            self.assertGreater(float(row[1]), 0)
            self.assertGreater(float(row[2]), 0)
        self.assertGreater(float(rows[2][-1]), 0)

    def test_each_refusal_names_the_culprit(self):
        def refused(*parts, words=(), **changes):
            folder = ROOM / "refused"
            shutil.rmtree(folder, True)
            shutil.copytree(self.folded, folder)
            for file, change in changes.items():
                path = folder / {"plan": "plan.json", "stages": "stages.json", "schedule": "schedule.csv"}[file]
                text = path.read_text()
                path.write_text(change(text) if callable(change) else json.dumps({**json.loads(text), **change}))
            with self.assertRaises(Refused) as caught:
                program(*self.words(folder, *(words or ("--dry-run",))))
            for part in parts:
                self.assertIn(part, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
            self.assertFalse(dist.is_initialized())

        refused("plan.json", "pulse-plan/1", plan={"format": "pulse-plan/2"})
        refused("plan.json", "previews", "self-conditioning", plan={"previews": 2})
        refused("plan.json", "further_chains", "cascades", plan={"further_chains": [2]})
        refused("plan.json", "frozen_tasks", "--frozen none", plan={"frozen_tasks": [[{}], []]})
        refused("stages.json", "must be those of plan.json", stages={"stages": [{"layers": ["conv_in"]}]})
        swapped = {"3F0": "3F1", "3F1": "3F0"}
        refused("schedule.csv", "3F1 3F0", schedule=lambda text: re.sub("3F[01]", lambda at: swapped[at[0]], text))
        refused("schedule.csv", "1 ranks", "2", schedule=lambda text: text.splitlines()[0])
        table = (self.folded / "stages.json").read_text()
        refused("down_blocks.0.resnets.0.second", "not a layer of a UNet2DConditionModel",
                stages=json.loads(table.replace('"down_blocks.0.resnets.0"', '"down_blocks.0.resnets.0.second"')))
        for key in ("microbatches", "data_degree", "stages"):
            refused(key, "missing in plan.json", plan=lambda text: text.replace(f'"{key}"', '"other"', 1))
        refused("recomputation", "all", plan={"recomputation": "all"})
        refused("recomputed_stages", "missing", plan={"recomputation": "selective"})
        refused("recomputed_stages", "each stage", plan={"recomputation": "selective", "recomputed_stages": [True]})
        refused("for 2 devices", "1 processes", words=("--check",))
        refused("--out", "no folder", words=("--steps", 1))
        refused("--out", "folder of --from", words=("--out", self.source))
        refused("4 samples", "8", words=("--compare", self.shorter))
        refused("7 x 7", "2", words=("--sample-size", 7, "--dry-run"))
        with self.assertRaises(Refused) as caught:
            program("--plan", self.folded, "--from", ROOM)
        self.assertIn("no config.json", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
