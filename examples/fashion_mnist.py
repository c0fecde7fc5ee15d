"""Fashion-MNIST as captioned pictures, and whether pictures drawn by prompt show what they should.

    python3 examples/fashion_mnist.py write DIR      # for pulse_train --model sd_fmnist --init:
        DIR/pictures        --data: a shard of the 60,000 training pictures, each with a caption
                            ("a photo of a sneaker")
        DIR/start           --from: a diffusers folder of what does not train, and no weights of the backbone
        DIR/prompts.txt     --prompts: one of each class
    python3 examples/fashion_mnist.py check DIR      # DIR: what pulse_train has drawn by these prompts, RUN/pictures
        prints the share of pictures whose nearest neighbour among the training pictures is of their prompt's class

The text encoder's weights are random: of ten names any encoder that tells them apart will do. Needs NumPy and Pillow;
the data are those of Debian's dataset-fashion-mnist.
"""

import argparse
import collections
import gzip
import io
import json
import pathlib
import re
import struct
import sys
import tarfile

import numpy
from PIL import Image

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = ("a t-shirt", "trousers", "a pullover", "a dress", "a coat", "a sandal", "a shirt", "a sneaker", "a bag",
           "an ankle boot")
PHRASES = ("a photo of {}", "a picture of {}", "an image of {}", "{}")
PROMPT = PHRASES[0]

# As in pulse_train's sd_fmnist.
TOKENS, VOCABULARY, FEATURES, INNER, LAYERS, HEADS = 9, 640, 32, 64, 2, 2
UNET = {
    "_class_name": "UNet2DConditionModel", "sample_size": 28, "in_channels": 1, "out_channels": 1,
    "block_out_channels": [16, 32, 64], "down_block_types": ["DownBlock2D", "DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D", "UpBlock2D"], "norm_num_groups": 8, "cross_attention_dim": 32,
    "attention_head_dim": [1, 2, 4], "use_linear_projection": True}
SCHEDULER = {"_class_name": "DDIMScheduler", "num_train_timesteps": 1000, "beta_schedule": "squaredcos_cap_v2",
             "prediction_type": "v_prediction", "timestep_spacing": "trailing", "clip_sample": True}
INDEX = {"_class_name": "DiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"],
         "scheduler": ["diffusers", "DDIMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
         "tokenizer": ["transformers", "CLIPTokenizer"]}


def read_training_pictures():
    """28x28 bytes per picture, and its class."""
    with gzip.open(DATA / "train-images-idx3-ubyte.gz") as images:
        pictures = numpy.frombuffer(images.read(), numpy.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(DATA / "train-labels-idx1-ubyte.gz") as labels:
        return pictures, numpy.frombuffer(labels.read(), numpy.uint8, offset=8)


def write_pictures(shard, count, random):
    pictures, classes = read_training_pictures()
    with tarfile.open(shard, "w") as out:
        def add(name, data):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))

        for number, (picture, label) in enumerate(zip(pictures[:count], classes)):
            png = io.BytesIO()
            Image.fromarray(picture).save(png, "png")
            add(f"{number:05}.png", png.getvalue())
            add(f"{number:05}.txt", PHRASES[random.integers(len(PHRASES))].format(CLASSES[label]).encode())


def learn_merges(texts):
    """Byte-pair merges, in order, until every word is one token."""
    words = collections.Counter(word for text in texts for word in re.findall(r"[a-z]+|[^a-z ]", text))
    parts = {word: (*word[:-1], word[-1] + "</w>") for word in words}
    merges = []
    while True:
        pairs = collections.Counter()
        for word, split in parts.items():
            for pair in zip(split, split[1:]):
                pairs[pair] += words[word]
        if not pairs:
            return merges
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word, split in parts.items():
            joined = []
            for part in split:
                if joined and (joined[-1], part) == best:
                    joined[-1] += part
                else:
                    joined.append(part)
            parts[word] = tuple(joined)


