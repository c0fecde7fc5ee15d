"""pulse_train with backbones that read more than one text: pooled texts and sizes, classes, two texts with their
masks."""

import json
import unittest

import tiny_pipeline
from diffusers_folder import (
    CAPTIONS, FROM, SDXL, SDXL_PIPELINE, SEED, changed, expected_loss, first_weights, sdxl_conditions,
    trains_alike_scattered, with_transformer, write_classes, write_pictures)
from files import Safetensors
from pulse_train import PROGRAM, Case, command, fresh, report


class Sdxl(Case):
    """Two text encoders, pooled text and sizes."""

    @classmethod
    def setUpClass(cls):
        cls.data = write_pictures(widths=(16, 24, 19))

    def learn(self, *options):
        return self.train("--from", SDXL, "--seed", SEED, *options, model="sdxl_tiny", data=self.data)

    def test_the_pooled_token_is_that_of_the_config(self):
        """Pooling at eos_token_id: the usual end of a text, a token inside some texts, or an id that no text has."""
        losses = set()
        for word in ("<|endoftext|>", "red</w>", None):
            folder = changed(SDXL)
            file = folder / "text_encoder_2/config.json"
            end = 49407 if word is None else SDXL_PIPELINE.tokenizer_2.convert_tokens_to_ids(word)
            file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": end}))
            pipeline = type(SDXL_PIPELINE).from_pretrained(folder, low_cpu_mem_usage=False, add_watermarker=False)
            out = self.train("--from", folder, "--seed", SEED, "--steps", 1, model="sdxl_tiny", data=self.data)
            expected = expected_loss(self.data, CAPTIONS, range(8), pipeline, sdxl_conditions)
            losses.add(report(out)["loss"][0])
            self.assertLess(abs(report(out)["loss"][0] - expected), 1e-5 * expected,
                            f"{word}: {report(out)['loss']} {expected}")
        self.assertEqual(len(losses), 3)

    def test_every_way_trains_alike(self):
        options = ("--steps", 3, "--flip", "yes", "--caption-dropout", 0.4)
        alone = self.learn(*options, "--ranks", 1)
        cache = fresh()
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", cache)):
            with self.subTest(more):
                self.same_training(alone, self.learn(*options, *more), more)
        trains_alike_scattered(self, alone, "--from", SDXL, "--seed", SEED, *options, model="sdxl_tiny", data=self.data)
        self.assertLessEqual({"states", "pooled"}, set(Safetensors(next(cache.glob("captions-*"))).tensors))
        folder = changed(SDXL)
        (folder / "tokenizer_2/merges.txt").write_text((folder / "tokenizer_2/merges.txt").read_text() + "\n")
        line = command("--from", folder, "--seed", SEED, *options, "--encode", "once", "--cache", cache, out=fresh(),
                       model="sdxl_tiny", data=self.data)
        # all results of the second encoder
        self.assertIn("encoded 0 pictures and 10 captions", self.invoke(line, 0).stdout)


class Classes(Case):
    """U-ViT: pictures in folders of classes, without a text encoder."""

    CONFIG = {"_class_name": "UViT", "img_size": 8, "patch_size": 2, "in_chans": 4, "embed_dim": 16, "depth": 6,
              "num_heads": 2, "num_classes": 10}

    @classmethod
    def setUpClass(cls):
        cls.options = {"model": "uvit_tiny", "data": write_classes(3)}
        start = first_weights("uvit_tiny")
        tensors = start.tensors
        cls.folder = with_transformer(cls.CONFIG, tensors, start.shapes)
        labels = bytearray(tensors["label_emb.weight"])
        width = len(labels) // 10
        labels[9 * width:] = labels[:width]  # "no class" equals the first class
        cls.blind = with_transformer(cls.CONFIG, {**tensors, "label_emb.weight": bytes(labels)}, start.shapes)

    def learn(self, folder, *options, **more):
        return self.train("--from", folder, "--seed", SEED, "--steps", 3, *options, **{**self.options, **more})

    def test_every_way_trains_alike(self):
        options = ("--flip", "yes", "--caption-dropout", 0.4)
        alone = self.learn(self.folder, *options, "--ranks", 1)
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", fresh())):
            with self.subTest(more):
                self.same_training(alone, self.learn(self.folder, *options, *more), more)
        trains_alike_scattered(self, alone, "--from", self.folder, "--seed", SEED, "--steps", 3, *options,
                               **self.options)

    def test_positions_are_resampled_where_that_is_asked(self):
        asked = "--resample-positions"
        self.refuses("--from", self.folder, "--size", "24x16", names=["16 x 16", "24 x 16", asked], **self.options)
        self.refuses("--from", self.folder, "--buckets", "16:4", names=["16 x 16", asked], model="uvit_tiny",
                     data=write_classes(3, widths=(16, 28)))
        self.refuses("--from", FROM, asked, names=[asked, "sd_tiny"], model="sd_tiny", data=write_pictures())
        own = self.learn(self.folder, "--ranks", 1)
        self.same_training(own, self.learn(self.folder, asked, "--ranks", 1))
        wide = report(self.learn(self.folder, asked, "--size", "24x16", "--ranks", 2))
        self.assertEqual(wide["planned_peak_bytes"], wide["measured_peak_bytes"])
        self.assertNotEqual(wide["loss"], report(own)["loss"])
        data = write_classes(3, widths=(16, 28, 21))
        options = (asked, "--buckets", "16:4:8-28", "--flip", "yes")
        alone = self.learn(self.folder, *options, "--ranks", 1, "--encode", "each-step", data=data)
        self.assertGreater(len(report(alone)["extents"]), 1)
        for more in (("--ranks", 2), ("--ranks", 2, "--encode", "bubbles"),
                     ("--ranks", 1, "--encode", "once", "--cache", fresh())):
            with self.subTest(more):
                self.same_training(alone, self.learn(self.folder, *options, *more, data=data), more)

    def test_the_model_sees_the_class_and_that_there_is_none(self):
        one = write_classes(1)
        for folder, alike in ((self.blind, True), (self.folder, False)):
            losses = [report(self.learn(folder, "--lr", 1e-30, "--caption-dropout", dropped, data=one))["loss"]
                      for dropped in (0, 1)]
            self.assertEqual(losses[0] == losses[1], alike)

    def test_pictures_by_class(self):
        drawn = []
        for options in (("--class", 0), ("--class", 1), ("--class", 0, "--guidance", 1)):
            drawn.append([])
            for folder in (self.folder, self.blind):
                out = fresh()
                self.invoke([PROGRAM, "--model", "uvit_tiny", "--from", folder, "--out", out, "--steps", 0,
                             "--sample-steps", 5, *options], 0)
                self.assertEqual(json.loads((out / "pictures/metadata.jsonl").read_text()),
                                 {"file_name": "0000.png", "class": options[1]})
                drawn[-1].append((out / "pictures/0000.png").read_bytes())
        self.assertEqual(len({drawn[0][0], drawn[1][0], drawn[2][0]}), 3)
        # guidance away from itself leaves the first class unchanged
        self.assertEqual(drawn[0][1], drawn[2][1])

    def test_refusals(self):
        self.refuses("--from", self.folder, names=["--data", "no class folders"], model="uvit_tiny",
                     data=write_pictures())
        self.refuses("--from", self.folder, "--on-missing-caption", "skip", names=["--on-missing-caption", "classes"],
                     **self.options)
        self.refuses("--from", self.folder, names=["--data", "10 class folders", "only 9"], model="uvit_tiny",
                     data=write_classes(10))
        more = {"model": "uvit_tiny", "data": "synthetic"}
        self.refuses("--from", self.folder, "--class", 9, names=["--class", "from 0 to 8, not 9"], sample=1, **more)
        self.refuses("--from", self.folder, "--prompt", "a", names=["--prompt", "--class"], sample=1, **more)
        self.refuses("--from", self.folder, names=["--sample", "--class"], sample=1, **more)


