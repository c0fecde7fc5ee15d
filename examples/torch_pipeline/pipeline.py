"""A plan of pulse on PyTorch's pipeline runtime: a backbone split into the plan's stages, and the order of passes.

A skip with both ends on one device waits there, in a Skips; any other skip travels with the boundaries between its
stages, because PyTorch sends only to neighbouring stages.
"""

import itertools
from contextlib import nullcontext
from functools import partial

import torch
from safetensors import safe_open
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.utils.checkpoint import get_device_states, set_device_states

from layers import Refused, kind_of, layer, require_known, rotary_of
from plan import read_json

for owner, name in ((PipelineStage, "_retrieve_recv_activations"), (_PipelineScheduleRuntime, "_load_csv")):
    if not hasattr(owner, name):
        raise ImportError(f"PyTorch {torch.__version__} has no {owner.__name__}.{name}")


class Skips:
    """Skips between stages of one device, and their gradients, by edge and microbatch."""

    def __init__(self):
        self.tensors, self.gradients = {}, {}

    def take(self, key):
        """Removes a skip and returns it as a leaf; its gradient waits here for the stage that made it."""
        made = self.tensors.pop(key)
        leaf = (made() if callable(made) else made).detach().requires_grad_()
        leaf.register_hook(lambda gradient: self.gradients.update({key: gradient}))
        return leaf


class Keep(torch.autograd.Function):
    """Passes an activation on; in backward, its skips' gradients from other stages join in."""

    @staticmethod
    def forward(ctx, skips, keys, activation, *made):
        ctx.skips, ctx.keys = skips, keys
        return activation.data  # not a view, which the runtime cannot detach

    @staticmethod
    def backward(ctx, gradient):
        return None, None, gradient, *(ctx.skips.gradients.pop(key) for key in ctx.keys)


class Recomputed:
    """A function's outputs; only its inputs are kept for backward, and whatever else backward reads is recomputed when
    first needed. torch.utils.checkpoint would recompute it in each pass of a split backward."""

    def __init__(self, run, inputs, kept=0):
        """`kept`: how many of the last outputs may be asked for again."""
        self.run, self.inputs, self.kept, self.saved, self.made = run, inputs, kept, None, None
        self.random, self.devices, self.states = torch.get_rng_state(), *get_device_states(inputs[0])

    def forward(self):
        count = itertools.count()
        with saved_tensors_hooks(lambda _: next(count), self.unpack):
            return self.run(*self.inputs)

    def unpack(self, index):
        if self.saved is None:
            self.remake()
        return self.saved[index]

    def remake(self):
        self.saved = []
        inputs = [one.detach().requires_grad_(one.requires_grad) for one in self.inputs]
        torch.autocast_increment_nesting()  # counted per thread: the last exit drops the casts of the others
        try:
            with torch.random.fork_rng(self.devices), torch.enable_grad(), \
                    saved_tensors_hooks(lambda tensor: self.saved.append(tensor.detach()), lambda _: None):
                torch.set_rng_state(self.random)
                set_device_states(self.devices, self.states)
                return self.run(*inputs)
        finally:
            torch.autocast_decrement_nesting()

    def output(self, index):
        if self.made is None:
            made = self.remake()
            self.made = {at: made[at].detach() for at in range(len(made) - self.kept, len(made))}
        return self.made.pop(index)


class StageModule(torch.nn.Module):
    """The layers of one stage. It reads the boundary before it and the skips that waited on its device, and returns the
    boundary after it; the last stage returns the backbone's output."""

    def __init__(self, backbone, plan, index, skips, size, rotary, autocast):
        super().__init__()
        self.index, self.plan, self.skips, self.autocast, self.microbatch = index, plan, skips, autocast, 0
        self.names = plan.layers[index]
        self.layers = torch.nn.ModuleList(layer(backbone, name, size, rotary) for name in self.names)
        self.is_last = index == len(plan.layers) - 1
        self.read = {edge[1]: edge for edge in plan.edges}
        self.arriving, self.leaving = plan.carried(index), plan.carried(index + 1)
        self.kept_in = [edge for edge in plan.edges if plan.is_kept(edge) and plan.ends(edge)[1] == index]
        self.kept_out = [edge for edge in plan.edges if plan.is_kept(edge) and plan.ends(edge)[0] == index]
        self.recomputes = plan.recomputes(index) or (plan.recomputation == "skips" and bool(self.kept_out))

    def named_weights(self):
        """Parameters with their names in the backbone."""
        for part in self.layers:
            for name, weight in part.named_parameters():
                yield name.replace("/", "."), weight

    def waiting(self, microbatch):
        """The skips of a microbatch that wait for this stage."""
        return tuple(self.skips.take((edge, microbatch)) for edge in self.kept_in)

    def run(self, *inputs):
        """From inputs to (the boundary's state, its skips, the skips that wait)."""
        arrived = len(self.arriving) + len(self.kept_in)
        state = inputs[:len(inputs) - arrived]
        skips = dict(zip(self.arriving + self.kept_in, inputs[len(state):]))
        with torch.autocast(inputs[0].device.type, self.autocast) if self.autocast else nullcontext():
            for name, part in zip(self.names, self.layers):
                state = part(state, skips.pop(self.read.get(name), None))
                for edge in self.plan.edges:
                    if edge[0] == name:
                        skips[edge] = state[0]
        outputs = (*state, *(skips[edge] for edge in self.leaving), *(skips[edge] for edge in self.kept_out))
        return tuple(self.as_sent(one) for one in outputs)

    def as_sent(self, tensor):
        if self.autocast and tensor.is_floating_point():
            tensor = tensor.to(torch.float32 if self.is_last else self.autocast)
        return tensor.contiguous()

    def forward(self, *inputs):
        keys = [(edge, self.microbatch) for edge in self.kept_out]
        again = Recomputed(self.run, inputs, len(keys)) if self.recomputes else None
        outputs = again.forward() if again else self.run(*inputs)
        sent = outputs[:len(outputs) - len(keys)]
        if keys:
            for at, key in enumerate(keys, len(sent)):
                dropped = again and self.plan.recomputation == "skips"
                self.skips.tensors[key] = partial(again.output, at) if dropped else outputs[at].detach()
            sent = (Keep.apply(self.skips, keys, sent[0], *outputs[len(sent):]), *sent[1:])
        return sent[0] if self.is_last else sent


