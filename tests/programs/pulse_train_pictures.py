"""pulse_train with captioned pictures, encoded by the frozen networks of a diffusers folder."""

import csv
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import unittest
import zlib

import chance
from diffusers_folder import (
    CAPTIONS, FROM, MODEL, PIPELINE, SEED, UNET, changed, encoded_in, plan_of, write_pictures, write_tensors)
from drawn_plans import drawn
from files import Safetensors
from pulse_train import CLUSTER, PROGRAM, ROOM, Case, command, fresh, report


class Pictures(Case):
    """Training on captioned pictures encoded by frozen networks."""

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures()
        cls.options = {"model": "sd_tiny", "data": cls.data}

    def learn(self, *options, **more):
        return self.train("--from", FROM, "--seed", SEED, *options, **{**self.options, **more})

    def test_the_first_screen_of_the_readme(self):
        from diffusers import UNet2DConditionModel

        room = fresh()
        room.mkdir()
        for name, target in (("pulse_train", PROGRAM), ("my-model", FROM), ("pictures", self.data)):
            (room / name).symlink_to(pathlib.Path(target).resolve())
        readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
        lines = [line for line in readme.splitlines() if line.startswith("    pulse_train --from ")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            small = line.replace("--steps 1000", "--steps 2")
            done = subprocess.run(["bash", "-c", 'PATH="$PWD:$PATH"\n' + small], cwd=room, capture_output=True,
                                  text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        UNet2DConditionModel.from_pretrained(room / "tuned", subfolder="unet", local_files_only=True)
        self.assertNotEqual((room / "tuned" / UNET).read_bytes(), (FROM / UNET).read_bytes())
        self.assertEqual(json.loads((room / "drawn/pictures/metadata.jsonl").read_text())["text"], "a red cat")

    def test_every_pipeline_trains_alike(self):
        drawn = ("--steps", 3, "--flip", "yes", "--caption-dropout", 0.4, "--shuffle-tags", 1)
        tagged = {"data": write_pictures(("a cat, red", "red, cat, a", "car", "a, red, of"))}
        alone = self.learn(*drawn, "--ranks", 1, **tagged)
        self.assertNotEqual(report(alone)["loss"], report(self.learn(*drawn[:-2], "--ranks", 1, **tagged))["loss"])
        for options in ("--ranks 2", "--ranks 3 --placement sequential", "--ranks 2 --recomputation stages"):
            with self.subTest(options):
                out = self.learn(*drawn, *options.split(), **tagged)
                self.same_training(alone, out, options)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        # the plan includes the encoders: their bytes come on top
        profile = fresh()
        runs = (self.learn("--steps", 1, "--ranks", 1, "--encode", "each-step", "--profile-out", profile),
                self.train("--steps", 1, "--ranks", 1, "--profile", profile, **MODEL))
        more, less = (report(folder)["planned_peak_bytes"][0] for folder in runs)
        encoders = [PIPELINE.text_encoder, PIPELINE.vae.encoder, PIPELINE.vae.quant_conv]
        self.assertGreater(more - less, 4 * sum(p.numel() for one in encoders for p in one.parameters()))
        # the profile does not include them, so they are measured
        both = fresh()
        self.learn("--ranks", 1, "--encode", "bubbles", "--profile", profile, "--profile-out", both, "--plan-only")
        frozen = json.loads(both.read_text())["frozen"]
        self.assertTrue(all(layer["sample_us"] > 0 for one in frozen for layer in one["layers"]))

    def test_encoding_in_the_bubbles_gives_the_same_bits(self):
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        for ranks in ("--ranks 1", "--ranks 3 --placement sequential", "--ranks 4 --replicas 2 --recomputation stages"):
            with self.subTest(ranks):
                before = self.learn("--steps", 3, *options, *ranks.split(), "--encode", "each-step")
                ahead = self.learn("--steps", 3, *options, *ranks.split())
                self.assertNotIn("frozen_tasks", plan_of(before))
                self.assertIn("frozen_tasks", plan_of(ahead)) # nothing speaks against it
                self.same_tensors(ahead, before)
                self.assertEqual(report(ahead)["loss"], report(before)["loss"])
                self.assertEqual(report(ahead)["captions_cut"], report(before)["captions_cut"])
                self.assertEqual(report(ahead)["planned_peak_bytes"], report(ahead)["measured_peak_bytes"])
        ahead = (*options, "--ranks", 2, "--encode", "bubbles")
        half = self.learn("--steps", 2, *ahead)
        rest = self.learn("--steps", 3, *ahead, "--resume", half / "checkpoint.safetensors")
        whole = self.learn("--steps", 3, *options, "--ranks", 2, "--encode", "each-step")
        self.same_tensors(rest, whole)

    def test_masks_are_the_same_however_pictures_are_encoded(self):
        data = write_pictures(widths=(16, 28, 10), alpha=True)

        def learn(*options, **more):
            return self.learn("--steps", 3, "--flip", "yes", "--masked-loss", "yes", *options, data=data, **more)

        for chance_of, more in ((("--crop", "random"), {}),
                                (("--buckets", "16:4:8-28"), {"size": ("--microbatch-size", 2, "--microbatches", 2)})):
            before = learn("--ranks", 1, "--encode", "each-step", *chance_of, **more)
            for how in ("--ranks 2 --encode bubbles", "--ranks 3 --placement sequential --encode each-step",
                        "--ranks 3 --placement sequential --encode bubbles --recomputation stages"):
                with self.subTest(how, chance_of=chance_of):
                    out = learn(*how.split(), *chance_of, **more)
                    self.same_training(before, out)
                    self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
        fixed = learn("--ranks", 1, "--encode", "each-step")
        cache = fresh()
        for ranks in (1, 2):
            self.same_training(fixed, learn("--ranks", ranks, "--encode", "once", "--cache", cache))
        plain = self.learn("--steps", 3, "--flip", "yes", "--ranks", 1, data=data)
        self.assertLess(report(fixed)["loss"][0], report(plain)["loss"][0])
        half = self.learn("--steps", 2, "--flip", "yes", "--masked-loss", "yes", "--ranks", 2, data=data)
        half /= "checkpoint.safetensors"
        self.same_tensors(fixed, learn("--ranks", 1, "--resume", half))
        self.refuses("--from", FROM, "--seed", SEED, "--steps", 3, "--flip", "yes", "--resume", half,
                     names=["--resume", "masked loss"], model="sd_tiny", data=data)
        # opaque pixels have full weight
        runs = [self.learn("--steps", 2, "--ranks", 2, "--masked-loss", masked) for masked in ("yes", "no")]
        self.assertEqual(*(report(run)["loss"] for run in runs))

    def test_pictures_of_any_size(self):
        """Rectangular sizes: the bits of one rank with every way of encoding, in the planned memory; drawings have that
        size."""
        from PIL import Image

        for size, shape in (("8x20", (8, 20)), ("24", (24, 24))):
            options = ("--size", size, "--flip", "yes", "--caption-dropout", 0.4)
            before = self.learn("--steps", 3, *options, "--ranks", 1, "--encode", "each-step", "--prompt", "a cat",
                                sample=1)
            with Image.open(before / "pictures/0000.png") as drawn:
                self.assertEqual((drawn.height, drawn.width), shape)
            for how in (("--ranks", 2, "--encode", "each-step"), ("--ranks", 2, "--encode", "bubbles"),
                        ("--ranks", 3, "--placement", "sequential", "--encode", "once", "--cache", fresh())):
                with self.subTest(size=size, how=how):
                    out = self.learn("--steps", 3, *options, *how)
                    self.same_training(before, out)
                    self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
            half = self.learn("--steps", 1, *options, "--ranks", 2)
            rest = self.learn("--steps", 3, *options, "--ranks", 1, "--resume", half / "checkpoint.safetensors")
            self.same_tensors(before, rest)
            self.refuses("--from", FROM, "--seed", SEED, "--steps", 3, "--flip", "yes", "--caption-dropout", 0.4,
                         "--resume", half / "checkpoint.safetensors", names=["--resume", "images"], **self.options)
        # a folder's default size: its UNet's, in latents
        folder = changed()
        config = json.loads((folder / "unet/config.json").read_text())
        (folder / "unet/config.json").write_text(json.dumps({**config, "sample_size": [4, 12]}))
        small = self.train("--from", folder, "--seed", SEED, "--steps", 2, "--ranks", 2, "--profile-out", fresh(),
                           **self.options)
        self.same_training(small, self.learn("--steps", 2, "--ranks", 1, "--size", "8x24"))
        self.same_training(self.learn("--steps", 2), self.learn("--steps", 2, "--size", 16))
        self.refuses("--from", FROM, "--size", "16x18", names=["--size", "16 x 18", "(16 or 20)"], **self.options)
        self.refuses("--from", FROM, "--size", "16x", names=["--size", "HEIGHTxWIDTH"], **self.options)
        (folder / "unet/config.json").write_text(json.dumps({**config, "sample_size": 5}))
        self.refuses("--from", folder, names=["--from", "10 x 10", "(8 or 12)"], **self.options)

    def test_drawn_plans_encode_alike(self):
        """Whoever runs which layers on which sample, and wherever a run resumes: the same bits, in the planned
        memory."""
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        profile = fresh()
        before = {d: self.learn("--steps", 3, *options, "--ranks", d, "--replicas", d, "--encode", "each-step")
                  for d in (1, 2)}
        self.learn("--plan-only", "--ranks", 1, "--profile-out", profile)
        self.assertGreater(len(json.loads(profile.read_text())["frozen"][0]["layers"]), 5)
        draw = random.Random(17)
        for number in range(int(os.environ.get("PULSE_TEST_PLANS", 4))):
            replicas = draw.choice([1, 1, 2])
            plan = (*options, "--profile", profile, "--encode", "bubbles",
                    *drawn(draw, draw.choice([1, 2, 3, 4]), replicas))
            with self.subTest(number=number, plan=plan):
                out = self.learn("--steps", 3, *plan)
                self.same_training(before[replicas], out)
                self.assertEqual(report(out)["planned_peak_bytes"], report(out)["measured_peak_bytes"])
                self.assertEqual(report(out)["captions_cut"], report(before[replicas])["captions_cut"])
                half = self.learn("--steps", 1, *plan)
                self.same_tensors(before[replicas],
                                  self.learn("--steps", 3, *plan, "--resume", half / "checkpoint.safetensors"))

    def test_the_planner_makes_the_same_plan_of_frozen_networks(self):
        """A function of profile, cluster and request; its plan gives the same bits; other profiles are refused."""
        planner = pathlib.Path(PROGRAM).with_name("pulse_plan")
        if not planner.exists():
            self.skipTest("no pulse_plan")
        whole = self.learn("--steps", 2, "--ranks", 1, "--encode", "each-step", "--microbatch-size", 2,
                           "--microbatches", 8, size=())
        profile = fresh()
        known = ("--profile", profile, "--global-batch", 16)
        self.learn("--plan-only", "--ranks", 3, "--microbatch-size", 2, "--global-batch", 16, "--profile-out", profile,
                   size=())
        measured = json.loads(profile.read_text())
        self.assertEqual([part["feeds"] for part in measured["frozen"]], ["input", "context"])
        for options in ("", "--placement sequential", "--placement folded --schedule gpipe --routing relayed"):
            with self.subTest(options):
                theirs = fresh()
                self.invoke([planner, "--devices", 3, "--cluster", CLUSTER, "--time-limit", 0, "--frozen", "bubbles",
                             "--out", theirs, *known, *options.split()], 0)
                ours = self.learn("--ranks", 3, "--steps", 2, *known, *options.split(), size=())
                made = [plan_of(ours), json.loads(theirs.read_text())]
                for plan in made:
                    plan["predicted"].pop("peak_memory_bytes") # pulse_train has the layout's bytes
                self.assertEqual(*made)
                read = self.learn("--steps", 2, "--plan", theirs, size=())
                self.assertEqual(plan_of(read)["frozen_tasks"], made[0]["frozen_tasks"])
                for run in (ours, read):
                    self.same_training(whole, run)
                    self.assertEqual(report(run)["planned_peak_bytes"], report(run)["measured_peak_bytes"])
        without = json.loads(theirs.read_text())
        del without["frozen_tasks"], without["frozen_hosts"]
        theirs.write_text(json.dumps(without))
        self.assertNotIn("frozen_tasks", plan_of(self.learn("--steps", 1, "--plan", theirs, size=())))
        out = fresh()
        self.refuses(names=["frozen_tasks", "--encode"], out=out,
                     raw=command("--from", FROM, "--encode", "bubbles", "--plan", theirs, out=out, size=(),
                                 **self.options))
        measured["frozen"][0]["layers"][-1]["parameter_bytes"] += 4
        profile.write_text(json.dumps(measured))
        last = len(measured["frozen"][0]["layers"]) - 1
        self.refuses("--from", FROM, "--profile", profile, names=[f"frozen[0].layers[{last}]", "bytes"], **self.options)

    def test_resumes(self):
        whole = self.learn("--steps", 4, "--caption-dropout", 0.5)
        half = self.learn("--steps", 2, "--caption-dropout", 0.5)
        rest = self.learn("--steps", 4, "--caption-dropout", 0.5, "--resume", half / "checkpoint.safetensors")
        self.same_tensors(rest, whole)
        self.assertEqual(report(half)["loss"] + report(rest)["loss"], report(whole)["loss"])
        self.refuses("--from", FROM, "--seed", SEED, "--steps", 4, "--resume", half / "checkpoint.safetensors",
                     names=["images", "dropout 0.5"], **self.options)

    def test_resumes_on_other_data(self):
        data = fresh()
        shutil.copytree(self.data, data)
        half = self.learn("--steps", 2, data=data)
        text = (data / "metadata.jsonl").read_text()
        lines = text.replace("a cat", "a dog").replace("caterpillar", "cater").splitlines()
        shutil.copy(data / "1.png", data / "new.png")
        (data / "0.png").unlink()
        lines[0] = json.dumps({"file_name": "new.png", "text": "photo"})
        (data / "metadata.jsonl").write_text("\n".join(lines))
        what = "1 picture was added ('new.png'), 1 was removed ('0.png'), 3 have other captions ('2.png')"
        for place in ("checkpoints", "checkpoints/step-00000002", "checkpoints/step-00000002/",
                      "checkpoint.safetensors"):
            self.refuses("--from", FROM, "--seed", SEED, "--steps", 3, "--resume", f"{half}/{place}",
                         names=[what, "--data-changed yes"], model="sd_tiny", data=data)
        on = ("--from", FROM, "--seed", SEED, "--steps", 3, "--resume", half / "checkpoint.safetensors",
              "--data-changed", "yes")
        once, again = fresh(), fresh()
        done = self.invoke(command(*on, out=once, model="sd_tiny", data=data), 0)
        self.assertIn(what, done.stdout)
        next(half.glob("data-*.txt")).unlink()
        done = self.invoke(command(*on, out=again, model="sd_tiny", data=data), 0)
        self.assertRegex(done.stdout,
                         r"--data has changed since .*: it was 10 pictures \(\w+\), now it is 10 pictures \(\w+\)\n")
        self.same_training(once, again)
        # from there on it trains on these pictures
        whole = self.learn("--steps", 3, data=data)
        self.assertNotEqual(report(once)["loss"], report(whole)["loss"][2:])
        rest = self.learn("--steps", 4, "--resume", once / "checkpoint.safetensors", data=data)
        self.assertEqual(len(report(rest)["loss"]), 1)
        self.refuses("--from", FROM, "--data-changed", "yes", names=["--data-changed", "--resume"], **self.options)

    def test_what_cannot_be_read_ends_a_run_behind_a_whole_step(self):
        """A bad picture that first occurs in the third step: the steps before are saved, and a resumed run has the same
        bits."""
        data = write_pictures([f"{text} {number}" for number in range(2) for text in CAPTIONS])
        bad = data / f"{chance.index_at(SEED, 19, 20)}.png"
        content = bad.read_bytes()
        whole = self.learn("--steps", 4, data=data)
        for options in ("--encode each-step --ranks 1", "--encode each-step --ranks 3 --placement sequential",
                        "--encode bubbles --ranks 2", "--encode bubbles --ranks 3 --placement sequential"):
            with self.subTest(options):
                bad.write_bytes(content[:-30])
                out = fresh()
                line = command("--from", FROM, "--seed", SEED, "--steps", 4, *options.split(), out=out, model="sd_tiny",
                               data=data)
                done = self.invoke(line, 2)
                self.assertRegex(done.stderr, r"\Apulse_train: [^\n]+\n\Z")
                for name in ("--data", bad.name, "--on-bad-picture skip", "step 3", "--resume"):
                    self.assertIn(name, done.stderr)
                self.assertEqual([path.name for path in (out / "checkpoints").iterdir()], ["step-00000002"])
                on = ("--steps", 4, "--resume", out / "checkpoints", *options.split())
                line = command("--from", FROM, "--seed", SEED, *on, "--on-bad-picture", "skip", out=fresh(),
                               model="sd_tiny", data=data)
                done = self.invoke(line, 0)
                self.assertIn(bad.name, done.stderr)
                bad.write_bytes(content)
                rest = self.learn(*on, data=data)
                self.assertEqual(report(rest)["loss"], report(whole)["loss"][2:])
                self.same_tensors(rest, whole)

    def test_dropped_captions_are_empty_ones(self):
        dropped = self.learn("--steps", 1, "--caption-dropout", 1)
        empty = self.learn("--steps", 1, data=write_pictures([""] * len(CAPTIONS)))
        whole = self.learn("--steps", 1)
        self.assertEqual(report(dropped)["loss"], report(empty)["loss"])
        self.assertNotEqual(report(dropped)["loss"], report(whole)["loss"])

    def test_bad_pictures(self):
        data = fresh()
        shutil.copytree(self.data, data)
        bad = data / "4.png"
        bad.write_bytes(bad.read_bytes()[:200])
        line = command("--from", FROM, "--steps", 3, "--ranks", 2, out=fresh(), model="sd_tiny", data=data)
        stopped = self.invoke(line, 2)
        self.assertRegex(stopped.stderr, r"\Apulse_train: [^\n]*4\.png[^\n]+\n\Z")
        skipped = self.invoke([*line, "--on-bad-picture", "skip"], 0)
        self.assertRegex(skipped.stderr, r"\Apulse_train: skipped: [^\n]*4\.png[^\n]+\n\Z")

    def test_bad_headers_are_found_before_anything_is_written(self):
        data = fresh()
        shutil.copytree(self.data, data)
        (data / "4.png").write_bytes(b"no picture")
        large = bytearray((data / "2.png").read_bytes())
        large[16:24] = b"\0\0\x7f\xff" * 2
        large[29:33] = zlib.crc32(large[12:29]).to_bytes(4, "big")
        (data / "2.png").write_bytes(large)
        options = ("--from", FROM, "--steps", 1, "--ranks", 2)
        several = f"2 of {len(CAPTIONS)} pictures"
        self.refuses(*options, names=["2.png", "32767 x 32767", "limit of 134217728", several, "--on-bad-picture skip"],
                     model="sd_tiny", data=data)
        out = fresh()
        skipped = self.invoke(command(*options, "--on-bad-picture", "skip", out=out, model="sd_tiny", data=data), 0)
        self.assertRegex(skipped.stderr,
                         rf"\Apulse_train: {several} cannot be read and are skipped; the first: [^\n]*2\.png")
        self.assertRegex(skipped.stdout, rf"(?m)^pictures: {len(CAPTIONS) - 2} of 16x16; {len(CAPTIONS) - 2} PNG$")
        for file in data.glob("*.png"):
            file.write_bytes(b"no picture")
        self.refuses(*options, "--on-bad-picture", "skip", names=["0.png", "none of"], model="sd_tiny", data=data)

    def test_pictures_that_are_damaged_inside_are_counted(self):
        from PIL import Image
        data = fresh()
        shutil.copytree(self.data, data)
        for name in ("0.png", "1.png"):
            file = io.BytesIO()
            Image.open(data / name).resize((64, 64)).save(file, "JPEG")
            whole = file.getvalue()
            scan = whole.index(b"\xff\xda") + 14
            (data / name).write_bytes(whole[:scan + 100] + b"\xff\xd9")
        for options in ((), ("--encode", "once", "--cache", fresh())):
            with self.subTest(options):
                line = command("--from", FROM, "--steps", 2, "--ranks", 2, *options, out=fresh(), model="sd_tiny",
                               data=data)
                done = self.invoke(line, 0)
                self.assertRegex(done.stderr, r"\Apulse_train: damaged inside[^\n]*[01]\.png[^\n]*\n"
                                              r"pulse_train: damaged: 2 pictures were read with damage inside\n\Z")

    def test_refusals(self):
        self.refuses(names=["--data", "--from"], **self.options)
        self.refuses("--from", FROM, names=["--data", "nowhere"], model="sd_tiny", data=ROOM / "nowhere")
        for option, value in (("--flip", "yes"), ("--crop", "random"), ("--masked-loss", "yes"),
                              ("--caption-dropout", 0.1), ("--on-bad-picture", "skip"), ("--encode", "each-step"),
                              ("--shuffle-tags", 1)):
            self.refuses("--from", FROM, option, value, names=[option, "captioned pictures"], **MODEL)
        for file, key, value in (("text_encoder/config.json", "hidden_act", "gelu"),
                                 ("vae/config.json", "layers_per_block", 2)):
            folder = changed()
            config = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**config, key: value}))
            self.refuses("--from", folder, names=["--from", file, key, str(value)], **self.options)
        for file, name in (("text_encoder/model", "text_model.final_layer_norm.bias"),
                           ("vae/diffusion_pytorch_model", "quant_conv.weight")):
            folder = changed()
            tensors = Safetensors(folder / f"{file}.safetensors")
            write_tensors(folder / f"{file}.safetensors",
                          {key: value for key, value in tensors.tensors.items() if key != name},
                          tensors.shapes)
            self.refuses("--from", folder, names=["--from", file.split("/")[0], name], **self.options)
        folder = changed()
        (folder / "tokenizer/merges.txt").unlink()
        self.refuses("--from", folder, names=["--from", "merges.txt"], **self.options)