def write_tokenizer(folder):
    # CLIP's vocabulary: a letter per byte, inside a word and at its end, merges, and the start and end of a text.
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(byte) for byte in plain] + [chr(0x100 + i) for i in range(256 - len(plain))]
    merges = learn_merges([phrase.format(name) for phrase in PHRASES for name in CLASSES])
    tokens = [*letters, *(letter + "</w>" for letter in letters), *map("".join, merges), "<|startoftext|>",
              "<|endoftext|>"]
    folder.mkdir()
    write_json(folder / "vocab.json", {token: number for number, token in enumerate(tokens)})
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer", "model_max_length": TOKENS})


def write_text_encoder(folder, random):
    tensors = {}

    def linear(name, inputs, outputs):
        tensors[name + ".weight"] = random.standard_normal((outputs, inputs)) / inputs ** 0.5
        tensors[name + ".bias"] = numpy.zeros(outputs)

    def norm(name):
        tensors[name + ".weight"] = numpy.ones(FEATURES)
        tensors[name + ".bias"] = numpy.zeros(FEATURES)

    tensors["text_model.embeddings.token_embedding.weight"] = random.standard_normal((VOCABULARY, FEATURES))
    tensors["text_model.embeddings.position_embedding.weight"] = 0.1 * random.standard_normal((TOKENS, FEATURES))
    for layer in range(LAYERS):
        name = f"text_model.encoder.layers.{layer}."
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            linear(name + "self_attn." + part, FEATURES, FEATURES)
        norm(name + "layer_norm1")
        linear(name + "mlp.fc1", FEATURES, INNER)
        linear(name + "mlp.fc2", INNER, FEATURES)
        norm(name + "layer_norm2")
    norm("text_model.final_layer_norm")

    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        values = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": tensors[name].shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    write_json(folder / "config.json", {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "vocab_size": VOCABULARY,
        "hidden_size": FEATURES, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "max_position_embeddings": TOKENS})


def write_json(file, value):
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write(folder, count):
    random = numpy.random.default_rng(1)
    start = folder / "start"
    for one in (folder / "pictures", start / "unet", start / "scheduler"):
        one.mkdir(parents=True)
    write_pictures(folder / "pictures" / "fashion-mnist.tar", count, random)
    write_json(start / "model_index.json", INDEX)
    write_json(start / "unet" / "config.json", UNET)
    write_json(start / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_tokenizer(start / "tokenizer")
    write_text_encoder(start / "text_encoder", random)
    (folder / "prompts.txt").write_text("".join(PROMPT.format(name) + "\n" for name in CLASSES))


def check(folder):
    pictures, classes = read_training_pictures()
    known = pictures.reshape(len(pictures), -1).astype(numpy.float32)
    lengths = (known ** 2).sum(axis=1)
    right = collections.Counter()
    drawn = collections.Counter()
    for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        wanted = [PROMPT.format(name) for name in CLASSES].index(entry["text"])
        picture = numpy.asarray(Image.open(folder / entry["file_name"]).convert("L"), numpy.float32).reshape(-1)
        nearest = numpy.argmin(lengths - 2 * (known @ picture))
        drawn[wanted] += 1
        right[wanted] += classes[nearest] == wanted
    for wanted, count in sorted(drawn.items()):
        print(f"{CLASSES[wanted]:14} {right[wanted]:3} of {count}")
    print(f"{100 * sum(right.values()) / sum(drawn.values()):.1f} % of {sum(drawn.values())} pictures "
          "are nearest to a training picture of their prompt's class")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--count", type=int, metavar="N", help="write only the first N pictures")
    given = parser.parse_args()
    try:
        if given.what == "write":
            write(given.folder, given.count)
        else:
            check(given.folder)
    except (OSError, ValueError) as fault:
        sys.exit(f"fashion_mnist.py: {fault}")


if __name__ == "__main__":
    main()
