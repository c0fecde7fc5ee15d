"""Has clang read what only g++ compiles in a build, warnings as errors: clang_sources.py CLANG COMPILE_COMMANDS

These are the programs of examples. Models are left out but for those of the host, for they are the same templates, and
so is what is CUDA's: clang 14 has no std::source_location.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

CLANG, DATA_BASE = sys.argv[1], pathlib.Path(sys.argv[2])
LEFT_OUT = re.compile(r"catalogue|pulse_train_(tiny|models|emulated)|train_on_pictures_|cuda_trainer|nccl_ranks")
KEPT = re.compile(r"-(D|I|std=|f(?!openmp|no-))")

failed, read = [], 0
for entry in json.loads(DATA_BASE.read_text(encoding="utf-8")):
    made = re.search(r" -o (examples/\S+)\.o ", entry["command"])
    if not made or LEFT_OUT.search(made[1]):
        continue
    words, kept = shlex.split(entry["command"]), []
    for at, word in enumerate(words):
        if KEPT.match(word):
            kept.append(word)
        elif word in ("-isystem", "-include"):
            kept += words[at:at + 2]
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    done = subprocess.run([CLANG, *kept, *warnings, "-fsyntax-only", entry["file"]], cwd=entry["directory"],
                          capture_output=True, text=True, check=False)
    read += 1
    if done.returncode != 0:
        failed.append(made[1])
        print(f"{made[1]}:\n{done.stderr}", flush=True)
print(f"{read} sources, {len(failed)} failed")
sys.exit(1 if failed or not read else 0)
