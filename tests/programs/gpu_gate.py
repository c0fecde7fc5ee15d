"""gpu_gate.sh: what it packs and refuses; how it handles programs that fail, hang or succeed; and a whole run with
emulated CUDA.

Usage: gpu_gate.py SOURCE COMPILER PYTHON BINARIES [unittest arguments]

SOURCE is the checkout. Only the class Emulated needs BINARIES, programs with emulated CUDA, and a PYTHON with torch; it
exits with 77 without torch.
"""

import atexit
import itertools
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

SOURCE, COMPILER, PYTHON, BINARIES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
del sys.argv[1:5]
PROGRAMS = ("test_cuda", "test_nccl_gpu", "bench_blocks", "bench_p2p", "pulse_train")
SCRIPTS = [SOURCE / "bench" / name for name in ("gpu_gate.sh", "gate_report.py", "blocks_peer.py")]
SCRIPTS += [SOURCE / "tests/programs" / name
            for name in ("pulse_train_cuda.py", "pulse_train_nccl.py", "tiny_pipeline.py", "drawn_plans.py",
                         "device_tests.py", "files.py")]
MOST_FILES = 8
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="gpu_gate."))
atexit.register(shutil.rmtree, ROOM, True)
serial = itertools.count()


def fresh(name):
    folder = ROOM / f"{name}{next(serial)}"
    folder.mkdir()
    return folder


