"""What pulse_plan --torch DIR writes: plan.json, the layers of its stages and the order of their passes."""

import csv
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from layers import Refused


@dataclass(frozen=True)
class Plan:
    folder: Path
    fields: dict  # plan.json
    layers: list  # names, by stage
    edges: list  # skips as (from, to), names of layers

    def __getattr__(self, name):
        """A field of plan.json."""
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def schedule_file(self):
        return self.folder / "schedule.csv"

    @cached_property
    def devices(self):
        """The device of each stage."""
        return [stage["device"] for stage in self.fields["stages"]]

    @cached_property
    def stage_of(self):
        return {name: index for index, names in enumerate(self.layers) for name in names}

    def ends(self, edge):
        """The stages of an edge's two layers."""
        return self.stage_of[edge[0]], self.stage_of[edge[1]]

    def recomputes(self, stage):
        """Whether a stage repeats its forward right before its backward."""
        return self.recomputation == "stages" or self.recomputation == "selective" and self.recomputed_stages[stage]

    def is_kept(self, edge):
        """Whether a skip waits on its device from one stage to another."""
        begin, end = self.ends(edge)
        return begin != end and self.devices[begin] == self.devices[end]

    def carried(self, boundary):
        """The skips that cross a boundary, even if a later stage reads them."""
        return [edge for edge in self.edges if not self.is_kept(edge)
                and self.ends(edge)[0] < boundary <= self.ends(edge)[1]]


def content(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


def read_json(path):
    try:
        return json.loads(content(path))
    except ValueError as error:
        raise Refused(f"{path}: {error}") from error


def read_plan(folder):
    """The plan of a folder or a plan.json. Refuses by name what PyTorch's pipeline runtime cannot run."""
    folder = Path(folder)
    folder = folder.parent if folder.is_file() else folder
    fields, table = read_json(folder / "plan.json"), read_json(folder / "stages.json")
    for source, name, wanted in ((fields, "plan.json", "pulse-plan/1"), (table, "stages.json", "pulse-stages/1")):
        if not isinstance(source, dict) or source.get("format") != wanted:
            raise Refused(f"{folder / name}: format must be {wanted}")
    for key, what in (("further_chains", "cascades"), ("previews", "self-conditioning"), ("extents", "several sizes"),
                      ("frozen_tasks", "encoding in the bubbles (plan with --frozen none)")):
        if fields.get(key):
            raise Refused(f"{folder / 'plan.json'}: {key}: PyTorch's pipeline runtime does not support {what}")
    try:
        plan = Plan(folder, fields, [stage["layers"] for stage in table["stages"]],
                    [(edge["from"], edge["to"]) for edge in table["skips"]])
        names = [name for stage in plan.layers for name in stage]
        fits = [len(stage) for stage in plan.layers] == [stage["last_layer"] - stage["first_layer"] + 1
                                                         for stage in plan.stages]
        if not fits or len(set(names)) != len(names):
            raise Refused(f"{folder / 'stages.json'}: its stages must be those of plan.json")
        require_order(plan)
        for key in ("data_degree", "microbatch_size", "placement", "predicted"):
            getattr(plan, key)
        if plan.recomputation not in ("none", "skips", "stages", "selective"):
            raise Refused(f"{folder / 'plan.json'}: recomputation: must be none, skips, stages or selective, "
                          f"not {plan.recomputation}")
        if plan.recomputation == "selective" and len(plan.recomputed_stages) != len(plan.stages):
            raise Refused(f"{folder / 'plan.json'}: recomputed_stages: there must be one for each stage")
    except (AttributeError, KeyError, TypeError) as error:
        raise Refused(f"{folder}: {error} is missing in plan.json or stages.json") from error
    return plan


def require_order(plan):
    """Requires losses in microbatch order: the runtime finds a loss by how many came before it."""
    rows = list(csv.reader(content(plan.schedule_file).splitlines()))
    if len(rows) != plan.pipeline_degree:
        raise Refused(f"{plan.schedule_file}: it has {len(rows)} ranks, but plan.json has {plan.pipeline_degree}")
    last = f"{len(plan.layers) - 1}F"
    losses = [one for one in rows[plan.devices[-1]] if one.startswith(last)]
    if losses != [f"{last}{m}" for m in range(plan.microbatches)]:
        raise Refused(f"{plan.schedule_file}: the last stage runs its microbatches as {' '.join(losses)}: "
                      "PyTorch's pipeline runtime needs the losses in order")
