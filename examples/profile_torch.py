"""Times every layer of a diffusers backbone in PyTorch and writes what pulse_plan --profile reads.

A layer is a module that runs whole, and the planner cuts between layers: a ResNet block, a transformer, a resampler, a
block of Hunyuan-DiT; the names are those of pulse's own models. The whole network runs once, and what every layer is
given is kept. Then each layer runs alone on that, so a GPU holds the weights, one microbatch of every layer's input and
output and the graph of one layer: no optimizer, no graph of the whole network.

What is measured, as medians over rounds, on a GPU by CUDA events between kernels that are queued without waiting:
  forward_us          with autograd recording
  backward_input_us   torch.autograd.grad of the layer's inputs alone: activation, skip and conditioning
  backward_weight_us  what a whole backward, which also adds up the gradients of the weights, takes longer than that
  saved_bytes         what autograd keeps for backward (saved_tensors_hooks): each storage once, without parameters and
                      without the layer's inputs and output, which the planner counts by themselves
  deferred_bytes      gradients that wait between the two backward passes where they are split: of what each module with
                      weights made
The first layer includes the time embedding and the projection of text states (encoder_hid_dim), and needs no gradient
of its input. Text states are not trained, but projected ones are.
"""

import argparse
import inspect
import json
import os
import statistics
import sys
import time
from pathlib import Path


class Refused(Exception):
    """Bad input, named in one line."""


try:
    import diffusers
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten
except ImportError as missing:
    sys.exit(print(f"profile_torch: PyTorch and diffusers are needed: {missing}", file=sys.stderr) or 2)

UNET_BLOCKS = ("DownBlock2D", "AttnDownBlock2D", "CrossAttnDownBlock2D", "UNetMidBlock2D", "UNetMidBlock2DCrossAttn",
               "UpBlock2D", "AttnUpBlock2D", "CrossAttnUpBlock2D")


class Layer:
    """A layer: the modules that it calls, and the position of the layer whose output is its skip."""

    def __init__(self, name, parts, skip=None, alone=()):
        self.name, self.parts, self.skip, self.alone = name, parts, skip, alone  # alone: parameters outside modules


class Unet:
    """Layers and inputs of UNet2DModel and UNet2DConditionModel."""

    def __init__(self, model):
        self.layers, waiting = [], []

        def add(name, skip=None):
            self.layers.append(Layer(name, [name], skip))

        def attentions_of(name, block):
            if type(block).__name__ not in UNET_BLOCKS:
                raise Refused(f"{name} is a {type(block).__name__}, whose layers are not supported")
            return list(getattr(block, "attentions", ()))

        first = ("conv_in", "time_proj", "time_embedding", "encoder_hid_proj", "add_time_proj", "add_embedding")
        self.layers.append(Layer("conv_in", [part for part in first if getattr(model, part, None) is not None]))
        waiting.append(0)
        for i, block in enumerate(model.down_blocks):
            name = f"down_blocks.{i}"
            attentions = attentions_of(name, block)
            for j in range(len(block.resnets)):
                add(f"{name}.resnets.{j}")
                if attentions:
                    add(f"{name}.attentions.{j}")
                waiting.append(len(self.layers) - 1)
            for j in range(len(block.downsamplers or ())):
                add(f"{name}.downsamplers.{j}")
                waiting.append(len(self.layers) - 1)
        attentions = attentions_of("mid_block", model.mid_block)
        add("mid_block.resnets.0")
        for j, attention in enumerate(attentions):
            if attention is not None:
                add(f"mid_block.attentions.{j}")
            add(f"mid_block.resnets.{j + 1}")
        for i, block in enumerate(model.up_blocks):
            name = f"up_blocks.{i}"
            attentions = attentions_of(name, block)
            for j in range(len(block.resnets)):
                add(f"{name}.resnets.{j}", waiting.pop())
                if attentions:
                    add(f"{name}.attentions.{j}")
            for j in range(len(block.upsamplers or ())):
                add(f"{name}.upsamplers.{j}")
        last = ("conv_norm_out", "conv_act", "conv_out")
        self.layers.append(Layer("conv_out", [part for part in last if getattr(model, part, None) is not None]))

    @staticmethod
    def inputs(config, options, random):
        """Positional and named arguments of the model, and the text states that boundaries relay unchanged."""
        batch = options.microbatch_size
        sample = random(batch, config["in_channels"], *options.sample_size)
        args, named = [sample, torch.full((batch,), 500, device=sample.device)], {}
        if "cross_attention_dim" not in config:
            return args, named, ()
        features = config["cross_attention_dim"]
        if isinstance(features, (list, tuple)):
            features = next((one for one in features if one is not None), None)
        if not isinstance(features, int):
            raise Refused(f"cross_attention_dim must be a number of features, not {config['cross_attention_dim']}")
        given = config.get("encoder_hid_dim")
        text = random(batch, options.tokens, given or features)
        kind = config.get("addition_embed_type")
        if kind == "text_time":
            pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
            named["added_cond_kwargs"] = {"text_embeds": random(batch, pooled), "time_ids": random(batch, 6)}
        elif kind is not None:
            raise Refused(f"addition_embed_type must be null or text_time, not {kind}")
        return [*args, text], named, () if given else (text,)

    @staticmethod
    def relayed(calls, text):
        """The conditioning that every boundary relays."""
        projected = calls.get("encoder_hid_proj")
        return calls["time_embedding"][2], *(text if projected is None else projected[2:])

    @staticmethod
    def joined(module):
        """A ResNet block of an up block, as a function of its input and its skip."""
        return lambda x, skip, *more, **named: module(torch.cat([x, skip], dim=1), *more, **named)


