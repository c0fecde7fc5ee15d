"""Diffusers folders that fit tiny models of pulse_train, written by diffusers and transformers.

`write` raises ImportError if a package is missing; WHEELS is where PyPI's packages are, or nothing.
"""

import json
import os
import random
import sys
import warnings

from files import write_png


def silence(wheels):
    """Makes the packages importable, and silences everything but messages about weights."""
    sys.path[:0] = [str(wheels)] if wheels else []
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", USE_TF="0",
                      TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    warnings.filterwarnings("ignore")


# CLIP's vocabulary: 256 bytes, inside a word and at its end; merges; and the begin and end of a text.
MERGES = [("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o</w>"), ("o", "f</w>"), ("r", "e"), ("re", "d</w>"),
          ("c", "a"), ("ca", "t</w>")]


def write_vocabulary(folder):
    """Writes the tokenizer's files, without any package."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters = [chr(code) for code in printable] + [chr(0x100 + n) for n in range(0x100 - len(printable))]
    words = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in MERGES]
    words += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))


def write_captioned(room, run):
    """A folder of random weights, written by run(*options) of pulse_train, and captioned pictures for it, without any
    package."""
    tokenizer, folder, data = room / "tokenizer", room / "diffusers", room / "pictures"
    write_vocabulary(tokenizer)
    run("--init", "--steps", 0, "--export", folder, "--tokenizer", tokenizer)
    data.mkdir()
    source = random.Random(14)
    for index, text in enumerate(("a red cat", "photo of a car", "", "cat")):
        write_png(data / f"{index}.png", 16, source.randbytes(3 * 16 * 16))
        (data / f"{index}.txt").write_text(text)
    return folder, data


def add_shapes(data):
    """Adds pictures of other shapes to those of write_captioned."""
    source = random.Random(3)
    shapes = ((40, 10), (20, 20), (22, 20), (10, 44), (41, 11), (19, 20), (30, 31), (12, 40), (20, 22), (44, 12),
              (21, 20))
    for index, (width, height) in enumerate(shapes):
        write_png(data / f"shape{index}.png", width, source.randbytes(3 * width * height))
        (data / f"shape{index}.txt").write_text(f"a red cat of {index % 3}")


def write_tokenizer(folder, **options):
    from transformers import CLIPTokenizer

    write_vocabulary(folder)
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=7, **options)


def unet():
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24, attention_head_dim=(1, 2), use_linear_projection=True)


def scheduler(**options):
    from diffusers import DDIMScheduler

    usual = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012, "clip_sample": False,
             "set_alpha_to_one": False, "steps_offset": 1, "prediction_type": "v_prediction"}
    return DDIMScheduler(**{**usual, **options})


def autoencoder():
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)


def text_config(**options):
    from transformers import CLIPTextConfig

    return CLIPTextConfig(vocab_size=640, intermediate_size=48, num_hidden_layers=2,
                          max_position_embeddings=7, **options)


def write(folder, seed=14, **scheduling):
    """Writes and returns a StableDiffusionPipeline of random weights."""
    import torch
    from diffusers import StableDiffusionPipeline
    from transformers import CLIPTextModel

    torch.manual_seed(seed)
    vae = autoencoder()
    text = CLIPTextModel(text_config(hidden_size=24, num_attention_heads=3))
    pipeline = StableDiffusionPipeline(
        vae=vae, text_encoder=text, tokenizer=write_tokenizer(folder.parent / (folder.name + ".tokenizer")),
        unet=unet(), scheduler=scheduler(**scheduling), safety_checker=None, feature_extractor=None,
        requires_safety_checker=False)
    pipeline.save_pretrained(folder)
    return pipeline


def write_sdxl(folder, seed=15, **scheduling):
    """Writes and returns a StableDiffusionXLPipeline of random weights."""
    import torch
    from diffusers import StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    torch.manual_seed(seed)
    backbone = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2), cross_attention_dim=24, attention_head_dim=(1, 2),
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=12 + 6 * 8)
    tokenizers = [write_tokenizer(folder.parent / (folder.name + name), **options)
                  for name, options in ((".tokenizer", {}), (".tokenizer_2", {"pad_token": "!"}))]
    pipeline = StableDiffusionXLPipeline(
        vae=autoencoder(), unet=backbone, scheduler=scheduler(**scheduling), tokenizer=tokenizers[0],
        tokenizer_2=tokenizers[1], text_encoder=CLIPTextModel(text_config(hidden_size=8, num_attention_heads=2)),
        text_encoder_2=CLIPTextModelWithProjection(
            text_config(hidden_size=16, num_attention_heads=2, projection_dim=12, eos_token_id=2)),
        add_watermarker=False)
    pipeline.save_pretrained(folder)
    return pipeline


def write_hunyuan_texts(folder, corpus, seed=16):
    """Writes BERT and T5 with random weights and their tokenizers into a folder; returns each pair."""
    import sentencepiece
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer, T5Config, T5EncoderModel, T5Tokenizer

    torch.manual_seed(seed)
    files = folder.parent / (folder.name + ".vocabularies")
    (files / "t5").mkdir(parents=True)
    letters = [chr(ord("a") + i) for i in range(26)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), "red",
             "photo"]
    (files / "vocab.txt").write_text("\n".join(words) + "\n")
    (files / "corpus").write_text("\n".join(corpus))
    sentencepiece.SentencePieceTrainer.train(
        input=str(files / "corpus"), model_prefix=str(files / "t5/spiece"), vocab_size=40, hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2)
    texts = [
        (BertTokenizer(str(files / "vocab.txt"), model_max_length=5),
         BertModel(BertConfig(vocab_size=64, hidden_size=12, intermediate_size=24, num_hidden_layers=2,
                              num_attention_heads=2, max_position_embeddings=8)).eval()),
        (T5Tokenizer.from_pretrained(files / "t5", extra_ids=0, legacy=True, model_max_length=6),
         T5EncoderModel(T5Config(vocab_size=128, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
                                 feed_forward_proj="gated-gelu")).eval())]
    for place, (tokenizer, encoder) in zip(("", "_2"), texts):
        tokenizer.save_pretrained(folder / f"tokenizer{place}")
        encoder.save_pretrained(folder / f"text_encoder{place}")
    return texts
