"""How well pulse_train chooses: its tuned plan against plans that are drawn at random, and simulated against measured
steps.

usage: plan_choice.py PULSE_TRAIN [--model NAME] [--data DIR] [--ranks N] [--global-batch B] [--drawn N] [--run N]
                      [--steps N] [--rounds N] [--seed S]
All plans are made from one measurement of layers and links. The best of those drawn and the tuned one train in turns,
round after round; a plan's step is its fastest of all rounds, since what else the machine does only adds to it.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "programs"))
from drawn_plans import drawn  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--model", default="ddpm_fmnist")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--seed", type=int, default=1)
    for name, value in (("ranks", 4), ("global-batch", 64), ("drawn", 50), ("run", 10), ("steps", 4), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="plan_choice.") as folder:
        room = pathlib.Path(folder)
        fixed = ["--model", asked.model, "--data", asked.data]
        known = ["--profile", room / "profile.json", "--cluster", room / "cluster.json"]

        def run(*options):
            line = [str(word) for word in (asked.program, *fixed, *options)]
            return subprocess.run(line, capture_output=True, text=True)

        def plan(name, *options):
            """The predicted plan, or None where there is none; its file is NAME/plan.json."""
            done = run("--global-batch", asked.global_batch, "--plan-only", "--out", room / name, *options)
            if done.returncode not in (0, 2, 3):
                raise SystemExit(done.stderr)
            return json.loads((room / name / "plan.json").read_text()) if done.returncode == 0 else None

        tuned = plan("tuned", "--ranks", asked.ranks, "--profile-out", known[1], "--cluster-out", known[3])
        if tuned is None:
            raise SystemExit("nothing can be planned")
        draw = random.Random(asked.seed)
        plans = {}
        while len(plans) < asked.drawn:
            name = f"drawn{len(plans)}"
            pipeline = draw.choice([p for p in range(1, asked.ranks + 1) if asked.ranks % p == 0])
            options = [*drawn(draw, pipeline, asked.ranks // pipeline), "--microbatch-size", draw.choice([1, 2, 4, 8])]
            if made := plan(name, *known, *options):
                plans[name] = made["predicted"]["step_us"] / 1000, " ".join(map(str, options))
        step = tuned["predicted"]["step_us"] / 1000
        best = sorted(plans, key=lambda name: plans[name][0])[:asked.run]
        print(f"{asked.model}, {asked.ranks} ranks, {asked.global_batch} samples: "
              f"the tuned step is simulated as {step:.1f} ms; "
              f"{len(plans)} drawn ones as {plans[best[0]][0]:.1f} to {max(p[0] for p in plans.values()):.1f} ms; "
              f"shorter than the tuned one: {sum(p[0] < step for p in plans.values())}")

        plans["tuned"] = step, f"pipeline {tuned['pipeline_degree']}, replicas {tuned['data_degree']}, " \
                               f"microbatches of {tuned['microbatch_size']}"
        measured = {name: [] for name in ("tuned", *best)}
        for number in range(asked.rounds):
            for name in measured:
                done = run("--plan", room / name / "plan.json", "--steps", asked.steps, "--sample", 0, "--out",
                           room / f"{name}.{number}")
                if done.returncode != 0:
                    raise SystemExit(done.stderr)
                report = json.loads((room / f"{name}.{number}" / "report.json").read_text())
                measured[name].append(report["measured_step_us"] / 1000)
        print("simulated   fastest    median  fastest/simulated  plan")
        for name in sorted(measured, key=lambda name: min(measured[name])):
            fastest = min(measured[name])
            print(f"{plans[name][0]:7.1f} ms {fastest:6.1f} ms {statistics.median(measured[name]):6.1f} ms "
                  f"{fastest / plans[name][0]:18.3f}  {name}: {plans[name][1]}")


if __name__ == "__main__":
    main()