class Hunyuan(Case):
    """BERT's and T5's states with their masks; no version of diffusers here can check the backbone."""

    CONFIG = {"_class_name": "HunyuanDiT2DModel", "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4,
              "patch_size": 2, "sample_size": 8, "hidden_size": 16, "num_layers": 6, "mlp_ratio": 1.5,
              "learn_sigma": True, "cross_attention_dim": 12, "cross_attention_dim_t5": 16, "pooled_projection_dim": 12,
              "text_len": 5, "text_len_t5": 6}

    @classmethod
    def setUpClass(cls):
        start = first_weights("hunyuan_tiny")
        cls.folder = with_transformer(cls.CONFIG, start.tensors, start.shapes)
        cls.texts = tiny_pipeline.write_hunyuan_texts(cls.folder, CAPTIONS)
        cls.options = {"model": "hunyuan_tiny", "data": write_pictures(widths=(16, 24))}

    def learn(self, *options):
        return self.train("--from", self.folder, "--seed", SEED, *options, **self.options)

    def test_every_way_trains_alike(self):
        import numpy
        import torch

        options = ("--steps", 2, "--caption-dropout", 0.3)
        alone = self.learn(*options, "--ranks", 1)
        self.assertEqual(report(alone)["planned_peak_bytes"], report(alone)["measured_peak_bytes"])
        cache = fresh()
        for more in (("--ranks", 2), ("--ranks", 1, "--encode", "once", "--cache", cache)):
            with self.subTest(more):
                self.same_training(alone, self.learn(*options, *more), more)
        trains_alike_scattered(self, alone, "--from", self.folder, "--seed", SEED, *options, **self.options)
        encoded = Safetensors(next(cache.glob("captions-*"))).tensors
        masks = []
        rows = ["", *(text for text in CAPTIONS if text)]
        for name, (tokenizer, encoder) in zip(("states", "states_2"), self.texts):
            given = tokenizer(rows, padding="max_length", truncation=True, return_tensors="pt")
            with torch.no_grad():
                expected = encoder(given.input_ids, attention_mask=given.attention_mask)[0].numpy()
            found = numpy.frombuffer(encoded[name], "<f4").reshape(expected.shape)
            self.assertLess(float(abs(found - expected).max()), 1e-5 * float(abs(expected).max()), name)
            masks.append(given.attention_mask.numpy())
        mask = numpy.concatenate(masks, axis=1)
        self.assertTrue(numpy.array_equal(numpy.frombuffer(encoded["mask"], "<f4").reshape(mask.shape), mask))

    def test_pictures_by_prompt(self):
        drawn = []
        for prompt in ("a red cat", "photo"):
            out = fresh()
            self.invoke([PROGRAM, "--model", "hunyuan_tiny", "--from", self.folder, "--out", out, "--steps", 0,
                         "--sample-steps", 3, "--prompt", prompt], 0)
            drawn.append((out / "pictures/0000.png").read_bytes())
        self.assertNotEqual(*drawn)


if __name__ == "__main__":
    unittest.main(verbosity=2)
