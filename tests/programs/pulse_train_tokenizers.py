"""pulse_train writes folders with tokenizers saved by the newest transformers, and the newest diffusers reads
them.

Usage: pulse_train_tokenizers.py PROGRAM WHEELS [unittest arguments]     (WHEELS: where PyPI's newest packages are)
Ends with 77 when a package is missing.
"""

import json
import sys
import unittest

import tiny_pipeline

WHEELS = sys.argv.pop(2)
from pulse_train import PROGRAM, ROOM, Case, fresh, report

tiny_pipeline.silence(WHEELS)
try:
    import sentencepiece
    import transformers
    from diffusers import StableDiffusionPipeline
    from transformers import AutoTokenizer, BertTokenizer, CLIPTokenizer, T5Tokenizer
except ImportError as missing:
    sys.exit(print(f"skipped: {missing}") or 77)
if int(transformers.__version__.split(".")[0]) < 5:
    sys.exit(print("skipped: no transformers 5") or 77)

FILES = ["tokenizer.json", "tokenizer_config.json"]
TEXTS = ["a red cat", "photo of a car", "", "Red PHOTO!"]


def save(kind, source, folder, length):
    kind.from_pretrained(source, model_max_length=length).save_pretrained(folder)
    return folder


def write_sources():
    """Vocabularies in the older formats; one folder per tokenizer."""
    tiny_pipeline.write_vocabulary(ROOM / "clip")
    letters = [chr(ord("a") + i) for i in range(26)]
    (ROOM / "bert").mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), "red",
             "photo"]
    (ROOM / "bert/vocab.txt").write_text("\n".join(words) + "\n")
    (ROOM / "t5").mkdir()
    (ROOM / "corpus").write_text("\n".join(TEXTS * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(ROOM / "corpus"), model_prefix=str(ROOM / "t5/spiece"), vocab_size=40, hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2)
    (ROOM / "t5/tokenizer_config.json").write_text(json.dumps({"extra_ids": 0}))


class Tokenizers(Case):
    @classmethod
    def setUpClass(cls):
        write_sources()
        save(CLIPTokenizer, ROOM / "clip", ROOM / "new/tokenizer", 7)
        save(BertTokenizer, ROOM / "bert", ROOM / "hunyuan/tokenizer", 5)
        save(T5Tokenizer, ROOM / "t5", ROOM / "hunyuan/tokenizer_2", 6)

    def make(self, model, tokenizer):
        folder = fresh()
        self.invoke([PROGRAM, "--model", model, "--init", "--steps", 0, "--export", folder,
                     "--tokenizer", tokenizer], 0)
        return folder

    def same(self, made, given):
        """The folder has the files unchanged, and transformers reads the same tokenizer from it."""
        self.assertEqual({file.name: file.read_bytes() for file in made.iterdir()},
                         {name: (given / name).read_bytes() for name in FILES})
        one, other = (AutoTokenizer.from_pretrained(folder)(TEXTS, padding="max_length", truncation=True).input_ids
                      for folder in (made, given))
        self.assertEqual(one, other)

    def test_the_newest_diffusers_reads_what_is_written(self):
        folder = self.make("sd_tiny", ROOM / "new/tokenizer")
        self.same(folder / "tokenizer", ROOM / "new/tokenizer")
        read = StableDiffusionPipeline.from_pretrained(folder)
        read.set_progress_bar_config(disable=True)
        self.assertIsInstance(read.tokenizer, CLIPTokenizer)
        drawn = read("a red cat", height=16, width=16, num_inference_steps=2, output_type="np").images
        self.assertEqual(drawn.shape, (1, 16, 16, 3))

    def test_each_text_encoder_has_its_own(self):
        folder = self.make("hunyuan_tiny", ROOM / "hunyuan")
        for name in ("tokenizer", "tokenizer_2"):
            self.same(folder / name, ROOM / "hunyuan" / name)

    def test_a_run_is_that_of_the_older_files(self):
        """Captions get the same ids, and so the run has the same losses."""
        older = ROOM / "older/tokenizer"
        tiny_pipeline.write_vocabulary(older)
        losses = []
        for tokenizer in (older, ROOM / "new/tokenizer"):
            folder, data = self.make("sd_tiny", tokenizer), fresh()
            data.mkdir()
            for index, text in enumerate(TEXTS):
                tiny_pipeline.write_png(data / f"{index}.png", 16, bytes(range(256)) * 3)
                (data / f"{index}.txt").write_text(text)
            out = self.train("--from", folder, "--steps", 2, model="sd_tiny", data=data)
            losses.append(report(out)["loss"])
        self.assertEqual(*losses)

    def test_what_is_unknown_is_refused_with_the_option(self):
        damaged = ROOM / "damaged"
        damaged.mkdir()
        whole = json.loads((ROOM / "new/tokenizer/tokenizer.json").read_text())
        whole["model"]["dropout"] = 0.1
        (damaged / "tokenizer.json").write_text(json.dumps(whole))
        folder = fresh()
        self.refuses(raw=[PROGRAM, "--model", "sd_tiny", "--init", "--steps", 0, "--export", folder,
                          "--tokenizer", damaged],
                     names=["--tokenizer", "tokenizer.json", "model.dropout is 0.1"])
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
