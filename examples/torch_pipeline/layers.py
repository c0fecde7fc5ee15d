"""The layers of a diffusers backbone by their names in a plan: how each runs, and which modules it has.

A state runs through the pipeline: an activation followed by what every block reads: the time embedding and, if the
backbone reads text, text states.
"""

import copy
from functools import partial

import torch
from diffusers.models.embeddings import get_2d_rotary_pos_embed

UNET_BLOCKS = ("DownBlock2D", "AttnDownBlock2D", "CrossAttnDownBlock2D", "UNetMidBlock2D", "UNetMidBlock2DCrossAttn",
               "UpBlock2D", "AttnUpBlock2D", "CrossAttnUpBlock2D")
# By class: the modules of its first and last layers, each named after its first module.
ENDS = {"UNet2DModel": (("conv_in", "time_proj", "time_embedding"), ("conv_out", "conv_norm_out", "conv_act")),
        "UNet2DConditionModel": (("conv_in", "time_proj", "time_embedding", "encoder_hid_proj", "add_time_proj",
                                  "add_embedding"), ("conv_out", "conv_norm_out", "conv_act")),
        "HunyuanDiT2DModel": (("pos_embed", "time_extra_emb", "text_embedder", "text_embedding_padding"),
                              ("proj_out", "norm_out"))}
# Config keys that change how a UNet runs, with their supported values.
KNOWN = {"center_input_sample": (None, False), "addition_embed_type": (None, "text_time"),
         "time_embedding_act_fn": (None,), "encoder_hid_dim_type": (None, "text_proj")}


class Refused(Exception):
    """Something that cannot be run, named in one line."""


class Layer(torch.nn.Module):
    """Some modules of a backbone, under their names there with / for each dot, and how they run together:
    forward(state, skip) returns the next state."""

    def __init__(self, backbone, parts, make):
        super().__init__()
        for part in parts:
            where, _, leaf = part.rpartition(".")
            owner = backbone.get_submodule(where)
            if leaf in owner._parameters:
                self.register_parameter(leaf, owner._parameters[leaf])
            elif owner._modules.get(leaf) is not None:
                self.add_module(part.replace(".", "/"), owner._modules[leaf])
        self.forward = make(self)

    def shell(self, backbone):
        """The backbone with only these modules, so that the others can be freed."""
        shell = copy.copy(backbone)
        shell._modules = {name: self._modules.get(name) for name, module in backbone._modules.items()
                          if module is None or name in self._modules}
        shell._parameters = self._parameters
        return shell


def kind_of(backbone):
    name = type(backbone).__name__
    if name not in ENDS:
        raise Refused(f"a {name} is not supported, only {', '.join(ENDS)}")
    return name


def require_known(backbone, sample):
    """Refuses, by name, a backbone that the layers here do not reproduce, or a sample that does not fit it."""
    if kind_of(backbone) == "HunyuanDiT2DModel":
        return require_multiples(sample, backbone.config.patch_size)
    for key, values in KNOWN.items():
        if backbone.config.get(key) not in values:
            raise Refused(f"{key} of the {kind_of(backbone)} is {backbone.config[key]}, which is not supported here")
    for block in (*backbone.down_blocks, backbone.mid_block, *backbone.up_blocks):
        if type(block).__name__ not in UNET_BLOCKS:
            raise Refused(f"a {type(block).__name__} is not a block that is supported here")
    if backbone.config.get("time_embedding_type") == "fourier" and kind_of(backbone) == "UNet2DModel":
        raise Refused("time_embedding_type of the UNet2DModel is fourier, which is not supported here")
    require_multiples(sample, 2 ** (len(backbone.down_blocks) - 1))


def require_multiples(sample, step):
    if any(extent % step for extent in sample.shape[2:]):
        raise Refused(f"samples of {' x '.join(map(str, sample.shape[2:]))} must have multiples of {step} as sides")


def rotary_of(backbone, sample):
    """Hunyuan-DiT's rotary embedding, which its pipeline makes from the size alone; None for a UNet."""
    if kind_of(backbone) != "HunyuanDiT2DModel":
        return None
    patch = backbone.config.patch_size
    base, grid = 64 // patch, tuple(extent // patch for extent in sample.shape[2:])
    resized = [round(base / max(grid) * extent) for extent in grid]
    begin = tuple(round((base - extent) / 2) for extent in resized)
    region = begin, tuple(map(sum, zip(begin, resized)))
    made = get_2d_rotary_pos_embed(backbone.config.attention_head_dim, region, grid, output_type="pt")
    return tuple(one.to(sample.device) for one in made)


