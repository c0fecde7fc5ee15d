"""Writes tokenizer folders, 2,000 texts and their ids by transformers, for transformers_parity.cpp.

    transformers_ids.py FOLDER WHEELS            (WHEELS: where PyPI's packages are, or nothing)
Ends with 77 if a package is missing. FOLDER/texts holds the texts, each after its size in 4 bytes. FOLDER/NAME is a
tokenizer's folder, and FOLDER/NAME.ids holds for each text, as int32: ids and mask of the length in NAME.length, and
the number of ids that were cut.
"""

import gzip
import importlib.util
import json
import os
import random
import shutil
import struct
import sys
import warnings
from pathlib import Path

FOLDER = Path(sys.argv[1])
sys.path[:0] = sys.argv[2:]
os.environ.update(
    TRANSFORMERS_VERBOSITY="critical", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1", USE_TORCH="0"
)
warnings.filterwarnings("ignore")
try:
    import sentencepiece
    from transformers import BertTokenizer, CLIPTokenizerFast, T5Tokenizer
    from transformers.models.clip.tokenization_clip import bytes_to_unicode
except ImportError as missing:
    sys.exit(print(missing) or 77)
found = importlib.util.find_spec("open_clip")
if found is None:
    sys.exit(print("no open_clip") or 77)
draw = random.Random(14)

ENGLISH = """a photo of the sneaker an oil painting by of two cats, standing on red sofa; it's sunny!
they're don't I'M we'll he'd 4k 8k 1/2 3.14 2026 masterpiece (best quality:1.2) C++ e-mail@example.com
https://pulse.example/?q=1&r=2 snake_case UPPER Title camelCase extraordinarily misunderstanding
<lora:name:0.8> [brackets] {braces} #hash $5 100% ~ ^ ` | \\ "quoted" 'single' ... ---""".split()
ACCENTS = """café naïve Ångström Žižek señor façade über Straße ẞ İstanbul ılık Œuvre Ǆ ǅ ﬁne ﬀ ２０２６ Ａｂｃ
Ω Å ΐ ΰ ώρα Ελλάδα Москва Київ""".split()
CHINESE = "一只猫坐在沙发上 中文字符。 日本語のテキスト カタカナ 한국어 텍스트 𠀀𪚥 豈 〇 「括弧」 ，。！？".split()
EMOJI = "😀 👩‍👩‍👧‍👦 👍🏽 🇩🇪 ❤️ ☃ 🏳️‍🌈 1️⃣ 🧑🏿‍🚀 ✨ ™ © ½ Ⅷ ① ² ༳ ٣ ৩".split()
RIGHT_TO_LEFT = ["שלום עולם", "שָׁלוֹם", "مرحبا بالعالم", "مُحَمَّد", "\u200fabc\u200e", "\u202eabc\u202c", "،؟؛"]
INDIC = "हिन्दी क़ ক্ষ தமிழ் ไทย ภาษาไทย ខ្មែរ မြန်မာ བོད་ཡིག".split()
SPECIAL = """<|startoftext|> <|endoftext|> <|EndOfText|> [CLS] [SEP] [MASK] [PAD] [UNK] [cls] </s> <unk> <pad>
<extra_id_0> <extra_id_99> <extra_id_100> <s> !  ▁ ##a </w>""".split()


def points(ranges):
    """Characters of hexadecimal ranges."""
    bounds = [[int(end, 16) for end in part.split("-")] for part in ranges.split()]
    return [chr(c) for ends in bounds for c in range(ends[0], ends[-1] + 1)]


SPACES = points("9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000")
CONTROLS = points("0-8 E-1F 7F-80 9F AD 200B-200D 2060 FEFF FFFD-FFFF E000 E0001 F0000 10FFFF")
MARKS = points("300-301 308 323 327 30A 345 20DD 5B0 64B 93C 3099 FE0F")
# letters and marks of blocks that no longer grow, so that Python, tokenizers and utf8proc agree
ANY = points(
    "20-2FF 300-36F 400-52F 5D0-5EA 621-652 905-94D 1100-1112 1E00-1F15 2010-2027 2030-205E 2100-218B 2190-23FF "
    "2500-27BF 3041-3096 4E00-9FA5 AC00-D7A3 F900-FA6D FB00-FB06 FF01-FFBE 10330-1034A 1D400-1D454 "
    "1F300-1F5FF 20000-20100"
)


def mark(word):
    at = draw.randrange(len(word) + 1)
    return word[:at] + "".join(draw.choices(MARKS, k=draw.randint(1, 3))) + word[at:]


def text(number):
    kind = number % 10
    words = draw.randint(1, 120 if number % 25 == 0 else 20)
    pools = {
        0: ENGLISH,
        1: ENGLISH + ACCENTS,
        2: CHINESE + ENGLISH,
        3: EMOJI + ENGLISH,
        4: RIGHT_TO_LEFT + INDIC,
        5: SPECIAL + ENGLISH,
        6: ENGLISH + CONTROLS + MARKS,
        7: ACCENTS + CHINESE + EMOJI + RIGHT_TO_LEFT + INDIC + SPECIAL,
    }
    if kind in pools:
        chosen = draw.choices(pools[kind], k=words)
        if kind in (1, 6):
            chosen = [mark(w) if draw.random() < 0.5 else w for w in chosen]
        spaces = SPACES if number % 3 == 0 else [" "]
        return "".join(w + ("" if draw.random() < 0.2 else draw.choice(spaces) * draw.randint(1, 2)) for w in chosen)
    if kind == 8:
        return "".join(draw.choice(ANY) for _ in range(words * 3))
    return "".join(
        draw.choice(draw.choice([SPACES, CONTROLS, MARKS, EMOJI, SPECIAL, ["a", "b", "Z", "'s", "'", "9"]]))
        for _ in range(words)
    )


