"""Has the compiler read headers so that each sees no more than what it includes itself.

    lone_headers.py <compile_commands.json> <unit>

`unit` is a source file of that data base that includes the headers; its command is used for all. Reading the standard
library is what costs, so headers share units: where every file that A includes, directly or not, is also included by
B, then B behind A sees what B alone would, and the unit "A, B" proves both. Each unit is such a chain, twice. A file
that is included under a condition counts as included by A and as not included by B, but where the condition is one for
all: units compile without PULSE_SEPARATE_COMPILATION, so headers have the bodies of functions, and what there is to
include is the same for each.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile


def command_of(data_base, unit):
    """Arguments of the compiler for `unit`, without input and output, and the folder that it runs in."""
    with open(data_base, encoding="utf-8") as file:
        entry = next(entry for entry in json.load(file) if os.path.realpath(entry["file"]) == os.path.realpath(unit))
    arguments = shlex.split(entry["command"])
    kept = []
    at = 0
    while at != len(arguments):
        if arguments[at] in ("-o", "-c", "-MT", "-MF"):
            at += 2
            continue
        if arguments[at] != "-MD":
            kept.append(arguments[at])
        at += 1
    return kept, entry["directory"]


class Includes:
    """What files include, by the folders that a compiler is given; other files are known by their names alone."""

    def __init__(self, folders):
        self.folders = folders
        self.found = {}

    def path(self, name):
        for folder in self.folders:
            if os.path.isfile(os.path.join(folder, name)):
                return os.path.join(folder, name)
        return None

    def closure(self, name):
        """Names that `name` may include, and those that it includes under no condition, with its own."""
        if name not in self.found:
            self.found[name] = ({name}, {name})  # for those that include each other
            some, always = {name}, {name}
            path = self.path(name)
            for included, conditional in direct_includes(path) if path else []:
                may, must = self.closure(included)
                some |= may
                if not conditional:
                    always |= must
            self.found[name] = (some, always)
        return self.found[name]


def direct_includes(path):
    conditions = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            word = re.match(r"\s*#\s*(if|endif|include)\w*\s*(?:[<\"]([^>\"]+))?", line)
            if not word:
                continue
            if word.group(1) == "include":
                yield word.group(2), any(conditions)
            elif word.group(1) == "if":
                conditions.append(not re.match(r"#ifndef PULSE_SEPARATE_|#if __has_include", line))
            else:
                conditions.pop()


def chains(headers, includes):
    """The fewest chains that hold every header: a largest matching of each with the one that comes behind it."""
    closures = {header: includes.closure(header) for header in headers}
    behind = {}
    for a in headers:
        wider = [b for b in headers if b != a and closures[a][0] <= closures[b][1]]
        behind[a] = sorted(wider, key=lambda b: len(closures[b][0]))
    before = {}

    def match(a, tried):
        for b in behind[a]:
            if b in tried:
                continue
            tried.add(b)
            if b not in before or match(before[b], tried):
                before[b] = a
                return True
        return False

    for a in sorted(headers, key=lambda header: -len(closures[header][0])):
        match(a, set())
    last = set(headers) - set(before.values())
    for header in sorted(last):
        chain = [header]
        while chain[0] in before:
            chain.insert(0, before[chain[0]])
        yield chain


def main():
    data_base, unit = sys.argv[1:]
    command, folder = command_of(data_base, unit)
    with open(unit, encoding="utf-8") as file:
        headers = re.findall(r"^#include <(.+)>$", file.read(), re.MULTILINE)
    includes = Includes([os.path.join(folder, argument[2:]) for argument in command if argument.startswith("-I")])
    units = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for chain in chains(headers, includes):
            source = os.path.join(scratch, "unit.cpp")
            with open(source, "w", encoding="utf-8") as file:
                file.writelines(f"#include <{header}>\n" for header in chain + chain)
            done = subprocess.run(command + ["-fsyntax-only", source], cwd=folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            units += 1
            if done.returncode != 0:
                failed += 1
                print(f"{' '.join(chain)}:\n{done.stdout}", flush=True)
    print(f"{len(headers)} headers in {units} units, {failed} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