class Stage(PipelineStage):
    """A stage on PyTorch's runtime: sets its module's microbatch, adds the waiting skips, counts the bytes it sends."""

    def __init__(self, module, boundaries, device, group=None):
        index, count = module.index, len(boundaries) - 1
        super().__init__(module, index, count, device, input_args=boundaries[index], output_args=boundaries[index + 1],
                         group=group)
        self.sent = {"boundary": 0, "skip": 0}

    def forward_one_chunk(self, fwd_chunk_id, *args, **kwargs):
        self.submod.microbatch = fwd_chunk_id
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def _retrieve_recv_activations(self, fwd_chunk_id):
        received = super()._retrieve_recv_activations(fwd_chunk_id)
        for tensor in received:
            if tensor.requires_grad:  # a slice of a gradient cannot be sent
                tensor.register_hook(torch.Tensor.contiguous)
        return *received, *self.submod.waiting(fwd_chunk_id)

    def count(self, operations, skips):
        for at, operation in enumerate(operations):
            kind = "skip" if at >= len(operations) - skips else "boundary"
            self.sent[kind] += operation.tensor.numel() * operation.tensor.element_size()
        return operations

    def get_fwd_send_ops(self, fwd_chunk_id):
        return self.count(super().get_fwd_send_ops(fwd_chunk_id), len(self.submod.leaving))

    def get_bwd_send_ops(self, bwd_chunk_id):
        return self.count(super().get_bwd_send_ops(bwd_chunk_id), len(self.submod.arriving))


def split(backbone, plan, device, sample, autocast=None):
    """The stages of one device of the plan, or of all, as modules that share the backbone's, for samples like `sample`.
    `autocast`: the type to compute and send in; None: the weights' type."""
    require_known(backbone, sample)
    skips, rotary = Skips(), rotary_of(backbone, sample)
    for edge in plan.edges:
        for name in edge:
            if name not in plan.stage_of:
                raise Refused(f"{plan.folder / 'stages.json'}: {name} has a skip but no stage")
    return [StageModule(backbone, plan, index, skips, tuple(sample.shape[2:]), rotary, autocast)
            for index, on in enumerate(plan.devices) if device is None or on == device]


def weight_files(folder):
    """The file of each weight in a folder's safetensors."""
    stem = "diffusion_pytorch_model.safetensors"
    index, found = folder / f"{stem}.index.json", {}
    for file in sorted(set(read_json(index)["weight_map"].values())) if index.is_file() else [stem]:
        if not (folder / file).is_file():
            raise Refused(f"{folder / file}: no such file")
        with safe_open(folder / file, "pt") as opened:
            found.update(dict.fromkeys(opened.keys(), folder / file))
    return found


def load(modules, folder, device):
    """Moves stages from the meta device to `device`, with their weights from a folder's safetensors."""
    weights = {name: weight for module in modules for name, weight in module.to_empty(device=device).named_weights()}
    files = weight_files(folder)
    for file in sorted({files[name] for name in weights}):
        with safe_open(file, "pt") as opened, torch.no_grad():
            for name in (name for name in weights if files[name] == file):
                weights[name].copy_(opened.get_tensor(name))
    return modules


def outline(ghost, plan, given, autocast=None):
    """The tensors of each boundary, from a microbatch's inputs `given` to the output, and all stages, derived on the
    meta device, where `ghost` is. Refuses a plan for another backbone; no processes need to have started."""
    modules = split(ghost, plan, None, given[0])
    owned = {name for module in modules for name, _ in module.named_weights()}
    for name, _ in ghost.named_parameters():
        if name not in owned:
            raise Refused(f"{name} of the {kind_of(ghost)} is not in any of the plan's layers")
    boundaries = [given]
    for module in modules:
        module.recomputes = False
        made = module(*boundaries[-1], *module.waiting(0))
        boundaries.append((made,) if module.is_last else made)
    types = [None, *[autocast] * (len(modules) - 1), None]
    return [tuple(one.detach().to(to).requires_grad_(one.requires_grad) for one in each)
            for each, to in zip(boundaries, types)], modules


def schedule(plan, stages, loss):
    """PyTorch's runtime with the plan's order for the stages of this rank; gradients are means over microbatches."""
    made = _PipelineScheduleRuntime(stages, plan.microbatches, loss_fn=loss)
    made._load_csv(str(plan.schedule_file), format="compute_only")
    return made