def first(backbone, layer):
    """From the backbone's inputs to the first state."""
    shell = layer.shell(backbone)

    def unet(given, _=None):
        sample, time = given
        return shell.conv_in(sample), shell.time_embedding(shell.time_proj(time).to(sample.dtype))

    def text_unet(given, _=None):
        sample, time, text, *added = given
        named = dict(zip(("text_embeds", "time_ids"), added))
        embedding = shell.time_embedding(shell.get_time_embed(sample, time))
        more = shell.get_aug_embed(embedding, text, named)
        return (shell.conv_in(sample), embedding if more is None else embedding + more,
                shell.process_encoder_hidden_states(text, named))

    def hunyuan(given, _=None):
        sample, time, text, mask, text_t5, mask_t5, sizes, style = given
        embedding = shell.time_extra_emb(time, text_t5, sizes, style, hidden_dtype=time.dtype)
        projected = shell.text_embedder(text_t5.flatten(0, 1)).unflatten(0, text_t5.shape[:2])
        mask = torch.cat([mask, mask_t5], dim=-1).unsqueeze(2).bool()
        text = torch.where(mask, torch.cat([text, projected], dim=1), shell.text_embedding_padding)
        return shell.pos_embed(sample), embedding, text

    return {"UNet2DModel": unet, "UNet2DConditionModel": text_unet, "HunyuanDiT2DModel": hunyuan}[kind_of(backbone)]


def last(backbone, size, layer):
    """From the last state to the backbone's output."""
    shell, patch = layer.shell(backbone), backbone.config.get("patch_size")

    def unet(state, _=None):
        x = state[0] if shell.conv_norm_out is None else shell.conv_act(shell.conv_norm_out(state[0]))
        return (shell.conv_out(x),)

    def hunyuan(state, _=None):
        x = shell.proj_out(shell.norm_out(state[0], state[1].to(torch.float32)))
        x = x.reshape(len(x), size[0] // patch, size[1] // patch, patch, patch, shell.out_channels)
        return (torch.einsum("nhwpqc->nchpwq", x).reshape(len(x), shell.out_channels, *size),)

    return hunyuan if kind_of(backbone) == "HunyuanDiT2DModel" else unet


def middle(module, rotary):
    """From state to state through one module, by its class; None for an unknown class."""
    def alone(state, _=None):
        return module(state[0]), *state[1:]

    def resnet(state, skip=None):
        x = state[0] if skip is None else torch.cat([state[0], skip], dim=1)
        return module(x, state[1]), *state[1:]

    def transformer(state, _=None):
        return module(state[0], encoder_hidden_states=state[2], return_dict=False)[0], *state[1:]

    def hunyuan(state, skip=None):
        x, time, text = state
        return module(x, temb=time, encoder_hidden_states=text, image_rotary_emb=rotary, skip=skip), time, text

    return {"ResnetBlock2D": resnet, "Transformer2DModel": transformer, "Attention": alone, "Downsample2D": alone,
            "Upsample2D": alone, "HunyuanDiTBlock": hunyuan}.get(type(module).__name__)


def layer(backbone, name, size, rotary):
    """The layer of that name, for samples of that size."""
    begin, end = ENDS[kind_of(backbone)]
    if name == begin[0]:
        return Layer(backbone, begin, partial(first, backbone))
    if name == end[0]:
        return Layer(backbone, end, partial(last, backbone, size))
    try:
        run = middle(backbone.get_submodule(name), rotary)
    except AttributeError:
        run = None
    if run is None:
        raise Refused(f"{name} is not a layer of a {kind_of(backbone)} that is supported here")
    return Layer(backbone, [name], lambda _: run)


def answer(backbone, given):
    """The whole backbone's output for the first layer's inputs."""
    sample, time, *more = given
    named = {}
    if kind_of(backbone) == "HunyuanDiT2DModel":
        named["image_rotary_emb"] = rotary_of(backbone, sample)
    elif len(more) > 1:
        named["added_cond_kwargs"] = dict(zip(("text_embeds", "time_ids"), more[1:]))
        more = more[:1]
    return backbone(sample, time, *more, **named, return_dict=False)[0]
