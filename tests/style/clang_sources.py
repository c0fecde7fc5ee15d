"""Has clang check what only g++ compiles in a build, warnings as errors: clang_sources.py CLANG COMPILE_COMMANDS

These are the programs of examples. Of models only the host's are checked, as they share their templates; CUDA code is
left out: clang 14 has no std::source_location.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

CLANG, DATA_BASE = sys.argv[1], pathlib.Path(sys.argv[2])
LEFT_OUT = re.compile(r"catalogue|pulse_train_(tiny|models|emulated)|train_on_pictures_|cuda_trainer|nccl_ranks")
KEPT = re.compile(r"-(D|I|std=|f(?!openmp|no-|keep-))")

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

# Reading headers dominates the time, so the sources of a target are compiled as one text.
targets = {}
for entry in json.loads(DATA_BASE.read_text(encoding="utf-8")):
    made = re.search(r" -o (examples/\S+\.dir)(/\S+)\.o ", entry["command"])
    if made and not LEFT_OUT.search(made[1] + made[2]):
        targets.setdefault(made[1], []).append(entry)

failed = 0
for target, entries in targets.items():
    words, kept = shlex.split(entries[0]["command"]), []
    for at, word in enumerate(words):
        if KEPT.match(word):
            kept.append(word)
        elif word in ("-isystem", "-include"):
            kept += words[at:at + 2]
    text = ""
    for file in (pathlib.Path(entry["file"]) for entry in entries):
        kept.append(f"-iquote{file.parent}")
        text += f"#line 1 \"{file}\"\n{file.read_text(encoding='utf-8')}\n"
    done = subprocess.run([CLANG, *kept, *WARNINGS, "-fsyntax-only", "-x", "c++", "-"], cwd=entries[0]["directory"],
                          input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        failed += 1
        print(f"{target}:\n{done.stderr}", flush=True)
print(f"{sum(map(len, targets.values()))} sources of {len(targets)} targets, {failed} failed")
sys.exit(1 if failed or not targets else 0)
