"""Trains a diffusers backbone by a plan of pulse on PyTorch's pipeline runtime, one process a device.

  pulse_plan --profile profile.json --devices 4 --global-batch 64 --torch PLAN
  torchrun --nproc-per-node 4 examples/torch_pipeline/train.py --plan PLAN --from DIR --data PICTURES --out TUNED
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

try:
    import diffusers
    import torch
    import torch.distributed as dist
    from safetensors.torch import save_file

    from data import MadeUp, Pictures, made_up
    from layers import ENDS, Refused
    from pipeline import Stage, load, outline, schedule, split, weight_files
    from plan import read_json, read_plan
    from reports import check, compare, dry_run
except ImportError as missing:
    sys.exit(print(f"train: requires PyTorch (2.15 was tested) and diffusers: {missing}", file=sys.stderr) or 2)

WEIGHTS = "diffusion_pytorch_model"


def loss_of(answered, target):
    """Mean squared error; a variance after the prediction is not trained."""
    return torch.nn.functional.mse_loss(answered[:, :target.shape[1]].float(), target)


class Pipeline:
    """This rank's stages of a backbone, with their optimizer and order."""

    def __init__(self, plan, options):
        self.plan, self.device, self.autocast = plan, options.device, options.autocast
        degree, replicas = plan.pipeline_degree, plan.data_degree
        self.replica, self.place = divmod(dist.get_rank(), degree)
        pipelines = [dist.new_group([r * degree + p for p in range(degree)]) for r in range(replicas)]
        places = [dist.new_group([r * degree + p for r in range(replicas)]) for p in range(degree)]
        self.pipeline, self.replicas = pipelines[self.replica], places[self.place]
        self.target, boundaries, _ = options.outlines[plan.folder]
        self.given = boundaries[0]
        sample = torch.empty_like(self.given[0], device=self.device)
        modules = load(split(options.ghost(), plan, self.place, sample, self.autocast), options.source, self.device)
        self.stages = [Stage(module, boundaries, self.device, self.pipeline) for module in modules]
        self.weights = {name: weight for module in modules for name, weight in module.named_weights()}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=options.learning_rate)
        self.order = schedule(plan, self.stages, loss_of)

    def samples(self, data):
        """The samples of a step, made by the last rank of each pipeline."""
        count, last = self.plan.microbatches, (self.replica + 1) * self.plan.pipeline_degree - 1
        if dist.get_rank() == last:
            given, target = data.batch(count * self.plan.microbatch_size)
            tensors = [one.to(self.device).contiguous() for one in (*given, target)]
            for one, of_plan in zip(tensors, (*self.given, self.target), strict=True):
                wanted = (count * of_plan.shape[0], *of_plan.shape[1:])
                if one.shape != wanted:
                    raise Refused(f"--data: samples of {tuple(one.shape)}, but the backbone needs {wanted} "
                                  "(--tokens, --sample-size)")
        else:
            tensors = [torch.empty(count * one.shape[0], *one.shape[1:], dtype=one.dtype, device=self.device)
                       for one in (*self.given, self.target)]
        for tensor in tensors:
            dist.broadcast(tensor, last, self.pipeline)
        return tensors[:-1], tensors[-1]

    def gradients(self, given, target):
        """Runs all passes of a step; returns the loss on the rank with the last stage, elsewhere None."""
        losses, first, last = [], self.stages[0].is_first, self.stages[-1].is_last
        torch.autocast_increment_nesting()  # weights are cast once for all microbatches
        self.order.step(*(given if first else ()), target=target if last else None, losses=losses, return_outputs=False)
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        if self.plan.data_degree > 1:
            for gradient in (weight.grad for weight in self.weights.values() if weight.grad is not None):
                dist.all_reduce(gradient, group=self.replicas)
                gradient /= self.plan.data_degree
        return torch.stack(losses).mean() if losses else None

    def step(self, data):
        self.optimizer.zero_grad()
        loss = self.gradients(*self.samples(data))
        self.optimizer.step()
        return loss

    def save(self, root, source, out):
        """Copies the folder `root` with new weights in its part `source`: one file per device of a pipeline."""
        folder = out / source.relative_to(root)
        if dist.get_rank() == 0:
            shutil.copytree(root, out, dirs_exist_ok=True, ignore=lambda at, names: [
                name for name in names if Path(at) == source and name.startswith(WEIGHTS)])
        dist.barrier()
        name = f"{WEIGHTS}-{self.place + 1:05d}-of-{self.plan.pipeline_degree:05d}.safetensors"
        if self.replica == 0:
            save_file({key: weight.detach().cpu().contiguous() for key, weight in self.weights.items()}, folder / name)
        files = [None] * dist.get_world_size()
        dist.all_gather_object(files, dict.fromkeys(self.weights, name))
        if dist.get_rank() == 0:
            index = {"metadata": {}, "weight_map": {key: file for each in files for key, file in each.items()}}
            (folder / f"{WEIGHTS}.safetensors.index.json").write_text(json.dumps(index, indent=1))


