"""examples/profile_torch.py on tiny backbones, compared with pulse's own figures for them, and pulse_plan on its
profiles.

Usage: profile_torch.py PROFILE_TORCH PACKAGES BACKBONES PULSE_PLAN [unittest arguments]
Ends with 77 if PyTorch or diffusers (maybe in PACKAGES) is missing.
"""

import atexit
import contextlib
import importlib.util
import inspect
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

SCRIPT, PACKAGES, BACKBONES, PLAN = (sys.argv.pop(1) for _ in range(4))
PATIENCE = 120
sys.path.insert(1, PACKAGES)
warnings.filterwarnings("ignore")
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
try:
    import diffusers
    import torch
    import torch.utils.checkpoint
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
spec = importlib.util.spec_from_file_location("profiler", SCRIPT)
profiler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(profiler)

ROOM = pathlib.Path(tempfile.mkdtemp(prefix="profile_torch."))
atexit.register(shutil.rmtree, ROOM, True)
subprocess.run([BACKBONES, str(ROOM)], check=True, timeout=PATIENCE)
MODELS = {"ddpm_tiny": 77, "small_sd": 3, "small_projected": 3, "small_sdxl": 4}
# Hunyuan-DiT 1.2 exists since diffusers 0.30, and needs PyTorch 2.
hunyuan = getattr(diffusers, "HunyuanDiT2DModel", None)
if hasattr(torch.nn.functional, "scaled_dot_product_attention") and hunyuan is not None and \
        "use_style_cond_and_image_meta_size" in inspect.signature(hunyuan.__init__).parameters:
    MODELS.update(small_hunyuan_v11=77, small_hunyuan_v12=77)


class Case(unittest.TestCase):
    longMessage = True

    def invoke(self, *words, code=0):
        """The program's stderr; it runs in this process, as loading PyTorch takes longer than everything else."""
        out, err = io.StringIO(), io.StringIO()
        before, sys.argv = sys.argv, ["profile_torch", *map(str, words)]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                found = profiler.main()
        finally:
            sys.argv = before
        self.assertEqual(found, code, out.getvalue() + err.getvalue())
        self.assertEqual(len(out.getvalue().splitlines()), 0 if code else 1)
        return err.getvalue()

    def measured(self, *words):
        path = ROOM / "measured.json"
        said = self.invoke("--device", "cpu", "--out", path, *words)
        self.assertEqual([entry.name for entry in ROOM.glob("measured.json*")], ["measured.json"])
        return json.loads(path.read_text()), said

    def refused(self, config, *parts, words=()):
        """A config.json must give one line that names all of `parts`, and no profile."""
        folder, out = ROOM / "refused", ROOM / "refused.json"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        said = self.invoke("--device", "cpu", "--config", folder / "config.json", "--out", out, *words, code=2)
        self.assertRegex(said, r"^profile_torch: [^\n]+\n$")
        for part in parts:
            self.assertIn(part, said)
        self.assertFalse(out.exists())

    def same(self, measured, known):
        """Compares everything except times and the bytes that a backend keeps, which differ from pulse's."""
        for key in ("format", "model", "microbatch_size", "skips", "conditioning_bytes", "input_bytes"):
            self.assertEqual(measured[key], known[key], key)
        self.assertEqual(measured["frozen_conditioning_bytes"], known.get("frozen_conditioning_bytes", 0))
        for key in ("name", "parameter_bytes", "output_bytes"):
            self.assertEqual([layer[key] for layer in measured["layers"]], [layer[key] for layer in known["layers"]])


