"""Has clang read each header exactly once, so that it sees only what it includes itself.

    header_modules.py <clang++> <compile_commands.json> <unit>...

A unit is a source file of that data base that includes headers; the defines and include folders of the units' commands
apply to all. The headers form one clang module, each a submodule that sees what it includes and nothing of the
headers before it: a name declared elsewhere is an error. Other included files form a second module, in which each file
is a submodule that re-exports what it includes. A module ignores repeated includes, so each header must have
#pragma once.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

KEPT = re.compile(r"-(D|I|std=|W(?!no-restrict)|march=|fopenmp)")
MODULES = ("-Xclang", "-fno-cxx-modules", "-Xclang", "-fmodules", "-fno-implicit-modules",
           "-fno-implicit-module-maps")


def arguments_of(data_base, units):
    """Language, macro, folder and warning options of the `units`' commands, without duplicates, and their folder."""
    with open(data_base, encoding="utf-8") as file:
        commands = {os.path.realpath(entry["file"]): entry for entry in json.load(file)}
    kept = {}
    for unit in units:
        entry = commands[os.path.realpath(unit)]
        words = iter(shlex.split(entry["command"]))
        for word in words:
            if KEPT.match(word):
                kept[word,] = None
            elif word == "-isystem":
                kept[word, next(words)] = None
    return [word for words in kept for word in words], entry["directory"]


def guarded(path):
    """Whether a file may be read only once; others, such as <cassert>, are read wherever they are included."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if path.endswith(("/stddef.h", "/stdarg.h")):  # macros select parts of these
        return False
    macros = re.findall(r"#\s*if(?:ndef|\s*!\s*defined)\s*\(?(\w+)", text)[:2]
    return bool(re.search(r"#\s*pragma\s+once", text)) or any(
        re.search(rf"#\s*define\s+{macro}\b", text) for macro in macros)


def write_map(path, name, files):
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"module {name} {{\n")
        for number, file in enumerate(files):
            out.write(f'module m{number} {{ header "{file}" export * }}\n' if guarded(file)
                      else f'textual header "{file}"\n')
        out.write("}\n")


def main():
    clang, data_base, *units = sys.argv[1:]
    arguments, folder = arguments_of(data_base, units)
    names = []
    for unit in units:
        with open(unit, encoding="utf-8") as file:
            names += re.findall(r"^#include <(.+)>$", file.read(), re.MULTILINE)
    everything = "".join(f"#include <{name}>\n" for name in names)

    def run(*words):
        return subprocess.run([clang, *arguments, *words], cwd=folder, input=everything, capture_output=True,
                              text=True, check=False)

    # All files in the order of reading; bodies (.ipp) belong to their header.
    headers, others = {}, {}
    read = run("-E", "-H", "-x", "c++", "-")
    if read.returncode != 0:
        sys.exit(read.stderr)
    for path in re.findall(r"^\.+ (.+)$", read.stderr, re.MULTILINE):
        path = os.path.realpath(os.path.join(folder, path))
        if "/include/pulse/" not in path:
            others[path] = None
        elif not path.endswith(".ipp"):
            headers[path] = None
    missing = [name for name in names if not any(path.endswith("/" + name) for path in headers)]
    if missing or not names:
        sys.exit(f"not found: {missing}")

    twice = []
    for path in headers:
        with open(path, encoding="utf-8") as file:
            if not re.search(r"^#pragma once$", file.read(), re.MULTILINE):
                twice.append(path)
                print(f"{path} has no #pragma once")
    with tempfile.TemporaryDirectory() as scratch:
        for module, files, words in (("other", others, ("-w", "-Wno-module-import-in-extern-c")),
                                     ("headers", headers, ("-Xclang", "-fmodules-local-submodule-visibility",
                                                           f"-fmodule-map-file={scratch}/other.map",
                                                           f"-fmodule-file=other={scratch}/other.pcm"))):
            write_map(f"{scratch}/{module}.map", module, files)
            done = run(*MODULES, *words, f"-fmodule-name={module}", f"-fmodule-map-file={scratch}/{module}.map",
                       "-Werror", "-ferror-limit=0", "-c", "-Xclang", "-emit-module", "-x", "c++",
                       f"{scratch}/{module}.map", "-o", f"{scratch}/{module}.pcm")
            if done.returncode != 0:
                print(done.stderr)
                sys.exit(1)
    print(f"{len(headers)} headers, each by itself")
    sys.exit(1 if twice else 0)


if __name__ == "__main__":
    main()
