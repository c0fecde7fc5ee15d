"""Tests matmul_times.py with a fake model, and with NVIDIA's own where it is installed, on what PROGRAM counts
(bench_blocks_emulated)."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "matmul_times.py")
PROGRAM = sys.argv.pop(1)
# A product takes 100 ns for each of its multiplications, one tile 10 us; floats and letters have to be right.
FAKE = """
class Any:
    def __getattr__(self, name):
        return name
NvMatmulHeuristicsTarget = NvMatmulHeuristicsFlags = Any()
NvMatmulHeuristicsNvidiaGpu = NvMatmulHeuristicsMatmulLayout = Any()
class NvMatmulHeuristicsInterfaceEx:
    def __init__(self, backend, flags, gpu):
        assert (backend, flags, gpu) == ("CUTLASS3", "PERF_MODEL_BASED_AUTO_TUNING", "H200_SXM")
    def makeNvMatmulHeuristicsProblem(self, m, n, k, layout, batch):
        return m, n, k, layout, batch
    def get(self, problem, count, precision):
        m, n, k, layout, batch = problem
        tile = problem == (128, 128, 64, "TN_COL_MAJOR", 1)
        known = {(3, 5, 7, "NT_COL_MAJOR", 2): "TSS", (8, 4, 2, "TN_COL_MAJOR", 1): "TST"}
        if not tile and known.get(problem) != precision:
            return []
        seconds = 10e-6 if tile else m * n * k * batch * 1e-7
        return [{"runtime": 2 * seconds}, {"runtime": seconds}, {"runtime": 3 * seconds}]
"""


def product(rows, columns, depth, letters, result, batch, kernels, ms):
    return {"kernels": kernels, "bytes": 1.0, "flop": 1.0, "ms": ms, "rows": rows, "columns": columns, "depth": depth,
            "transpose_a": letters[0] == "T", "transpose_b": letters[1] == "T", "type": "bf16", "result": result,
            "batch": batch, "adds": False, "epilogue": "none"}


class MatmulTimes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "count.json")

    def ask(self, *arguments, module=None):
        """The exit status and the output, with `module` in place of NVIDIA's."""
        if module is not None:
            with open(os.path.join(self.folder.name, "nvMatmulHeuristics.py"), "w") as file:
                file.write(module)
        paths = [self.folder.name] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
        done = subprocess.run([sys.executable, "-B", SCRIPT, self.file, *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
        return done.returncode, done.stdout

    def write(self, *products):
        with open(self.file, "w") as file:
            json.dump({"card": "h200", "launch_us": 2.0, "steps": [
                {"model": "made", "batch": 1, "products": products,
                 "parties": {"pulse": {"all": {"ms": 1.0}}}}]}, file)

    def count(self):
        subprocess.run([PROGRAM, "--count", "--quick", "--batch", "2", "--json", self.file], check=True,
                       stdout=subprocess.DEVNULL)
        with open(self.file) as file:
            return json.load(file)["steps"][0]

    def test_says_how_to_install_it(self):
        self.write()
        self.assertEqual(self.ask(module="raise ImportError"),
                         (77, "skipped: python3 -m pip install nvidia-matmul-heuristics\n"))

    def test_adds_up(self):
        self.write(product(8, 4, 2, "TN", "bf16", 1, 10, 0.05), product(3, 5, 7, "NT", "fp32", 2, 4, 0.08))
        status, text = self.ask(module=FAKE)
        self.assertEqual(status, 0, text)
        # 10 of 6.4 us and 4 of 21 us: 0.148 ms; a start of 10 us is 8 us longer than what is assumed
        self.assertEqual([line for line in text.splitlines() if not line.startswith("|")], [
            "", "step made, batch 1", "2 shapes, 14 products: 0.13 ms as assumed, of a step of 1.00 ms",
            "model: 0.15 ms, 1.14 times; the step 1.02 ms", "less starts: 0.04 ms, 0.28 times; the step 0.91 ms"])
        rows = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(rows[2:], ["| 3 | 5 | 7 | NT | fp32 | 2 | none | no | 4 | 20.0 | 21.0 | 13.0 | 1.05 |",
                                    "| 8 | 4 | 2 | TN | bf16 | 1 | none | no | 10 | 5.0 | 6.4 | -1.6 | 1.28 |"])
        self.assertEqual(len(self.ask("--shapes", "1", module=FAKE)[1].splitlines()), len(text.splitlines()) - 1)

    def test_needs_a_kernel(self):
        self.write(product(8, 4, 2, "TN", "fp32", 1, 10, 0.05))
        status, text = self.ask(module=FAKE)
        self.assertEqual(status, 1)
        self.assertIn("the model has no kernel for", text)

    def test_a_step_has_its_products(self):
        step = self.count()
        kinds = step["parties"]["pulse"]
        for kind, transposed in (("forward", (True, False)), ("dgrad", (False, False)), ("wgrad", (False, True))):
            of_kind = [p for p in step["products"] if (p["transpose_a"], p["transpose_b"]) == transposed]
            for unit in ("kernels", "bytes", "flop"):
                self.assertEqual(sum(p[unit] for p in of_kind), kinds["product " + kind][unit])
        for p in step["products"]:
            self.assertEqual(2 * p["rows"] * p["columns"] * p["depth"] * p["batch"] * p["kernels"], p["flop"])
            # only gradients of weights are in float
            self.assertEqual(p["result"], "fp32" if p["transpose_b"] else "bf16")
            self.assertIn(p["epilogue"], ("none", "bias gradient" if p["transpose_b"] else "bias"))
        self.assertEqual({p["adds"] for p in step["products"]}, {False, True})

    def test_nvidias_model(self):
        self.count()
        status, text = self.ask()
        if status == 77:
            self.skipTest(text)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\nmodel: \d+\.\d+ ms, \d+\.\d+ times; the step \d+\.\d+ ms\n")


if __name__ == "__main__":
    unittest.main()