class Profiles(Case):
    def test_layers_edges_and_bytes_are_those_of_the_compiled_backbone(self):
        for name, tokens in MODELS.items():
            with self.subTest(name):
                given = ("--config", ROOM / name / "config.json", "--tokens", tokens, "--rounds", 3)
                measured, _ = self.measured(*given, "--microbatch-size", 2)
                self.same(measured, json.loads((ROOM / name / "2x4.json").read_text()))
                self.assertIn("float32", measured["device"])
                measured, _ = self.measured(*given, "--microbatch-size", 3, "--dtype", "bfloat16")
                self.same(measured, json.loads((ROOM / name / "3x2.json").read_text()))
                self.assertIn("bfloat16", measured["device"])

    def test_every_pass_takes_time(self):
        for name, tokens in MODELS.items():
            with self.subTest(name):
                measured, said = self.measured("--config", ROOM / name / "config.json", "--tokens", tokens)
                for position, layer in enumerate(measured["layers"]):
                    self.assertGreater(layer["forward_us"], 0)
                    if position == 0:  # the noisy picture needs no gradient
                        self.assertEqual(layer["backward_input_us"], 0)
                    else:
                        self.assertGreater(layer["backward_input_us"], 0)
                    if layer["name"] not in said and "proj_out" != layer["name"] != "conv_out":
                        self.assertGreater(layer["backward_weight_us"], 0, layer["name"])
                self.assertGreater(sum(layer["backward_weight_us"] for layer in measured["layers"]), 0)

    def test_what_autograd_keeps_grows_with_the_microbatch(self):
        config = ROOM / "small_sd" / "config.json"
        one, two = (self.measured("--config", config, "--tokens", 3, "--rounds", 1, "--microbatch-size", n)[0]["layers"]
                    for n in (1, 2))
        for of_one, of_two in zip(one, two):
            self.assertGreaterEqual(of_two["saved_bytes"], of_one["saved_bytes"])
            self.assertLessEqual(of_two["saved_bytes"], 2 * of_one["saved_bytes"])
            self.assertEqual(of_two["deferred_bytes"], 2 * of_one["deferred_bytes"])

    def test_a_folder_and_pulse_plan(self):
        name = "small_sd"
        config = json.loads((ROOM / name / "config.json").read_text())
        pipeline = ROOM / "pipeline"
        diffusers.UNet2DConditionModel.from_config(config).save_pretrained(pipeline / "unet")
        known = json.loads((ROOM / name / "2x4.json").read_text())
        for folder in (pipeline, pipeline / "unet"):
            measured, _ = self.measured("--from", folder, "--tokens", 3, "--microbatch-size", 2, "--rounds", 3,
                                        "--name", name)
            self.same(measured, known)
        measured, _ = self.measured("--from", pipeline, "--tokens", 3, "--sample-size", 8, "--rounds", 3)
        self.assertEqual(measured["model"], "pipeline")
        self.assertEqual(measured["input_bytes"], known["input_bytes"] * 2)  # 1 sample with 4 times as many pixels
        plan = ROOM / "plan.json"
        subprocess.run([PLAN, "--profile", ROOM / "measured.json", "--devices", "2", "--pipeline", "2", "--placement",
                        "folded", "--global-batch", "4", "--time-limit", "0", "--out", plan],
                       check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
        plan = json.loads(plan.read_text())
        self.assertEqual(plan["model"], "pipeline")
        self.assertEqual(plan["predicted"]["skip_bytes"], 0)
        self.assertEqual(plan["stages"][-1]["last_layer"], len(measured["layers"]) - 1)


class Measuring(Case):
    """The parts of the program, on modules with known results."""

    CPU = torch.device("cpu")

    def test_autograd_keeps_each_storage_once_and_no_parameters(self):
        x = torch.randn(4, 8)
        first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        weights = {profiler.storage_of(p)[0] for m in (first, second) for p in m.parameters()}

        def twice(x):  # sigmoid keeps its output, and the product keeps it again
            y = torch.sigmoid(first(x))
            return second(y * y)

        call = profiler.Call(twice, [x], {})
        given = {profiler.storage_of(t)[0] for t in call.tensors()}
        self.assertEqual(profiler.kept_by(call, weights | given), 2 * 4 * 8 * 4)
        self.assertEqual(profiler.kept_by(call, weights), 3 * 4 * 8 * 4)

    def test_a_block_whose_input_gradient_is_not_apart_says_so(self):
        inner = torch.nn.Linear(8, 8)
        call = profiler.Call(lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=True),
                             [torch.randn(4, 8)], {})
        forward, inputs, weights, apart = profiler.passes_of(call, True, self.CPU, 1, 3)
        self.assertFalse(apart)
        self.assertGreater(inputs, 0)
        self.assertEqual(weights, 0)

    def test_a_weight_gradient_takes_its_share(self):
        # Three equal products: half of backward is a third of all. The bounds tell half from whole.
        linear = torch.nn.Linear(512, 512, bias=False)
        call = profiler.Call(linear, [torch.randn(512, 512)], {})
        _, inputs, weights, apart = profiler.passes_of(call, True, self.CPU, 2, 9)
        self.assertTrue(apart)
        self.assertGreater(weights, 0.3 * inputs)
        self.assertLess(weights, 3 * inputs)


class Refusals(Case):
    def test_each_names_the_culprit(self):
        known = json.loads((ROOM / "small_sd" / "config.json").read_text())

        def but(**changes):
            return {**known, **changes}

        self.refused("{", "refused/config.json", "line 1")
        self.refused({}, "refused/config.json", "_class_name must be one of", "not null")
        self.refused(but(_class_name="PriorTransformer"), "PriorTransformer", "UNet2DConditionModel")
        if hunyuan is None:
            self.refused({"_class_name": "HunyuanDiT2DModel"},
                         f"diffusers {diffusers.__version__} has no HunyuanDiT2DModel")
        self.refused(but(block_out_channels=[4]), "config.json", "block_out_channels")
        self.refused(but(sample_size=None), "sample_size", "--sample-size")
        self.refused(but(no_such_key=1), "config.json", "UNet2DConditionModel", "no_such_key")
        self.refused(but(num_class_embeds=3), "class_embedding.weight", "UNet2DConditionModel")
        self.refused(but(addition_embed_type="text"), "addition_embed_type", "text_time")
        self.refused(but(mid_block_type=None), "mid_block", "NoneType")
        self.refused(but(down_block_types=["SimpleCrossAttnDownBlock2D", "DownBlock2D"]),
                     "down_blocks.0", "SimpleCrossAttnDownBlock2D")
        self.refused(known, "--device nowhere", words=("--device", "nowhere"))
        self.refused(known, "no such folder", words=("--out", ROOM / "none" / "out.json"))
        self.assertIn(f"{ROOM / 'none'}: no config.json",
                      self.invoke("--from", ROOM / "none", "--out", ROOM / "refused.json", code=2))

    def test_no_framework(self):
        done = subprocess.run([sys.executable, "-I", "-S", SCRIPT], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^profile_torch: PyTorch and diffusers are needed: No module named '\w+'\n$")


if __name__ == "__main__":
    unittest.main()