def long(unit):
    return (unit * (10000 // len(unit) + 1))[:10000]


texts = ["", " ", "\n", "\0", "a", "!", "\u0301", "</s> </s>", "[SEP]", "<|endoftext|>", "x" * 100, "x" * 101]
texts += [
    long(unit) for unit in ("a", " ", "word ", "😀", "中", "!", "e\u0301", "\u0301", "'s", "<|endoftext|>", "1", "\0")
]
texts += [long(unit) for unit in ("ab" * 7 + "-", "שלום ", "antidisestablishmentarianism")]
texts += [text(n) for n in range(2000 - len(texts))]
assert len(texts) == 2000
with open(FOLDER / "texts", "wb") as out:
    for t in texts:
        out.write(struct.pack("<I", len(t.encode())) + t.encode())


def put(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode())


def write_ids(name, tokenizer, length, special):
    (FOLDER / f"{name}.length").write_text(str(length))
    with open(FOLDER / f"{name}.ids", "wb") as out:
        for at in range(0, len(texts), 100):
            some = texts[at : at + 100]
            fixed = tokenizer(some, padding="max_length", truncation=True, max_length=length)
            whole = tokenizer(some, add_special_tokens=False)
            for ids, mask, all_ids in zip(fixed.input_ids, fixed.attention_mask, whole.input_ids):
                cut = max(0, len(all_ids) - (length - special))
                out.write(struct.pack(f"<{2 * length + 1}i", *ids, *mask, cut))


# CLIP as in SD 1.5 and SD 2, and a saved copy with an added word; the configs are those of the published folders
merges = gzip.open(Path(found.submodule_search_locations[0]) / "bpe_simple_vocab_16e6.txt.gz").read().decode()
merges = merges.split("\n")[1 : 49152 - 256 - 2 + 1]
letters = list(bytes_to_unicode().values())
vocabulary = (
    letters
    + [x + "</w>" for x in letters]
    + ["".join(m.split()) for m in merges]
    + ["<|startoftext|>", "<|endoftext|>"]
)
assert len(vocabulary) == len(set(vocabulary)) == 49408


def token(content, **more):
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False, **more}


for name, pad in (("sd15", "<|endoftext|>"), ("sd2", "!")):
    folder = FOLDER / name
    put(folder / "vocab.json", {t: i for i, t in enumerate(vocabulary)})
    put(folder / "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    roles = {
        "bos_token": token("<|startoftext|>"),
        "eos_token": token("<|endoftext|>"),
        "unk_token": token("<|endoftext|>"),
    }
    put(
        folder / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "do_lower_case": True,
            "errors": "replace",
            "model_max_length": 77,
            "name_or_path": "openai/clip-vit-large-patch14",
            "pad_token": "<|endoftext|>",
            "special_tokens_map_file": "./special_tokens_map.json",
            "tokenizer_class": "CLIPTokenizer",
            **{role: {"__type": "AddedToken", **value} for role, value in roles.items()},
        },
    )
    put(folder / "special_tokens_map.json", {"pad_token": pad, **roles})
    clip = CLIPTokenizerFast.from_pretrained(folder)
    write_ids(name, clip, 77, 2)
clip.add_tokens(["<cat>"])
clip.save_pretrained(FOLDER / "added")
write_ids("added", CLIPTokenizerFast.from_pretrained(FOLDER / "added"), 77, 2)

# BERT: most letters of the texts, and pieces of words
letters = [c for c in sorted(set("".join(texts))) if c.isprintable() and c != " " and draw.random() < 0.9]
pieces = sorted(
    {
        w[i:j]
        for w in ENGLISH + ACCENTS
        for w in (w, w.lower())
        for i in range(len(w))
        for j in range(i + 2, len(w) + 1)
        if draw.random() < 0.3 and w.isalpha()
    }
)
lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(a + c for a in ("", "##") for c in letters + pieces)]
for name, config in (
    ("bert", {}),
    ("bert_cased", {"do_lower_case": False}),
    ("bert_plain", {"strip_accents": False, "tokenize_chinese_chars": False}),
):
    put(FOLDER / name / "vocab.txt", "\n".join(lines) + "\n")
    put(
        FOLDER / name / "tokenizer_config.json",
        {"do_lower_case": True, "model_max_length": 77, "tokenizer_class": "BertTokenizer", **config},
    )
    write_ids(name, BertTokenizer.from_pretrained(FOLDER / name), 77, 2)

# T5 with its extra ids; mT5 without, here with byte fallback for unknown text
corpus = FOLDER / "corpus"
put(corpus, "\n".join(t.replace("\n", " ").replace("\0", " ") for t in texts if len(t) < 1000))
for name, extra, options in (("t5", 100, {}), ("mt5", 0, {"byte_fallback": True})):
    (FOLDER / name).mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(FOLDER / name / "spiece"),
        vocab_size=4000,
        hard_vocab_limit=False,
        character_coverage=0.98,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    t5 = T5Tokenizer(str(FOLDER / name / "spiece.model"), extra_ids=extra, legacy=True, model_max_length=64)
    t5.save_pretrained(FOLDER / name)
    write_ids(name, t5, 64, 1)
shutil.copytree(FOLDER / "t5", FOLDER / "t5_old")
(FOLDER / "t5_old" / "added_tokens.json").unlink()
config = json.loads((FOLDER / "t5_old" / "tokenizer_config.json").read_text())
del config["added_tokens_decoder"]
put(FOLDER / "t5_old" / "tokenizer_config.json", config)
write_ids("t5_old", T5Tokenizer.from_pretrained(FOLDER / "t5_old"), 64, 1)
