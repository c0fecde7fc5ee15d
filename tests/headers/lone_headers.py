"""Has the compiler read headers so that each sees only what it includes itself.

    lone_headers.py <compile_commands.json> <unit>

`unit` is a source file of that data base that includes the headers; its command is used for all. Reading the standard
library dominates the time, so headers share units: if B also includes every file that A includes, directly or not, then
B behind A sees what B alone would, and the unit "A, B" proves both. Each unit is such a chain, twice. For the same
reason units share a precompiled header of what the first header of each chain includes. An include under a condition
counts for A and not for B, unless the condition is the same for all: units compile without
PULSE_SEPARATE_COMPILATION, so headers contain the bodies of functions, and all see the same includes.
"""

import functools
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile


def command_of(data_base, unit):
    """Compiler arguments for `unit`, without input and output, and the folder that the compiler runs in."""
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
    """What files include, searched in the compiler's -I folders; other folders are left to the compiler."""

    def __init__(self, command, folder):
        self.command, self.folder = command, folder
        self.folders = [os.path.join(folder, argument[2:]) for argument in command if argument.startswith("-I")]
        self.found = {}

    def path(self, name):
        for folder in self.folders:
            if os.path.isfile(os.path.join(folder, name)):
                return os.path.join(folder, name)
        return None

    def closure(self, name):
        """Names that `name` may include, and those that it includes unconditionally; both contain `name`."""
        if name not in self.found:
            self.found[name] = ({name}, {name})  # ends the recursion of mutual includes
            some, always = {name}, {name}
            path = self.path(name)
            for included, conditional in direct_includes(path) if path else []:
                may, must = self.closure(included)
                some |= may
                if not conditional:
                    always |= must
            if not path:
                some = always = self.files_of(name)
            self.found[name] = (some, always)
        return self.found[name]

    def files_of(self, name):
        said = subprocess.run(self.command + ["-M", "-x", "c++", "-"], cwd=self.folder, input=f"#include <{name}>\n",
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        files = said.stdout.replace("\\\n", " ").split()[1:]
        return {os.path.realpath(os.path.join(self.folder, file)) for file in files if file != "-"} or {name}

    @functools.cache
    def size(self, name):
        path = self.path(name)  # an absolute path is found as it is
        return os.path.getsize(path) if path else 0


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
    """The fewest chains that cover all headers, by a maximum matching of each header with its successor."""
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


PRECOMPILING = 1_500_000  # bytes of source read in the time that writing a precompiled header takes


def groups(chained, includes):
    """Groups of chains, each with the includes that all its chains share."""
    made = [([chain], includes.closure(chain[0])[1] - {chain[0]}) for chain in chained]

    def gain(group):
        return (len(group[0]) - 1) * sum(map(includes.size, group[1])) - PRECOMPILING

    def merged(pair):
        return made[pair[0]][0] + made[pair[1]][0], made[pair[0]][1] & made[pair[1]][1]

    def gain_of_merging(pair):
        return gain(merged(pair)) - gain(made[pair[0]]) - gain(made[pair[1]])

    while len(made) > 1:
        best = max(itertools.combinations(range(len(made)), 2), key=gain_of_merging)
        if gain_of_merging(best) <= 0:
            break
        made[best[0]] = merged(best)
        del made[best[1]]
    for group in made:
        before = [name for name in sorted(includes.found)
                  if not name.endswith(".ipp") and includes.closure(name)[0] <= group[1]]
        yield group[0], before if gain(group) > 0 else []


def write_unit(path, headers):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"#include <{header}>\n" for header in headers)


def main():
    data_base, unit = sys.argv[1:]
    command, folder = command_of(data_base, unit)
    with open(unit, encoding="utf-8") as file:
        headers = re.findall(r"^#include <(.+)>$", file.read(), re.MULTILINE)
    includes = Includes(command, folder)

    def compiled(*words):
        return subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)

    units = failed = 0
    for chained, common in groups(list(chains(headers, includes)), includes):
        with tempfile.TemporaryDirectory() as scratch:
            before, source = os.path.join(scratch, "before.hpp"), os.path.join(scratch, "unit.cpp")
            write_unit(before, common)
            if common:  # if this fails, units read the text and report the errors
                compiled(*command, "-x", "c++-header", before, "-o", before + ".gch")
            for chain in chained:
                write_unit(source, chain + chain)
                done = compiled(command[0], "-include", before, *command[1:], "-Winvalid-pch", "-fsyntax-only", source)
                units += 1
                if done.returncode != 0:
                    failed += 1
                    print(f"{' '.join(chain)}:\n{done.stdout}", flush=True)
    print(f"{len(headers)} headers in {units} units, {failed} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