class Hunyuan:
    """Layers and inputs of HunyuanDiT2DModel, whose blocks join skips themselves."""

    joined = None

    def __init__(self, model):
        blocks = len(model.blocks)
        self.layers = [Layer("pos_embed", ["pos_embed", "time_extra_emb", "text_embedder"],
                             alone=[model.text_embedding_padding])]
        for i in range(blocks):
            self.layers.append(Layer(f"blocks.{i}", [f"blocks.{i}"], blocks - i if i > blocks // 2 else None))
        self.layers.append(Layer("proj_out", ["norm_out", "proj_out"]))

    @staticmethod
    def inputs(config, options, random):
        batch, tokens, tokens_t5 = options.microbatch_size, config["text_len"], config["text_len_t5"]
        sample = random(batch, config["in_channels"], *options.sample_size)
        patches = sample[0, 0].numel() // config["patch_size"] ** 2
        head = config["attention_head_dim"]
        named = {"encoder_hidden_states": random(batch, tokens, config["cross_attention_dim"]),
                 "text_embedding_mask": torch.ones(batch, tokens, device=sample.device),
                 "encoder_hidden_states_t5": random(batch, tokens_t5, config["cross_attention_dim_t5"]),
                 "text_embedding_mask_t5": torch.ones(batch, tokens_t5, device=sample.device),
                 "image_meta_size": random(batch, 6), "style": torch.zeros(batch, device=sample.device).long(),
                 "image_rotary_emb": (random(patches, head).float(), random(patches, head).float())}
        return [sample, torch.full((batch,), 500.0, device=sample.device, dtype=sample.dtype)], named, ()

    @staticmethod
    def relayed(calls, _):
        return calls["time_extra_emb"][2], calls["blocks.0"][1]["encoder_hidden_states"]


CLASSES = {"UNet2DModel": Unet, "UNet2DConditionModel": Unet, "HunyuanDiT2DModel": Hunyuan}


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def storage_of(tensor):
    """Address and size of a tensor's storage, in bytes."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def output_of(value):
    """The first tensor in a module's output."""
    return next(leaf for leaf in tree_flatten(value)[0] if torch.is_tensor(leaf))


class Call:
    """A module's call with recorded arguments; tensors whose storage is in `given` need no gradient."""

    def __init__(self, run, args, named, given=()):
        leaves, self.spec = tree_flatten((list(args), named))
        self.run, self.leaves, self.inputs = run, [], []
        for leaf in leaves:
            if torch.is_tensor(leaf):
                wanted = leaf.is_floating_point() and storage_of(leaf)[0] not in given
                leaf = leaf.detach().requires_grad_(wanted)
                if wanted:
                    self.inputs.append(leaf)
            self.leaves.append(leaf)

    def tensors(self):
        return [leaf for leaf in self.leaves if torch.is_tensor(leaf)]

    def __call__(self):
        args, named = tree_unflatten(self.leaves, self.spec)
        return output_of(self.run(*args, **named))


def record(model, names, args, named):
    """Runs the model once; returns each module's arguments, named arguments and output."""
    calls = {}

    def listen(name, module):
        forward = module.forward

        def heard(*args, **named):
            output = forward(*args, **named)
            calls[name] = args, named, output_of(output)
            return output

        module.forward = heard

    for name in names:
        listen(name, model.get_submodule(name))
    try:
        with torch.no_grad():
            model(*args, **named)
    finally:
        for name in names:
            del model.get_submodule(name).forward
    return calls


def stopwatch(device):
    """A function that marks the current point in execution order, and one for the microseconds between two marks."""
    if device.type == "cpu":
        return time.perf_counter, lambda begin, end: 1e6 * (end - begin)

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return mark, lambda begin, end: 1e3 * begin.elapsed_time(end)


def passes_of(call, trains, device, warm_up, rounds):
    """Microseconds of forward, input gradients and weight gradients, and whether the last two are separate."""
    mark, between = stopwatch(device)
    marks, apart = [], True
    for _ in range(warm_up + rounds):
        times = [mark()]
        output = call()
        times.append(mark())
        if output.requires_grad:
            gradient = torch.ones_like(output)
            times.append(mark())
            if call.inputs and apart:
                try:
                    torch.autograd.grad(output, call.inputs, gradient, retain_graph=True, allow_unused=True)
                except RuntimeError:  # e.g. a reentrant checkpoint; if backward fails too, its error says why
                    apart = False
            times.append(mark())
            torch.autograd.backward(output, gradient)
            times.append(mark())
            for tensor in call.inputs:
                tensor.grad = None
        marks.append(times)
        del output
    if device.type != "cpu":
        torch.cuda.synchronize(device)
    marks = marks[-rounds:]
    forward = statistics.median(between(m[0], m[1]) for m in marks)
    if len(marks[0]) == 2:
        return forward, 0.0, 0.0, True
    inputs = statistics.median(between(m[2], m[3]) for m in marks) if call.inputs else 0.0
    whole = statistics.median(between(m[3], m[4]) for m in marks)
    if not call.inputs:
        return forward, 0.0, whole, True
    if not trains:
        return forward, inputs if apart else whole, 0.0, True
    weights = statistics.median(between(m[3], m[4]) - between(m[2], m[3]) for m in marks)
    if not apart or weights <= 0.0:
        return forward, whole, 0.0, False
    return forward, inputs, weights, True


def kept_by(call, without):
    """Bytes of the storages that autograd keeps, except the output's and those at the addresses `without`."""
    kept = {}

    def keep(tensor):
        address, size = storage_of(tensor)
        kept[address] = size
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = call()  # kept alive, or an address might be reused
    own = storage_of(output)[0]
    return sum(size for address, size in kept.items() if address != own and address not in without)


def deferred_by(call, module, ends):
    """Bytes of the outputs of modules with weights in a call, without the call's output if the layer `ends` there."""
    made = []
    hooks = [one.register_forward_hook(lambda _, given, output: made.append(output_of(output)))
             for one in module.modules() if any(True for _ in one.parameters(recurse=False))]
    try:
        own = storage_of(call())[0]
    finally:
        for hook in hooks:
            hook.remove()
    return sum(bytes_of(tensor) for tensor in made if not ends or storage_of(tensor)[0] != own)


def profile(model, options, say):
    """pulse-profile/1 of a model on the device where it runs."""
    network = CLASSES[type(model).__name__](model)
    layers = network.layers
    owners = {id(parameter): layer for layer in layers for parameter in layer.alone}
    owners.update((id(parameter), layer) for layer in layers for part in layer.parts
                  for parameter in model.get_submodule(part).parameters())
    for name, parameter in model.named_parameters():
        if id(parameter) not in owners:
            raise Refused(f"{name} does not belong to any layer that pulse knows of a {type(model).__name__}")

    weight = next(model.parameters())
    source = torch.Generator().manual_seed(14)

    def random(*shape):
        return torch.randn(*shape, generator=source).to(weight.device, weight.dtype)

    args, named, text = network.inputs(model.config, options, random)
    given = {storage_of(leaf)[0] for leaf in tree_flatten((args, named))[0] if torch.is_tensor(leaf)}
    parameters = {storage_of(parameter)[0] for parameter in model.parameters()}
    try:
        calls = record(model, [part for layer in layers for part in layer.parts], args, named)
    except torch.cuda.OutOfMemoryError as error:
        raise Refused(f"a forward pass of the whole network: {first_line(error)}") from error
    except (RuntimeError, ValueError, TypeError) as error:
        raise Refused(f"a {type(model).__name__} in {options.dtype} does not run on {weight.device}: "
                      f"{first_line(error)}") from error

    outputs = [calls[layer.parts[-1]][2] for layer in layers]
    outputs[0] = calls[layers[0].parts[0]][2]
    conditioning = sum(map(bytes_of, network.relayed(calls, text)))
    rows, joints = [], []
    for position, layer in enumerate(layers):
        sums = dict.fromkeys(("forward_us", "backward_input_us", "backward_weight_us"), 0.0)
        saved = deferred = 0
        trained = {id(p): p for part in layer.parts for p in model.get_submodule(part).parameters()}
        trained.update((id(p), p) for p in layer.alone)
        for part in layer.parts:
            if part not in calls:
                raise Refused(f"{part} does not run when a {type(model).__name__} does")
            module = model.get_submodule(part)
            run, (inputs, more, _) = module, calls.pop(part)
            if layer.skip is not None and network.joined:
                run, skipped = network.joined(module), outputs[layer.skip].shape[1]
                pieces = inputs[0].split([inputs[0].shape[1] - skipped, skipped], dim=1)
                inputs = (*(piece.contiguous() for piece in pieces), *inputs[1:])
            every = tree_flatten((list(inputs), more))[0]
            nobody = {storage_of(leaf)[0] for leaf in every if torch.is_tensor(leaf)} if position == 0 else given
            call = Call(run, inputs, more, nobody)
            try:
                times = passes_of(call, any(True for _ in module.parameters()), weight.device, options.warm_up,
                                  options.rounds)
                without = parameters | ({storage_of(t)[0] for t in call.tensors()} if part == layer.parts[0] else set())
                saved += kept_by(call, without)
                deferred += deferred_by(call, module, position == 0 or part == layer.parts[-1])
            except torch.cuda.OutOfMemoryError as error:
                raise Refused(f"{layer.name}: {first_line(error)}") from error
            if not times[3]:
                say(f"{part}: the time of its weight gradient cannot be told from that of its input gradient; "
                    "all of backward counts as backward_input_us")
            for key, value in zip(sums, times):
                sums[key] += value
        for parameter in trained.values():
            parameter.grad = None
        rows.append({"name": layer.name, **{key: round(value, 3) for key, value in sums.items()},
                     "parameter_bytes": sum(map(bytes_of, trained.values())), "saved_bytes": saved,
                     "output_bytes": bytes_of(outputs[position]), "deferred_bytes": deferred})
        if layer.skip is not None:
            joints.append({"from": layers[layer.skip].name, "to": layer.name, "bytes": bytes_of(outputs[layer.skip])})

    return {"format": "pulse-profile/1", "model": options.name, "device": options.device_name,
            "microbatch_size": options.microbatch_size, "layers": rows, "skips": joints,
            "conditioning_bytes": conditioning, "frozen_conditioning_bytes": sum(map(bytes_of, text)),
            "input_bytes": bytes_of(args[0])}


def config_in(path):
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or first_line(error)}") from error
    name = config.get("_class_name") if isinstance(config, dict) else None
    if name not in CLASSES:
        raise Refused(f"{path}: _class_name must be one of {', '.join(CLASSES)}, not {json.dumps(name)}")
    if not hasattr(diffusers, name):
        raise Refused(f"{path}: diffusers {diffusers.__version__} has no {name}")
    return config


def build(options):
    """The model, with the weights of a folder or with random ones."""
    if options.config is not None:
        folder, path = None, options.config
    else:
        choices = [options.folder / part for part in ("unet", "transformer", "")]
        folder = next((one for one in choices if (one / "config.json").is_file()), None)
        if folder is None:
            raise Refused(f"{options.folder}: no config.json, and none in unet or transformer")
        path = folder / "config.json"
    config = config_in(path)
    kind = getattr(diffusers, config["_class_name"])
    known = inspect.signature(kind.__init__).parameters
    for key, value in config.items():  # diffusers would ignore them and build another network
        if not key.startswith("_") and key not in known and value is not None:
            raise Refused(f"{path}: the {kind.__name__} of diffusers {diffusers.__version__} has no {key}")
    try:
        if folder is None:
            model = kind.from_config(config)
        else:
            model = kind.from_pretrained(folder, low_cpu_mem_usage=False)
    except Exception as error:  # a constructor may raise anything on a foreign config
        raise Refused(f"{path}: {config['_class_name']}: {first_line(error)}") from error
    if options.sample_size is None:
        size = model.config["sample_size"]
        if size is None:
            raise Refused(f"{path}: sample_size is null; give --sample-size")
        options.sample_size = size
    if isinstance(options.sample_size, int):
        options.sample_size = (options.sample_size,) * 2
    if options.name is None:
        named = path.resolve()
        options.name = named.stem if named.stem != "config" else named.parent.name
        if folder is not None:
            options.name = options.folder.resolve().name
    return model


def written(value, path):
    """Writes a profile atomically, one layer or edge per line."""
    lines = []
    for key, field in value.items():
        if isinstance(field, list):
            field = "[" + ",".join("\n  " + json.dumps(one) for one in field) + "]"
        else:
            field = json.dumps(field)
        lines.append(f" {json.dumps(key)}: {field}")
    aside = path.with_name(path.name + ".partial")
    try:
        aside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


def count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def main():
    parser = argparse.ArgumentParser(prog="profile_torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from", dest="folder", type=Path, metavar="DIR",
                        help="diffusers folder: a whole pipeline or its backbone")
    source.add_argument("--config", type=Path, metavar="FILE", help="a config.json of a backbone, with random weights")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the profile")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32",
                        help="type of weights and activations (float32)")
    parser.add_argument("--microbatch-size", type=count, default=1, metavar="N", help="samples of a microbatch (1)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        help="cpu, cuda or cuda:N (cuda if available)")
    parser.add_argument("--sample-size", type=count, metavar="N",
                        help="rows and columns of the input (sample_size of the config)")
    parser.add_argument("--tokens", type=count, default=77, metavar="N",
                        help="number of text states of a UNet that reads text (77)")
    parser.add_argument("--warm-up", type=count, default=3, metavar="N",
                        help="rounds before the measured ones (3)")
    parser.add_argument("--rounds", type=count, default=9, metavar="N",
                        help="measured rounds, of which the median is taken (9)")
    parser.add_argument("--name", help="name of the model in the profile (the name of the folder or file)")
    options = parser.parse_args()

    def say(text):
        print(f"profile_torch: {text}", file=sys.stderr)

    try:
        if not options.out.absolute().parent.is_dir():  # checked before the minutes of measuring
            raise Refused(f"{options.out}: no such folder")
        try:
            device = torch.device(options.device)
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise Refused(f"--device {options.device}: {first_line(error)}") from error
        if device.type not in ("cpu", "cuda"):
            raise Refused(f"--device {options.device}: must be cpu or cuda")
        if device.type == "cuda":
            torch.cuda.set_device(device)  # for the events
        diffusers.utils.logging.set_verbosity_error()
        model = build(options)
        try:
            model = model.to(device, getattr(torch, options.dtype)).train()
        except torch.cuda.OutOfMemoryError as error:
            raise Refused(f"the weights: {first_line(error)}") from error
        on = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        options.device_name = f"{on}, torch {torch.__version__}, {options.dtype}"
        value = profile(model, options, say)
        written(value, options.out)
    except Refused as why:
        say(why)
        return 2
    sums = [sum(layer[key] for layer in value["layers"]) / 1e3
            for key in ("forward_us", "backward_input_us", "backward_weight_us")]
    print(f"{options.out}: {len(value['layers'])} layers of {options.name} on {options.device_name}; for "
          f"{options.microbatch_size} samples forward {sums[0]:.3f} ms, input gradients {sums[1]:.3f} ms, "
          f"weight gradients {sums[2]:.3f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
