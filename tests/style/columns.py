"""Fails if a line of code has over 120 columns, and names the file and the line. columns.py ROOT"""

import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1])
COLUMNS = 120
FOLDERS = ("bench", "cmake", "examples", "include", "tests")
CODE = {".cmake", ".cpp", ".cu", ".cuh", ".hpp", ".in", ".ipp", ".py", ".sh"}

looked_at, long = 0, []
for file in [ROOT / "CMakeLists.txt", *(file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")))]:
    name = file.relative_to(ROOT).as_posix()
    if file.suffix not in CODE and file.name != "CMakeLists.txt":
        continue
    looked_at += 1
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > COLUMNS:
            long.append(f"{name}:{number}: {len(line)} columns")
if looked_at < 100:
    sys.exit(f"{ROOT} has only {looked_at} files of code: look elsewhere")
if long:
    sys.exit("\n".join([*long, f"{len(long)} lines of code have over {COLUMNS} columns"]))
print(f"{looked_at} files of code, no line over {COLUMNS} columns")
