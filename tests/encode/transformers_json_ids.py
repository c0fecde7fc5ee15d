"""Saves the tokenizers of transformers_ids.py with the newest transformers, and writes their ids of the texts.

    transformers_json_ids.py FOLDER WHEELS       (WHEELS: where PyPI's newest packages are)
Ends with 77 if a package is missing. FOLDER is the output of transformers_ids.py. FOLDER/NAME_json gets the files
tokenizer.json and tokenizer_config.json, and FOLDER/NAME_json.ids the ids of the tokenizer read from them, in the
format of transformers_ids.py.
"""

import os
import struct
import sys
import warnings
from pathlib import Path

FOLDER = Path(sys.argv[1])
sys.path[:0] = sys.argv[2:]
os.environ.update(TRANSFORMERS_VERBOSITY="critical", HF_HUB_OFFLINE="1", USE_TORCH="0")
warnings.filterwarnings("ignore")
try:
    import sentencepiece  # noqa: F401
    import transformers
    from tokenizers import AddedToken
    from transformers import AutoTokenizer, BertTokenizer, CLIPTokenizer, T5Tokenizer
except ImportError as missing:
    sys.exit(print(missing) or 77)
if int(transformers.__version__.split(".")[0]) < 5:
    sys.exit(print("no transformers 5") or 77)

data = (FOLDER / "texts").read_bytes()
texts = []
while data:
    (size,) = struct.unpack_from("<I", data)
    texts.append(data[4 : 4 + size].decode())
    data = data[4 + size :]


def write_ids(name, tokenizer, length, special):
    (FOLDER / f"{name}.length").write_text(str(length))
    with open(FOLDER / f"{name}.ids", "wb") as out:
        fixed = tokenizer(texts, padding="max_length", truncation=True, max_length=length)
        whole = tokenizer(texts, add_special_tokens=False)
        for ids, mask, all_ids in zip(fixed.input_ids, fixed.attention_mask, whole.input_ids):
            cut = max(0, len(all_ids) - (length - special))
            out.write(struct.pack(f"<{2 * length + 1}i", *ids, *mask, cut))


def save(name, made, tokenizer, special, added=()):
    if added:
        tokenizer.add_tokens(list(added))
    folder = FOLDER / f"{made}_json"
    tokenizer.save_pretrained(folder)
    assert sorted(os.listdir(folder)) == ["tokenizer.json", "tokenizer_config.json"]
    length = int((FOLDER / f"{name}.length").read_text())
    write_ids(f"{made}_json", AutoTokenizer.from_pretrained(folder), length, special)


# words of the texts, matched before or after normalizing, with or without the surrounding spaces
more = [AddedToken("Title", normalized=True), AddedToken("CAFÉ"), AddedToken("<lora:", normalized=False, lstrip=True),
        AddedToken("sofa", normalized=True, lstrip=True, rstrip=True)]
for name, kind, special in (
    ("sd15", CLIPTokenizer, 2),
    ("sd2", CLIPTokenizer, 2),
    ("added", CLIPTokenizer, 2),
    ("bert", BertTokenizer, 2),
    ("bert_cased", BertTokenizer, 2),
    ("bert_plain", BertTokenizer, 2),
    ("t5", T5Tokenizer, 1),
    ("t5_old", T5Tokenizer, 1),
    ("mt5", T5Tokenizer, 1),
):
    save(name, name, kind.from_pretrained(FOLDER / name), special)
for name, kind, special in (("sd15", CLIPTokenizer, 2), ("bert", BertTokenizer, 2), ("t5", T5Tokenizer, 1)):
    save(name, f"{name}_more", kind.from_pretrained(FOLDER / name), special, more)