def script(path, text):
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(gate, *words, environment=None, timeout=280):
    return subprocess.run([gate, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env=os.environ | (environment or {}))


class Rows:
    """The table that the gate prints: each step's status and remark."""

    def __init__(self, folder):
        lines = [line.split("\t") for part in ("correctness", "speed") if (folder / f"{part}.txt").exists()
                 for line in (folder / f"{part}.txt").read_text().splitlines()]
        self.status = {line[2]: line[0] for line in lines}
        self.word = {line[2]: line[3] for line in lines}


class Build(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.programs = fresh("programs")
        cls.source = cls.programs / "small.c"
        cls.source.write_text("int odd(void) { return 0; }\nint main(void) { return 0; }\n")
        subprocess.run([COMPILER, "-x", "c", cls.source, "-o", cls.programs / PROGRAMS[0]], check=True)
        for name in PROGRAMS[1:]:
            shutil.copy(cls.programs / PROGRAMS[0], cls.programs / name)

    def packed(self, programs, *more):
        into = fresh("into") / "gate"
        return into, run(SCRIPTS[0], "build", "--from", programs, "--into", into, *more)

    def with_other(self, *flags):
        """Programs, one of which is linked with flags."""
        programs = fresh("other")
        for name in PROGRAMS:
            shutil.copy(self.programs / name, programs / name)
        subprocess.run([COMPILER, "-x", "c", self.source, "-x", "none", *flags, "-o", programs / "bench_p2p"],
                       check=True)
        return programs

    def test_what_is_packed(self):
        into, done = self.packed(self.programs)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with tarfile.open(f"{into}.tar.gz") as packed:
            names = {name.partition("/")[2] for name in packed.getnames()}
        self.assertLessEqual({*PROGRAMS, *(path.name for path in SCRIPTS), "commit.txt"}, names)
        self.assertEqual(subprocess.run([into / "test_cuda"]).returncode, 0)
        for path in (into / name for name in names if name.endswith(".py")):
            for line in re.findall(r"(?m)^(?:import|from) (\w+)", path.read_text()):
                found = [folder for folder in ("bench", "tests/programs") if (SOURCE / folder / f"{line}.py").exists()]
                self.assertTrue(not found or f"{line}.py" in names, f"{path.name} imports {line}, which is not packed")
        sections = subprocess.run(["readelf", "-S", into / "test_cuda"], capture_output=True, text=True).stdout
        self.assertNotIn(".symtab", sections)

    def test_what_is_too_large(self):
        into, done = self.packed(self.programs, "--limit", 0)
        self.assertEqual(done.returncode, 1)
        self.assertIn("too large", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\d+\s+test_cuda$")
        self.assertFalse(into.with_name("gate.tar.gz").exists())

    def test_a_folder_of_this_machine(self):
        into, done = self.packed(self.with_other("-Wl,-rpath,/nowhere"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench_p2p looks for libraries in a folder of this machine", done.stderr)
        self.assertFalse(into.with_name("gate.tar.gz").exists())

    def test_a_library_that_is_not_there(self):
        library = fresh("library")
        subprocess.run([COMPILER, "-x", "c", "-shared", "-fPIC", self.source, "-o", library / "libodd.so"], check=True)
        _, done = self.packed(self.with_other("-Wl,--no-as-needed", library / "libodd.so"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench_p2p needs libodd.so", done.stderr)

    def test_refusals(self):
        lacking = self.with_other()
        (lacking / "bench_p2p").unlink()
        for words, said in (((), "build, correctness"), (("build", "--into"), ""),
                            (("build", "--no-such", "1"), "--no-such"),
                            (("build", "--from", lacking, "--into", fresh("into")), "bench_p2p"),
                            (("speed",), "RESULT"),
                            (("speed", ROOM / "result"), "no programs"),
                            (("speed", ROOM / "result", "--no-such", 1), "--no-such"),
                            (("speed", ROOM / "result", "--python", ROOM / "absent"), "absent"),
                            (("speed", ROOM / "result", "--engines", ROOM / "absent"), "absent"),
                            (("summary", ROOM), "no results")):
            done = run(SCRIPTS[0], *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)
            self.assertLessEqual(done.stderr.count("\n"), 1)
        self.assertFalse((ROOM / "result").exists())


BLOCKS = {"quick": False, "attention": "attention forward, batch 4: cuDNN\n", "steps": [], "rows": []}


def row(operation, flop, percent, library=None):
    made = {"operation": operation, "shape": "8x8", "batch": 4, "us": 100.0, "flop": flop, "ceiling_percent": percent}
    return made | ({} if library is None else {"library_us": library})


class Steps(unittest.TestCase):
    """Programs and tools are replaced by scripts that behave as each test needs."""
    longMessage = True

    def setUp(self):
        self.gate = fresh("gate")
        for path in SCRIPTS[:2]:
            shutil.copy(path, self.gate)
        (self.gate / "commit.txt").write_text("a commit\n")
        self.tools = fresh("tools")
        for name in ("compute-sanitizer", "ncu"):  # they run the command after their options
            script(self.tools / name, 'echo "$@"; until [ -x "$1" ]; do shift; done; exec "$@"\n')
        script(self.tools / "ldd", "echo all is there\n")
        script(self.tools / "nvidia-smi", "echo 143771\n")
        modules = fresh("modules")
        (modules / "nvidia/cudnn/lib").mkdir(parents=True)
        (modules / "torch.py").write_text("class _all:\n    def __getattr__(self, name): return self\n"
                                          "    def __call__(self): return 9\n"
                                          "__version__ = 2\nversion = backends = _all()\n")
        self.environment = {"PATH": f"{self.tools}:{os.environ['PATH']}", "PYTHONPATH": str(modules),
                            "FAKE": str(self.gate / "fake")}
        (self.gate / "fake").mkdir()
        self.set("names", "cuda norm\ncuda sum, of rows\n")
        self.set("memory", BLOCKS | {"rows": [row("silu", 0, 90.0), row("norm", 0, 85.0)]})
        self.set("conv2d", BLOCKS | {"rows": [row("conv2d", 1, 50.0, 97.5)]})
        self.set("attention", BLOCKS | {"rows": [row("attention", 1, 50.0)]})
        step = {"name": "sd21", "batch": 4, "pulse": {"us": 2000.0, "attention": "a: pulse; cuDNN: it: refuses\n"},
                "torch": {"eager": {"us": 4000.0}, "compile": {"failure": "no compiler"}}}
        self.set("sd21", BLOCKS | {"steps": [step]})
        self.set("sdxl", BLOCKS)
        self.set("bench_p2p", {"quick": False,
                               "paths": [{"path": "threads", "rows": []},
                                         {"path": "copy", "copy_gb_per_s": 100, "rows": [{"gb_per_s": 91}]}]})
        script(self.gate / "test_cuda", r'''
[[ "$*" == *--list-test-cases* ]] && { echo "[doctest] listing"; cat "$FAKE/names"; exit; }
mkdir -p "$PULSE_ENGINE_CACHE" && printf 'a\na graph\n{"engine":{"engineId":10,' >"$PULSE_ENGINE_CACHE/a.engine"
echo "$@ $LD_LIBRARY_PATH $CUDA_DEVICE_MAX_CONNECTIONS"
passed=0 status=0
case "$*" in *norm*) passed=$((passed + 1)) ;; esac
case "$*" in *'sum\, of rows'*) passed=$((passed + 1)) ;; esac
case "$*" in *fails*) status=1; printf 'TEST CASE:  it fails\n\na.cu:1: ERROR: CHECK( a ) is NOT correct!\n' ;; esac
case "$*" in
    *hangs*)
        trap 'printf "TEST CASE:  it hangs, too\na.cu:2: FATAL ERROR: test case CRASHED: SIGTERM\n"
            echo "[doctest] test cases: 2 | $passed passed"
            exit 1' TERM
        sleep 100 & wait
        ;;
esac
echo "[doctest] test cases: $((passed + status)) | $passed passed | $status failed"
exit $status
''')
        script(self.gate / "bench_blocks", r'''
mkdir -p "$PULSE_ENGINE_CACHE" && echo kept >"$PULSE_ENGINE_CACHE/b.engine"
echo "$@"
[[ "$*" == *--json* ]] || exit 0
for what in sd21 sdxl conv2d attention memory; do [[ "$*" == *$what* ]] && break; done
cp "$FAKE/$what" "${@: -1}"
''')
        script(self.gate / "bench_p2p", 'cp "$FAKE/bench_p2p" "${@: -1}"\n')
        script(self.gate / "test_nccl_gpu", 'echo "ran on $PULSE_REQUIRE_GPU"\n')
        script(self.gate / "pulse_train", "exit 1\n")
        for name in ("pulse_train_cuda.py", "pulse_train_nccl.py"):
            (self.gate / name).write_text("import os, sys\nassert os.environ['LD_LIBRARY_PATH'].endswith(os.getcwd())\n"
                                          "assert os.access(sys.argv[1], os.X_OK)\n")

    def set(self, name, what):
        (self.gate / "fake" / name).write_text(what if isinstance(what, str) else json.dumps(what))

    def gated(self, part, result, *more, status):
        done = run(self.gate / "gpu_gate.sh", part, result, "--python", sys.executable, *more,
                   environment=self.environment)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        files = list(result.iterdir())
        self.assertLessEqual(len(files), MOST_FILES, files)
        again = run(self.gate / "gpu_gate.sh", "summary", result)
        self.assertEqual((again.returncode, again.stdout), (status, (result / "summary.txt").read_text()))
        self.assertTrue(done.stdout.endswith(again.stdout), done.stdout)
        return Rows(result), again.stdout

    def log(self, result, part, step):
        with tarfile.open(result / f"{part}_logs.tar.gz") as logs:
            return "".join(logs.extractfile(one).read().decode() for one in logs if one.isfile() and step in one.name)

    def test_all_is_well(self):
        result = fresh("result")
        rows, said = self.gated("correctness", result, status=0)
        self.assertEqual(set(rows.status.values()), {"passed"}, said)
        for step in ("versions", "own kernels", "library calls", "training as on the host, sd_tiny", "memcheck",
                     "racecheck", "synccheck", "NCCL, 2 and 4 ranks on one card",
                     "NCCL ranks as threads, ddpm_fmnist_small", "bench_p2p", "operations that move memory",
                     "convolutions and products", "attention"):
            self.assertIn(step, rows.status)
        self.assertEqual(rows.word["own kernels"], "2 passed")
        self.assertRegex(said, r"copy rate: target 85 %, met by 2 of 2\n[^\n]* target 97 %, met by 1 of 1\n"
                               r"[^\n]* target 90 %, met by 1 of 1\n")
        self.assertIn("ran on 1", self.log(result, "correctness", "NCCL,_2"))
        self.assertRegex(self.log(result, "correctness", "own_kernels"), r"/nvidia/cudnn/lib[^\n]* 32\n")
        for tool in ("memcheck", "racecheck", "synccheck"):
            self.assertIn(f"--tool {tool} --error-exitcode 9", self.log(result, "correctness", tool))
        # The second call reuses the first one's engines, and its table contains both.
        rows, said = self.gated("speed", result, status=0)
        self.assertEqual(set(rows.status.values()), {"passed"}, said)
        for step in ("own kernels", "engines of sd21", "step of sd21, torch eager", "step of sd21, torch compile",
                     "step of sdxl", "kernels of a transformer"):
            self.assertIn(step, rows.status)
        self.assertRegex(said, r"step of sd21, batch 4: 2.00 ms\n  torch eager: 4.00 ms, pulse is 2.00 times as fast\n"
                               r"  torch compile: no compiler\n  attention: 1 by cuDNN, 1 by pulse\n")
        self.assertIn("--torch compile", self.log(result, "speed", "step_of_sd21,_torch_compile"))
        self.assertIn(f"--script {self.gate}/blocks_peer.py", self.log(result, "speed", "step_of_sd21"))
        self.assertIn('a graph\n"engine":{"engineId":10\n', self.log(result, "speed", "engines.log"))
        with tarfile.open(result / "engines.tar.gz") as engines:
            self.assertIn("engines/a.engine", engines.getnames())
        elsewhere = fresh("result")
        self.gated("speed", elsewhere, "--engines", result / "engines.tar.gz", status=0)
        with tarfile.open(elsewhere / "engines.tar.gz") as engines:
            self.assertIn("engines/a.engine", engines.getnames())

    def test_what_fails_or_hangs_costs_itself_alone(self):
        self.set("names", "it fails\ncuda norm\nit hangs, too\n")
        (self.gate / "pulse_train_nccl.py").write_text("print('it is wrong')\nraise SystemExit(3)\n")
        child = fresh("child") / "number"
        script(self.gate / "test_nccl_gpu", f"(trap '' TERM; sleep 100; sleep 100) & echo $! >{child}; sleep 100\n")
        script(self.gate / "bench_p2p", "echo no card; exit 77\n")
        begun = time.monotonic()
        rows, said = self.gated("correctness", result := fresh("result"), "--step-seconds", 4, status=1)
        self.assertLess(time.monotonic() - begun, 150)
        state = pathlib.Path("/proc", child.read_text().strip(), "stat")
        self.assertTrue(not state.exists() or " Z " in state.read_text())
        self.assertEqual((rows.status["own kernels"], rows.word["own kernels"]),
                         ("timed out", "1 passed; it fails; it hangs, too"))
        self.assertEqual(rows.status["NCCL, 2 and 4 ranks on one card"], "timed out")
        self.assertEqual(rows.status["NCCL ranks as threads, sd_tiny"], "failed")
        self.assertEqual(rows.word["NCCL ranks as threads, sd_tiny"], "it is wrong")
        self.assertEqual((rows.status["bench_p2p"], rows.word["bench_p2p"]), ("failed", "no card"))
        self.assertEqual(rows.status["attention"], "passed")  # the last step
        self.assertRegex(said, r"\n6 passed, 6 timed out, 3 failed\n")
        self.assertIn("own rate: target 97 %", said)
        self.assertRegex(said, r"largest messages[^\n]*: no figures\n")

    def test_names_that_match_nothing(self):
        self.set("names", "it matches nothing\n")
        rows, _ = self.gated("correctness", fresh("result"), status=1)
        self.assertEqual((rows.status["own kernels"], rows.word["own kernels"]), ("failed", "0 passed"))

    def test_no_time_is_left(self):
        rows, _ = self.gated("correctness", fresh("result"), "--seconds", 1, status=1)
        self.assertEqual({(rows.status[step], rows.word[step]) for step in rows.status}, {("not run", "no time")})
        self.assertIn("attention", rows.status)

    def test_a_file_that_is_too_large_to_come_back(self):
        engines = fresh("kept") / "engines"
        engines.mkdir()
        (engines / "a.engine").write_bytes(os.urandom(17 << 20))
        subprocess.run(["tar", "-C", engines.parent, "-czf", engines.parent / "engines.tar.gz", "engines"], check=True)
        rows, _ = self.gated("speed", result := fresh("result"), "--seconds", 1,
                             "--engines", engines.parent / "engines.tar.gz", status=1)
        self.assertEqual((rows.status["engines.tar.gz"], rows.word["engines.tar.gz"]),
                         ("failed", "more than 16 MiB, left out"))
        self.assertFalse((result / "engines.tar.gz").exists())

    def test_figures_that_miss_their_target(self):
        self.set("memory", BLOCKS | {"rows": [row("silu", 0, 90.0), row("norm", 0, 84.9)]})
        self.set("conv2d", BLOCKS | {"rows": [row("conv2d", 1, 99.0, 96.9)]})
        self.set("bench_p2p",
                 {"quick": False, "paths": [{"path": "copy", "copy_gb_per_s": 100, "rows": [{"gb_per_s": 89}]}]})
        rows, said = self.gated("correctness", fresh("result"), "--only", "sum", status=1)
        self.assertEqual(set(rows.status.values()), {"passed"})
        self.assertEqual(rows.word["own kernels"], "1 passed")
        for words in ("met by 1 of 2", "missed: norm 8x8, batch 4: 84.9 %", "missed: conv2d 8x8, batch 4: 96.9 %",
                      "missed: copy: 89.0 %"):
            self.assertIn(words, said)

    def test_a_machine_that_lacks_something(self):
        script(self.tools / "ldd", "echo 'libcudnn.so.9 => not found'\n")
        script(self.tools / "nvidia-smi", "echo 81559\n")
        for name in ("compute-sanitizer", "ncu"):
            (self.tools / name).unlink()
        self.environment["CUDA_HOME"] = str(self.tools)
        self.set("names", "")
        rows, _ = self.gated("correctness", result := fresh("result"), status=1)
        self.assertEqual((rows.status["versions"], rows.status["memcheck"]), ("failed", "skipped"))
        self.assertEqual((rows.status["own kernels"], rows.word["own kernels"]), ("failed", "there is no test case"))
        rows, _ = self.gated("speed", result, status=1)
        self.assertEqual((rows.status["step of sdxl"], rows.status["kernels of a transformer"]), ("skipped", "skipped"))
        self.assertIn("the card has 79", rows.word["step of sdxl"])


class Emulated(unittest.TestCase):
    longMessage = True

    def test_all_of_it(self):
        gate, result = fresh("gate"), fresh("result")
        for path in SCRIPTS:
            shutil.copy(path, gate)
        (gate / "commit.txt").write_text("a commit\n")
        for name in PROGRAMS:
            emulated = BINARIES / f"{name}_emulated"
            (gate / name).symlink_to(emulated if emulated.exists() else BINARIES / name)
        only = "same bits twice|gradients of a weight are added"
        for part, more in (("correctness", ("--only", only)), ("speed", ())):
            done = run(gate / "gpu_gate.sh", part, result, "--emulated", "--python", PYTHON, *more)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout)
        rows = Rows(result)
        skipped = {step for step, status in rows.status.items() if status == "skipped"}
        self.assertEqual(skipped - {"memcheck", "racecheck", "synccheck", "kernels of a transformer"},
                         {"NCCL, 2 and 4 ranks on one card", "step of sdxl"})
        self.assertEqual((rows.word["own kernels"], rows.word["library calls"]), ("3 passed", "1 passed"))
        self.assertLessEqual(len(list(result.iterdir())), MOST_FILES)
        figures = {part: json.loads((result / f"{part}.json").read_text()) for part in ("correctness", "speed")}
        self.assertEqual({name for part in figures for name in figures[part]},
                         {"attention", "bench_p2p", "memory", "products", "small_eager"})
        self.assertEqual(len(figures["correctness"]["products"]["rows"]), 2)
        step = figures["speed"]["small_eager"]["steps"][0]
        self.assertIn("attention forward, batch 2", step["pulse"]["attention"])
        # PyTorch took the step as well, and both results were compared.
        self.assertGreater(step["torch"]["eager"]["us"], 0)
        self.assertEqual((step["checked"], step["wrong"]), (13, 0))
        with tarfile.open(result / "engines.tar.gz") as engines:
            self.assertTrue([name for name in engines.getnames() if name.endswith(".engine")])


if __name__ == "__main__":
    if "Emulated" in sys.argv and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"{PYTHON} has no torch")
        sys.exit(77)
    unittest.main(verbosity=2)
