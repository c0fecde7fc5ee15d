"""pulse_train with a diffusers folder: begins from one, leaves one, and diffusers writes and reads them.

Usage: pulse_train_folder.py PROGRAM WHEELS [unittest arguments]     (WHEELS: where PyPI's packages are)
Ends with 77 when diffusers, transformers or PyTorch is missing.
"""

import json
import logging
import shutil
import sys
import unittest

import tiny_pipeline

WHEELS = sys.argv.pop(2)
from pulse_train import ROOM, Case, fresh, report
from files import Safetensors

tiny_pipeline.silence(WHEELS)
MODEL = {"model": "sd_tiny", "data": "synthetic"}
UNET = "unet/diffusion_pytorch_model.safetensors"
try:
    # The noise is that which pulse_train has by itself: a run from these weights is the run that drew them.
    FROM = ROOM / "diffusers"
    PIPELINE = tiny_pipeline.write(FROM, beta_schedule="squaredcos_cap_v2", timestep_spacing="trailing")
except ImportError as missing:
    sys.exit(print(f"skipped: {missing}") or 77)


def changed(folder=FROM):
    """A copy of the folder, to be damaged."""
    copy = fresh()
    shutil.copytree(folder, copy)
    return copy


def with_weights(tensors, shapes):
    """The folder with other weights of its UNet."""
    import numpy
    from safetensors.numpy import save_file

    folder = changed()
    save_file({name: numpy.frombuffer(content, "<f4").reshape(shapes[name]) for name, content in tensors.items()},
              folder / UNET, {"format": "pt"})
    return folder


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Folders(Case):
    def test_untrained_export_is_the_folder(self):
        out, copy = fresh(), fresh()
        self.train("--from", FROM, "--steps", 0, "--export", copy, out=out, **MODEL)
        self.assertEqual(files_of(copy), files_of(FROM))
        self.assertEqual(list(out.iterdir()), [])  # nothing was planned or trained
        self.train("--from", FROM, "--steps", 0, "--export", copy, "--export-shard", 40000, "--export-type", "fp16", **MODEL)
        shards = sorted(path.name for path in (copy / "unet").glob("*.safetensors"))
        self.assertGreater(len(shards), 2)
        import torch
        from safetensors.torch import load_file
        read = {}
        for shard in shards:  # this version of diffusers does not read them
            read.update(load_file(copy / "unet" / shard))
        self.assertEqual(read.keys(), PIPELINE.unet.state_dict().keys())
        for name, value in PIPELINE.unet.state_dict().items():
            self.assertTrue(torch.equal(read[name], value.half()), name)

    def test_steps_without_a_learning_rate_leave_the_folder(self):
        """Weights and averages begin with those of the folder, on every rank."""
        import numpy

        for ranks, part in ((1, "averages"), (3, "averages"), (2, "weights")):
            exported = fresh()
            self.train("--from", FROM, "--steps", 2, "--ranks", ranks, "--lr", 1e-30, "--export", exported, "--export-of", part,
                       **MODEL)
            written = Safetensors(exported / UNET).tensors
            for name, content in Safetensors(FROM / UNET).tensors.items():
                expected, found = (numpy.frombuffer(data, "<f4") for data in (content, written[name]))
                self.assertLess(float(abs(expected - found).max()), 1e-7, f"{part}: {name}")

    def test_a_run_from_its_own_first_weights_is_the_same_run(self):
        start = self.train("--steps", 0, "--seed", 5, **MODEL) / "checkpoint.safetensors"
        first = Safetensors(start)
        weights = {name: content for name, content in first.tensors.items() if not name.startswith(("optimizer.", "ema."))}
        folder = with_weights(weights, first.shapes)
        for ranks in (1, 2):
            options = ("--steps", 3, "--seed", 5, "--ranks", ranks)
            whole = self.train(*options, **MODEL)
            begun = self.train("--from", folder, *options, **MODEL)
            self.assertEqual(report(begun)["loss"], report(whole)["loss"])
            self.assertEqual(Safetensors(begun / "checkpoint.safetensors").tensors,
                             Safetensors(whole / "checkpoint.safetensors").tensors)
        scratch = self.train("--from", FROM, "--init", *options, **MODEL)
        self.assertEqual(report(scratch)["loss"], report(whole)["loss"])
        other = self.train("--from", FROM, *options, **MODEL)
        self.assertNotEqual(report(other)["loss"][0], report(whole)["loss"][0])

    def test_export_after_training(self):
        from diffusers import StableDiffusionPipeline

        words = []
        handler = logging.Handler()
        handler.emit = lambda record: words.append(record.getMessage())
        for part, prefix in (("weights", ""), ("averages", "ema.")):
            exported = fresh()
            out = self.train("--from", FROM, "--steps", 2, "--export", exported, "--export-of", part, **MODEL)
            kept = Safetensors(out / "checkpoint.safetensors").tensors
            written = Safetensors(exported / UNET).tensors
            self.assertEqual(written, {name: kept[prefix + name] for name in written})
            self.assertNotEqual(files_of(exported)[UNET], files_of(FROM)[UNET])
            self.assertEqual({**files_of(exported), UNET: b""}, {**files_of(FROM), UNET: b""})
            for library in ("diffusers", "transformers"):
                logging.getLogger(library).addHandler(handler)
            read, info = type(PIPELINE.unet).from_pretrained(exported / "unet", low_cpu_mem_usage=False,
                                                             output_loading_info=True)
            self.assertFalse(any(info.values()), info)
            StableDiffusionPipeline.from_pretrained(exported, low_cpu_mem_usage=False)
            self.assertEqual(words, [])

    def test_resumes(self):
        whole = self.train("--from", FROM, "--steps", 4, **MODEL)
        half = self.train("--from", FROM, "--steps", 2, **MODEL)
        rest = self.train("--from", FROM, "--steps", 4, "--resume", half / "checkpoint.safetensors", **MODEL)
        self.same_tensors(rest, whole)
        # the noise of another folder
        other = changed()
        scheduler = other / "scheduler/scheduler_config.json"
        scheduler.write_text(scheduler.read_text().replace("v_prediction", "epsilon"))
        self.refuses("--from", other, "--steps", 4, "--resume", half / "checkpoint.safetensors",
                     names=["--resume", "prediction v", "epsilon"], **MODEL)

    def test_refusals(self):
        def refused(folder, *names, options=()):
            self.refuses("--from", folder, "--export", fresh(), *options, names=["--from", *names], **MODEL)

        refused(fresh(), "scheduler")
        folder = changed()
        (folder / "model_index.json").unlink()
        refused(folder, "model_index.json")
        for key, value in (("cross_attention_dim", 32), ("norm_eps", 1e-6), ("a_key_of_tomorrow", True)):
            folder = changed()
            config = json.loads((folder / "unet/config.json").read_text())
            before, config[key] = config.get(key), value
            (folder / "unet/config.json").write_text(json.dumps(config))
            refused(folder, "unet/config.json", key, str(value).lower())
        tensors = Safetensors(FROM / UNET)
        name = "mid_block.attentions.0.norm.weight"
        without = {key: value for key, value in tensors.tensors.items() if key != name}
        refused(with_weights(without, tensors.shapes), "unet", name)
        refused(with_weights({**tensors.tensors, "more": b"\0" * 4}, {**tensors.shapes, "more": [1]}), "unet", "more")
        refused(with_weights(tensors.tensors, {**tensors.shapes, name: [4, 4]}), "unet", name, "4")
        folder = changed()
        (folder / UNET).write_bytes((folder / UNET).read_bytes()[:-9])
        refused(folder, UNET)

    def test_wrong_options(self):
        for option in (("--init",), ("--export", fresh())):
            self.refuses(*option, names=[option[0], "--from"], **MODEL)
        for option, value in (("--export-of", "weights"), ("--export-type", "fp16"), ("--export-shard", 5)):
            self.refuses("--from", FROM, option, value, names=[option, "--export"], **MODEL)
        for option, value in (("--prediction", "v"), ("--noise", "linear"), ("--zero-snr", "yes")):
            self.refuses("--from", FROM, option, value, names=[option, "scheduler of --from"], **MODEL)
        self.refuses("--from", FROM, "--export", FROM / "unet" / "here", names=["--export", "inside"], **MODEL)
        full = fresh()
        full.mkdir()
        (full / "letters.txt").write_text("dear")
        self.refuses("--from", FROM, "--export", full, names=["--export", str(full)], **MODEL)


if __name__ == "__main__":
    unittest.main(verbosity=2)
