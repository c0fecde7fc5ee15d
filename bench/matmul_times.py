"""How long the matrix products of counted steps take by NVIDIA's model of its kernels (nvidia-matmul-heuristics, which
needs no GPU) beside the rates that are assumed: FILE is what `bench_blocks --count --json FILE` has written, and says
of which card. The model's kernels are CUTLASS's. What a product of one tile takes by it, some 10 us, is taken for a
start that a replayed graph does not have: "less starts" has the launch that is assumed in its place."""

import argparse
import json
import sys

try:
    import nvMatmulHeuristics as nv
except ImportError:
    print("skipped: python3 -m pip install nvidia-matmul-heuristics")
    sys.exit(77)

GPUS = {"a100-80gb": "A100_SXM_80GB", "h100-80gb": "H100_SXM", "h200": "H200_SXM", "rtx-4090": "RTX_4090"}
TILE = {"rows": 128, "columns": 128, "depth": 64, "transpose_a": True, "transpose_b": False, "result": "bf16",
        "batch": 1}
HEAD = ["rows", "columns", "depth", "of", "result", "batch", "epilogue", "adds", "times", "us each: assumed", "model",
        "less starts", "model / assumed"]


class Model:
    def __init__(self, card):
        self.interface = nv.NvMatmulHeuristicsInterfaceEx(
            backend=nv.NvMatmulHeuristicsTarget.CUTLASS3,
            flags=nv.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
            gpu=getattr(nv.NvMatmulHeuristicsNvidiaGpu, GPUS[card]))

    def seconds(self, product):
        """Seconds of the fastest of up to eight kernels, with sums in float."""
        layout = getattr(nv.NvMatmulHeuristicsMatmulLayout, letters(product) + "_COL_MAJOR")
        problem = self.interface.makeNvMatmulHeuristicsProblem(product["rows"], product["columns"], product["depth"],
                                                               layout, product["batch"])
        found = self.interface.get(problem, 8, "TSS" if product["result"] == "fp32" else "TST")
        if not found:
            raise SystemExit(f"the model has no kernel for {product}")
        return min(kernel["runtime"] for kernel in found)


def letters(product):
    return "".join("T" if product["transpose_" + which] else "N" for which in "ab")


def print_row(cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def print_step(step, model, launch_ms, shapes):
    print(f"\nstep {step['model']}, batch {step['batch']}")
    start = 1e3 * model.seconds(TILE) - launch_ms
    rows = []
    for product in step["products"]:
        by_model = 1e3 * model.seconds(product)
        rows.append((product, product["kernels"], product["ms"] / product["kernels"], by_model, by_model - start))
    rows.sort(key=lambda row: -row[1] * row[3])
    if shapes != 0:
        print_row(HEAD)
        print_row(["---"] * len(HEAD))
    for product, times, *each in rows[:shapes]:
        print_row([product[key] for key in HEAD[:3]] + [letters(product)] +
                  [product[key] for key in ("result", "batch", "epilogue")] + ["yes" if product["adds"] else "no"] +
                  [f"{times:.0f}"] + [f"{1e3 * ms:.1f}" for ms in each] + [f"{each[1] / each[0]:.2f}"])
    assumed, *others = (sum(times * each[i] for _, times, *each in rows) for i in range(3))
    whole = step["parties"]["pulse"]["all"]["ms"]
    print(f"{len(rows)} shapes, {sum(row[1] for row in rows):.0f} products: {assumed:.2f} ms as assumed, of a step of "
          f"{whole:.2f} ms")
    for name, ms in zip(("model", "less starts"), others):
        print(f"{name}: {ms:.2f} ms, {ms / assumed:.2f} times; the step {whole - assumed + ms:.2f} ms")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("file")
    options.add_argument("--shapes", type=int, help="Print only this many shapes of a step, those that take longest.")
    options = options.parse_args()
    with open(options.file) as file:
        counted = json.load(file)
    model = Model(counted["card"])
    for step in counted["steps"]:
        print_step(step, model, 1e-3 * counted["launch_us"], options.shapes)


if __name__ == "__main__":
    main()