class Layouts(Case):
    """The same pictures and captions in every known layout, and in some unknown ones."""

    @classmethod
    def setUpClass(cls):
        cls.flat = write_pictures()

    def lay_out(self, kind, folder):
        """Writes the pictures with their captions below a folder, under names that keep their order."""
        folder.mkdir(parents=True)
        rows = []
        for index, text in enumerate(CAPTIONS):
            name = f"{index}.png"
            shutil.copy(self.flat / name, folder / name)
            rows.append((name, text))
            if kind == "text":
                (folder / name).with_suffix((".txt", ".TXT", ".caption")[index % 3]).write_text(text)
            if kind == "json":
                fields = {"url": index, "blip": text, "text": "not this"}
                (folder / name).with_suffix(".json").write_text(json.dumps(fields))
        if kind == "csv":
            with open(folder / "metadata.csv", "w", newline="", encoding="utf-8-sig") as table:
                csv.writer(table, quoting=csv.QUOTE_ALL).writerows([("file_name", "prompt"), *rows])
        if kind == "jsonl":
            lines = [json.dumps({"file_name": name, "caption": text}) for name, text in rows]
            (folder / "metadata.jsonl").write_text("\n".join(lines))
        return folder

    def learn(self, data, *options, code=0):
        out = fresh()
        done = self.invoke(command("--from", FROM, "--seed", SEED, "--steps", 2, "--ranks", 1, *options, out=out,
                                   model="sd_tiny", data=data), code)
        return report(out)["loss"] if code == 0 else None, done.stdout, done.stderr

    def test_every_layout_trains_alike_and_says_what_it_is(self):
        losses, said, _ = self.learn(self.flat)
        lengths = [len(PIPELINE.tokenizer(text, verbose=False).input_ids) for text in CAPTIONS]
        tokens = (f"captions: tokenizer: {sum(lengths) / len(lengths):.1f} tokens on average, {max(lengths)} at most, "
                  f"{sum(length > 7 for length in lengths)} cut at 7\n")
        self.assertIn("data: 10 pictures, captions of metadata\n" + tokens, said)
        for kind, words in (("csv", "of metadata"), ("jsonl", "of metadata"), ("text", "beside them"),
                            ("json", "beside them")):
            with self.subTest(kind):
                data = fresh()
                self.lay_out(kind, data / "train")
                self.lay_out("none", data / "test")
                (data / "train/0.heic").touch()
                options = ("--caption-column", "blip") if kind == "json" else ()
                again, said, _ = self.learn(data, *options)
                self.assertEqual(again, losses)
                self.assertIn(f"data: 10 pictures, captions {words}\nleft out: 1 .heic, the split test (10)\n" + tokens,
                              said)

    def test_names_of_folders_are_captions_only_where_they_are_asked_for(self):
        data = fresh()
        self.lay_out("none", data / "10_red cat")
        self.lay_out("none", data / "car")
        _, _, refusal = self.learn(data, code=2)
        self.assertRegex(refusal, r"\Apulse_train: --data: [^\n]*10_red cat/0.png' has no caption[^\n]*"
                                  r"--captions class[^\n]*--on-missing-caption[^\n]*\n\Z")
        named, said, _ = self.learn(data, "--captions", "class")
        self.assertIn("data: 20 pictures, captions by the names of 2 folders; repeated by name: "
                      "10_red cat 10 times, so that an epoch has 110\n", said)
        for path in data.rglob("*.png"):
            path.with_suffix(".txt").write_text(path.parent.name.removeprefix("10_"))
        self.assertEqual(self.learn(data)[0], named)
        self.assertIn("0.txt", self.learn(data, "--captions", "class", code=2)[2])

    def test_a_picture_without_a_caption(self):
        data = self.lay_out("text", fresh())
        (data / "6.txt").unlink()  # the empty caption
        whole = self.learn(self.flat)[0]
        self.assertIn("6.png", self.learn(data, code=2)[2])
        losses, said, _ = self.learn(data, "--on-missing-caption", "empty")
        self.assertEqual(losses, whole)
        self.assertIn("data: 10 pictures, captions beside them, 1 without one, which are taken as empty\n", said)
        (data / "6.png").rename(data / "6.tiff")
        without = self.learn(data)[0]
        (data / "6.tiff").rename(data / "6.png")
        losses, said, _ = self.learn(data, "--on-missing-caption", "skip")
        self.assertEqual(losses, without)
        self.assertIn("left out: 1 picture without a caption\n", said)

    def test_refusals(self):
        data = self.lay_out("csv", fresh())
        for options, names in ((("--caption-column", "nothing"), ("nothing", "'prompt'", "--caption-column NAME")),
                               (("--captions", "class"), ("metadata.csv",)),
                               (("--captions", "class", "--caption-column", "a"),
                                ("--caption-column", "--captions class"))):
            self.refuses("--from", FROM, *options, names=names, model="sd_tiny", data=data)
        (data / "metadata.csv").rename(data / "metadata.parquet")
        self.refuses("--from", FROM, names=["--data", "metadata.parquet", "convert it"], model="sd_tiny", data=data)
        text = self.lay_out("text", fresh())
        (text / "3.txt").write_bytes(b"\xff")
        self.refuses("--from", FROM, "--encode", "once", "--cache", fresh(), names=["--data", "3.txt"],
                     model="sd_tiny", data=text)


