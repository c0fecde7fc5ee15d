"""Writes text encoders of random weights, ids and transformers' results for them, for text_parity.cpp.

    transformers_states.py FOLDER WHEELS         (WHEELS: where PyPI's packages are, or nothing)
Ends with 77 if a package is missing. FOLDER/NAME/model.safetensors is a model as transformers saves it.
FOLDER/NAME.safetensors has ids and mask, states and, for models that pool, pooled, all as F32. FOLDER/buckets has T5's
bucket for each distance from -600 to 600, as int32.
"""

import os
import sys
import warnings
from pathlib import Path

FOLDER = Path(sys.argv[1])
sys.path[:0] = sys.argv[2:]
os.environ.update(
    TRANSFORMERS_VERBOSITY="critical", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1", USE_TF="0"
)
warnings.filterwarnings("ignore")
try:
    import numpy
    import torch
    from safetensors.torch import save_file
    from transformers import (
        BertConfig,
        BertModel,
        CLIPTextConfig,
        CLIPTextModel,
        CLIPTextModelWithProjection,
        MT5Config,
        MT5EncoderModel,
        T5Config,
        T5EncoderModel,
    )
    from transformers.models.t5.modeling_t5 import T5Attention
except ImportError as missing:
    sys.exit(print(missing) or 77)
torch.manual_seed(14)
BATCH = 2


def redraw(model, query=""):
    """Sets weights that preserve the signal's size; transformers' own are so small that a layer changes little."""
    for name, p in model.named_parameters():
        with torch.no_grad():
            if p.dim() < 2:
                p.normal_(0.0, 0.2).add_(1.0 if name.endswith("weight") else 0.0)  # of a norm, or a bias
            elif "embed" in name or "shared" in name or "relative" in name:
                p.normal_()
            else:
                p.normal_(0.0, p.shape[1] ** -0.5)
                if query and name.endswith(query):
                    p.mul_(model.config.d_kv**-0.5)


def write(name, model, ids, states, mask=None, pooled=None, query=""):
    """`states` and `pooled` select what is compared from the model's output."""
    redraw(model, query)
    model.eval().save_pretrained(FOLDER / name, safe_serialization=True)
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    tensors = {"ids": ids, "mask": torch.ones_like(ids) if mask is None else mask, "states": states(out)}
    if pooled:
        tensors["pooled"] = pooled(out)
    save_file({key: value.float().contiguous() for key, value in tensors.items()}, FOLDER / f"{name}.safetensors")


def clip_ids(vocabulary, tokens, end):
    """Texts of several lengths, padded with the end token."""
    ids = torch.randint(3, vocabulary - 2, (BATCH, tokens))
    for b in range(BATCH):
        ids[b, 0] = vocabulary - 2
        ids[b, 3 + 5 * b :] = end
    return ids


def padded(vocabulary, tokens):
    """Ids, and masks of several lengths."""
    ids = torch.randint(1, vocabulary, (BATCH, tokens))
    mask = torch.ones_like(ids)
    for b in range(BATCH):
        mask[b, tokens - 1 - 7 * b :] = 0
    return ids * mask, mask


def clip(name, projects=False, before=0, end=2, **config):
    config = CLIPTextConfig(eos_token_id=end, bos_token_id=0, pad_token_id=1, **config)
    ids = clip_ids(config.vocab_size, config.max_position_embeddings, config.vocab_size - 1 if end == 2 else end)
    write(
        name,
        (CLIPTextModelWithProjection if projects else CLIPTextModel)(config),
        ids,
        lambda out: out.hidden_states[-1 - before] if before else out.last_hidden_state,
        pooled=(lambda out: out.text_embeds) if projects else None,
    )


def bert(name, tokens, **config):
    model = BertModel(BertConfig(**config))
    ids, mask = padded(model.config.vocab_size, tokens)
    write(name, model, ids, lambda out: out.last_hidden_state, mask)


def t5(name, kind, config, tokens, **more):
    model = kind(config(feed_forward_proj="gated-gelu", **more))
    ids, mask = padded(model.config.vocab_size, tokens)
    write(name, model, ids, lambda out: out.last_hidden_state, mask, query=".q.weight")


tiny = {"vocab_size": 99, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3}
clip("tiny_clip", hidden_act="quick_gelu", max_position_embeddings=21, num_hidden_layers=3, **tiny)
clip(
    "tiny_bigg", True, 1, 90, hidden_act="gelu", max_position_embeddings=21, num_hidden_layers=3, projection_dim=10,
    **tiny
)
clip("tiny_sdxl", False, 1, hidden_act="quick_gelu", max_position_embeddings=21, num_hidden_layers=3, **tiny)
bert("tiny_bert", 21, num_hidden_layers=2, max_position_embeddings=30, **tiny)
small = {"vocab_size": 99, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_heads": 3, "num_layers": 3}
t5(
    "tiny_t5",
    T5EncoderModel,
    T5Config,
    45,
    relative_attention_num_buckets=16,
    relative_attention_max_distance=20,
    **small,
)
t5("tiny_mt5", MT5EncoderModel, MT5Config, 45, **small)

one = {"vocab_size": 300, "num_hidden_layers": 1}
clip(
    "wide_l",
    hidden_act="quick_gelu",
    hidden_size=768,
    intermediate_size=3072,
    num_attention_heads=12,
    **one,
)
clip("wide_h", hidden_act="gelu", hidden_size=1024, intermediate_size=4096, num_attention_heads=16, **one)
clip(
    "wide_bigg",
    True,
    hidden_act="gelu",
    hidden_size=1280,
    intermediate_size=5120,
    num_attention_heads=20,
    projection_dim=1280,
    **one,
)
bert("wide_bert", 77, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, **one)
t5("wide_mt5", MT5EncoderModel, MT5Config, 60, vocab_size=300, d_model=2048, d_ff=5120, num_heads=32, num_layers=1)

distances = torch.arange(-600, 601)
buckets = T5Attention._relative_position_bucket(distances, True, 32, 128)
(FOLDER / "buckets").write_bytes(buckets.numpy().astype(numpy.int32).tobytes())
