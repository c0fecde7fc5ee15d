"""train.py's reports besides losses: what devices will hold, whether gradients are right, which plan is faster."""

import math
import statistics
import time

import torch
import torch.distributed as dist

from layers import Refused, answer


def sent_a_microbatch(plan, boundaries, modules):
    """Bytes of boundaries and skips that cross devices, forward and, for tensors with a gradient, backward."""
    counts = [0, 0]
    for module in modules[:-1]:
        carried = boundaries[module.index + 1]
        for at, one in enumerate(carried):
            if plan.devices[module.index] != plan.devices[module.index + 1]:
                is_skip = at >= len(carried) - len(module.leaving)
                counts[is_skip] += (1 + one.requires_grad) * one.numel() * one.element_size()
    return counts


def dry_run(plan, options):
    """What each device will hold, derived from shapes."""
    _, boundaries, modules = options.outlines[plan.folder]
    lines = [f"{plan.model}: {plan.placement}, {plan.pipeline_degree} devices, {plan.data_degree} replicas, "
             f"{plan.microbatches} microbatches of {plan.microbatch_size}, recomputation {plan.recomputation}"]
    for device in range(plan.pipeline_degree):
        lines.append(f"device {device}")
        weights = 0
        for module in (one for one in modules if plan.devices[one.index] == device):
            count = sum(weight.numel() for _, weight in module.named_weights())
            behind = sum(one.numel() * one.element_size() for one in boundaries[module.index + 1])
            lines.append(f"  stage {module.index}: {module.names[0]} to {module.names[-1]}, {count:,} parameters; "
                         f"hands on {behind:,} bytes a microbatch, in them {len(module.leaving)} skips; keeps "
                         f"{len(module.kept_out)} skips")
            weights += count
        each = 18 if options.autocast else 16  # weights, gradients, two moments, and cast weights
        lines.append(f"  {each * weights:,} bytes of weights, gradients and AdamW; the plan's peak is "
                     f"{plan.predicted['peak_memory_bytes'][device]:,} bytes")
    boundary, skip = (plan.microbatches * count for count in sent_a_microbatch(plan, boundaries, modules))
    lines.append(f"a step sends {boundary:,} bytes for boundaries and {skip:,} for skips; the plan has "
                 f"{plan.predicted['boundary_bytes']:,} and {plan.predicted['skip_bytes']:,}")
    return "\n".join(lines)


def sent(pipeline):
    """Bytes that all ranks sent for boundaries and for skips."""
    counts = torch.tensor([sum(stage.sent[kind] for stage in pipeline.stages) for kind in ("boundary", "skip")],
                          device=pipeline.device)
    dist.all_reduce(counts)
    return counts.tolist()


def whole_gradients(whole, given, target, pipeline, loss_of):
    """Loss and gradients of a step of the whole backbone, one microbatch at a time."""
    losses = []
    for *parts, wanted in zip(*(one.chunk(pipeline.plan.microbatches) for one in (*given, target))):
        with torch.autocast(pipeline.device.type, pipeline.autocast, enabled=pipeline.autocast is not None):
            answered = answer(whole, parts)
        losses.append(loss_of(answered, wanted))
        losses[-1].backward()
    return torch.stack(losses).mean(), {name: weight.grad / len(losses) for name, weight in whole.named_parameters()
                                        if weight.grad is not None}


def check(made, options, data, loss_of, say):
    """Compares loss and gradients of one step with the whole backbone's, and the bytes sent with the plan's; returns 1
    if loss or gradients differ too much. Differences are relative to each tensor's largest gradient plus a thousandth
    of the largest of all, because vanishing gradients are only rounding."""
    plan, whole = made.plan, options.kind.from_pretrained(options.source).float().to(options.device).train()
    for backbone in (whole, *(stage.submod for stage in made.stages)):
        for module in backbone.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # or the two would drop different elements
    given, target = made.samples(data)
    wanted_loss, wanted = whole_gradients(whole, given, target, made, loss_of)
    loss = made.gradients(given, target)
    differences = [0.0 if loss is None else abs(loss / wanted_loss - 1).item()]
    floor = 1e-3 * max(gradient.abs().max() for gradient in wanted.values())
    for name, weight in made.weights.items():
        if (name in wanted) != (weight.grad is not None):
            raise Refused(f"{name}: only one of the whole backbone and its stages has a gradient for it")
        if name in wanted:
            dist.all_reduce(wanted[name], group=made.replicas)
            difference = (weight.grad - wanted[name] / plan.data_degree).abs().max()
            differences.append((difference / (wanted[name].abs().max() + floor)).item())
    # Not Python's max, which ignores NaN.
    worst = torch.tensor(differences, device=options.device).max().nan_to_num(nan=math.inf)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    bound = 1e-1 if options.autocast else 2e-5
    boundary, skip = sent(made)
    planned = [plan.predicted[kind] * plan.data_degree for kind in ("boundary_bytes", "skip_bytes")]
    say(f"check: loss and gradients differ by {worst:.1e} (at most {bound:.0e}); sent {boundary:,} bytes for "
        f"boundaries and {skip:,} for skips, planned {planned[0]:,} and {planned[1]:,}")
    return int(not worst <= bound)


def peak_bytes(device, begin):
    """Resets this process's peak memory (`begin`) or returns it: PyTorch's on a GPU, else the system's."""
    if device.type == "cuda":
        return torch.cuda.reset_peak_memory_stats(device) if begin else torch.cuda.max_memory_allocated(device)
    if begin:
        with open("/proc/self/clear_refs", "w") as file:
            return file.write("5")
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def compare(plans, pipeline_of, options, data, say):
    """Times some steps of each plan, from the same weights."""
    say(f"{'plan':24} {'step ms':>10} {'peak MB':>10} {'boundaries MB':>14} {'skips MB':>10}")
    made = None
    for plan in plans:
        del made  # frees the weights and moments of the previous plan
        peak_bytes(options.device, begin=True)
        made, times = pipeline_of(plan), []
        for _ in range(options.steps + 1):  # the first one connects the ranks
            dist.barrier()
            begin = time.perf_counter()
            made.step(data)
            dist.barrier()
            times.append(time.perf_counter() - begin)
        peak = torch.tensor(peak_bytes(options.device, begin=False), device=options.device)
        dist.all_reduce(peak, dist.ReduceOp.MAX)
        boundary, skip = (bytes / (options.steps + 1) / 1e6 for bytes in sent(made))
        say(f"{plan.folder.name[:24]:24} {1e3 * statistics.median(times[1:]):10.1f} {peak.item() / 1e6:10.1f} "
            f"{boundary:14.3f} {skip:10.3f}")