class Once(Case):
    """Pictures and captions that are encoded once, into a folder."""

    OPTIONS = ("--flip", "yes", "--caption-dropout", 0.4, "--on-bad-picture", "skip")

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures()
        bad = cls.data / "4.png"
        bad.write_bytes(bad.read_bytes()[:200])

    def learn(self, cache, *options, folder=FROM, steps=3, data=None):
        """A run's folder, its output, and the pictures that it named."""
        out = fresh()
        once = ("--encode", "once", "--cache", cache) if cache else ()
        line = command("--from", folder, "--seed", SEED, "--steps", steps, *self.OPTIONS, *once, *options, out=out,
                       model="sd_tiny", data=data or self.data)
        done = self.invoke(line, 0)
        return out, done.stdout, done.stderr

    def test_the_same_run_as_encoding_before_each_step(self):
        each, _, named = self.learn(None, "--ranks", 1)
        self.assertIn("4.png", named)
        caches = []
        for options in ("--ranks 1", "--ranks 3 --placement sequential", "--ranks 2 --replicas 2"):
            with self.subTest(options):
                caches.append(fresh())
                alone = each if "replicas" not in options else self.learn(None, *options.split())[0]
                once, said, skipped = self.learn(caches[-1], *options.split())
                self.same_training(alone, once, options)
                self.assertEqual(set(skipped.splitlines()), set(named.splitlines()))
                self.assertRegex(said, r"(?m)^encoded 20 pictures and 10 captions, \d+\.\d MiB, in \d+\.\d s; "
                                       r"before each step it would take \d+\.\d s of this run$")
                made = report(once)
                self.assertEqual(made["captions_cut"], report(alone)["captions_cut"])
                self.assertEqual(made["planned_peak_bytes"], made["measured_peak_bytes"])
        # the result does not depend on who encoded what, and no frozen network stays in memory
        self.assertEqual(*map(encoded_in, caches[:2]))
        self.assertEqual(*map(encoded_in, caches[1:]))
        profile = fresh()
        without = self.train("--steps", 1, "--ranks", 1, "--profile-out", profile, **MODEL)
        once, said, _ = self.learn(caches[0], "--ranks", 1, "--profile", profile)
        self.assertIn(f"--cache {caches[0]} has all pictures and captions\n", said)
        self.same_training(each, once)
        self.assertEqual(encoded_in(caches[0]), encoded_in(caches[1]))
        self.assertEqual(report(once)["planned_peak_bytes"], report(without)["planned_peak_bytes"])

    def test_what_is_missing_is_made_again(self):
        cache = fresh()
        whole, _, _ = self.learn(cache)
        before = encoded_in(cache)
        next(cache.glob("captions-*")).unlink()
        rest, said, _ = self.learn(cache)
        self.assertIn("encoded 0 pictures and 10 captions", said)
        self.assertEqual(encoded_in(cache), before)
        self.same_training(whole, rest)

    def test_what_is_new_is_encoded(self):
        """The results of a run that encodes in each step, whatever was in the folder before."""
        cache, data = fresh(), fresh()
        shutil.copytree(self.data, data)
        lines = (data / "metadata.jsonl").read_text()

        def again(said, **more):
            once, told, _ = self.learn(cache, steps=1, **{"data": data, **more})
            self.assertIn(said, told)
            self.same_training(self.learn(None, steps=1, **{"data": data, **more})[0], once)

        everything = f"--cache {cache} has all pictures and captions\n"
        again("encoded 20 pictures and 10 captions")
        again(everything)
        (data / "metadata.jsonl").write_text(lines.replace("a cat", "a dog"))
        again("encoded 0 pictures and 2 captions")
        (data / "metadata.jsonl").write_text(lines.replace('"2.png"', '"renamed.png"'))
        (data / "2.png").rename(data / "renamed.png")
        os.utime(data / "5.png")
        shutil.copy(data / "1.png", data / "3.png")
        again(everything)
        (data / "6.png").write_bytes((write_pictures(CAPTIONS[1:]) / "6.png").read_bytes())
        again("encoded 2 pictures and 0 captions")
        for file, said in (("vae/config.json", "encoded 18 pictures and 0 captions"),
                           ("tokenizer/merges.txt", "encoded 0 pictures and 10 captions")):
            folder = changed()
            (folder / file).write_text((folder / file).read_text() + "\n")
            again(said, folder=folder)
        again(everything)

    def test_who_is_to_blame(self):
        cache, data = fresh(), fresh()
        shutil.copytree(self.data, data)
        once = ("--from", FROM, "--steps", 1, "--encode", "once", "--cache", cache)

        def refused(*names, spared, options=("--on-bad-picture", "skip")):
            line = command(*once, *options, out=fresh(), model="sd_tiny", data=data)
            done = self.invoke(line, 2)
            self.assertRegex(done.stderr, r"\Apulse_train: (rank \d+: )?" + names[0] + r"[^\n]+\n\Z")
            for name in names:
                self.assertIn(name, done.stderr)
            self.assertNotIn(spared, done.stderr)

        refused("--data: ", "4.png", "--on-bad-picture skip", spared="--cache", options=())
        self.invoke(command(*once, "--on-bad-picture", "skip", out=fresh(), model="sd_tiny", data=data), 0)
        # it exists but is bad
        refused("--data: ", "4.png", "--on-bad-picture skip", spared="--cache", options=())
        (data / "metadata.jsonl").rename(data / "metadata")
        for number, caption in enumerate(CAPTIONS):
            (data / f"{number}.txt").write_bytes(b"\xff" if number == 3 else caption.encode())
        refused("--data: ", "3.txt", "UTF-8", spared="--cache", options=())
        for number in range(len(CAPTIONS)):
            (data / f"{number}.txt").unlink()
        (data / "metadata").rename(data / "metadata.jsonl")
        shard = next(cache.glob("pictures-*"))
        content = shard.read_bytes()
        shard.write_bytes(content[:-1])
        refused("--cache: ", shard.name, "remove the file", spared="--data")
        shard.write_bytes(content.replace(b"pulse-encoded/2", b"pulse-encoded/1"))
        refused("--cache: ", shard.name, "give another", spared="--data")

    def test_wrong_options(self):
        asked = {"model": "sd_tiny", "data": self.data}
        self.refuses("--from", FROM, "--encode", "once", names=["--encode once", "--cache"], **asked)
        self.refuses("--from", FROM, "--cache", fresh(), names=["--cache", "--encode once"], **asked)
        self.refuses("--from", FROM, "--encode", "once", "--cache", fresh(), "--crop", "random",
                     names=["--crop random"], **asked)


if __name__ == "__main__":
    unittest.main(verbosity=2)