def backbone_in(folder):
    """The backbone's folder within a diffusers folder, and its class."""
    for part in (folder / "unet", folder / "transformer", folder):
        if (part / "config.json").is_file():
            name = read_json(part / "config.json").get("_class_name")
            if name not in ENDS:
                raise Refused(f"{part / 'config.json'}: _class_name must be one of {', '.join(ENDS)}, not {name}")
            return part, getattr(diffusers, name)
    raise Refused(f"{folder}: no config.json, and none in unet or transformer")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, required=True, metavar="DIR", help="What pulse_plan --torch DIR wrote")
    parser.add_argument("--from", dest="root", type=Path, required=True, metavar="DIR",
                        help="Diffusers folder, the whole pipeline or its backbone")
    parser.add_argument("--data", default="synthetic", metavar="PICTURES",
                        help="Folder of captioned pictures, or synthetic for made-up data (synthetic)")
    parser.add_argument("--cache", action="store_true", help="Keep the outputs of the frozen networks for each picture")
    parser.add_argument("--out", type=Path, metavar="DIR", help="Write the trained diffusers folder here")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="Steps of training or of --compare (100)")
    parser.add_argument("--learning-rate", type=float, default=1e-5, metavar="RATE",
                        help="Learning rate of AdamW (1e-5)")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16",
                        help="Type of autocast; fp32: no autocast (bf16)")
    parser.add_argument("--sample-size", type=int, metavar="N",
                        help="Rows and columns of the input (sample_size of the config)")
    parser.add_argument("--tokens", type=int, default=77, metavar="N", help="Number of text states of a UNet (77)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dry-run", action="store_true", help="Print what each device will hold, and start nothing")
    parser.add_argument("--check", action="store_true",
                        help="Compare loss and gradients of a step with the whole backbone")
    parser.add_argument("--compare", type=Path, metavar="DIR", help="Time the steps of --plan and of this plan")
    return parser.parse_args()


def prepared(options):
    """Returns the plans; refuses what cannot run, and adds derived values to the options."""
    options.source, options.kind = backbone_in(options.root)
    options.autocast = torch.bfloat16 if options.precision == "bf16" else None

    def ghost():
        with torch.device("meta"):
            return options.kind.from_config(options.kind.load_config(options.source)).train()

    options.ghost, backbone = ghost, ghost()
    size = options.sample_size or backbone.config.sample_size
    if not size:
        raise Refused(f"{options.source / 'config.json'}: no sample_size; give --sample-size")
    options.sample_size = (size, size) if isinstance(size, int) else tuple(size)
    if options.out and options.out.resolve() == options.root.resolve():
        raise Refused(f"--out {options.out}: must not be the folder of --from")
    if not (options.out or options.dry_run or options.check or options.compare):
        raise Refused("--out: required, as no folder is given for the trained backbone")
    missing = {name for name, _ in backbone.named_parameters()} - weight_files(options.source).keys()
    if missing:
        raise Refused(f"{options.source}: no weights for {min(missing)}")
    plans = [read_plan(folder) for folder in (options.plan, options.compare) if folder]
    samples = [plan.microbatches * plan.microbatch_size * plan.data_degree for plan in plans]
    if len(set(samples)) > 1:
        raise Refused(f"--compare {options.compare}: its steps have {samples[1]} samples, but those of --plan "
                      f"have {samples[0]}")
    options.outlines = {}
    for plan in plans:
        given, target = made_up(backbone, plan.microbatch_size, options.sample_size, options.tokens, device="meta")
        options.outlines[plan.folder] = target, *outline(ghost(), plan, given, options.autocast)
    if options.dry_run:
        print("\n".join(dry_run(plan, options) for plan in plans))
        return plans
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    for plan in plans:
        if plan.pipeline_degree * plan.data_degree != ranks:
            raise Refused(f"{plan.folder}: the plan is for {plan.pipeline_degree * plan.data_degree} devices, but "
                          f"there are {ranks} processes (torchrun --nproc-per-node)")
    return plans


def main():
    options = read_arguments()
    plans = prepared(options)
    if options.dry_run:
        return 0
    on_gpu = options.device == "cuda"
    options.device = torch.device(options.device, int(os.environ.get("LOCAL_RANK", "0")) if on_gpu else None)
    data = MadeUp(options) if options.data == "synthetic" else Pictures(Path(options.data), options)
    if on_gpu:
        torch.cuda.set_device(options.device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(dist.get_rank())

    def say(text):
        if dist.get_rank() == 0:
            print(text, flush=True)

    if options.check:
        return check(Pipeline(plans[0], options), options, data, loss_of, say)
    if options.compare:
        return compare(plans, lambda plan: Pipeline(plan, options), options, data, say)
    made = Pipeline(plans[0], options)
    for step in range(options.steps):
        loss = made.step(data)
        if loss is not None and made.replica == 0:
            print(f"step {step + 1}  loss {loss:.5f}", flush=True)
    if options.out:
        made.save(options.root, options.source, options.out)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as why:
        sys.exit(print(f"train: {why}", file=sys.stderr) or 2)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
