"""Prints what gpu_gate.sh left in a folder: a table of steps, and figures against their targets.

Exits 1 if a step failed or a figure misses its target.

usage: gate_report.py FOLDER
"""
import collections
import json
import pathlib
import sys

# Targets, percent: of the card's copy rate, of cuDNN's and cuBLASLt's own rate, of the copy rate again.
MEMORY, LIBRARY, MESSAGES = 85, 97, 90


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join([cell.ljust(width) for cell, width in zip(row, widths)] + [row[-1]]).rstrip())


class Figures:
    """Figures of one kind and their target."""

    def __init__(self, what, target):
        self.what, self.target, self.found = what, target, []

    def say(self):
        """Prints the figures below the target, one per line, and returns their number; 1 if there are no figures."""
        missed = sorted((value, name) for name, value in self.found if value < self.target)
        if not self.found:
            print(f"{self.what}: no figures")
            return 1
        print(f"{self.what}: target {self.target} %, met by {len(self.found) - len(missed)} of {len(self.found)}")
        for value, name in missed:
            print(f"  missed: {name}: {value:.1f} %")
        return len(missed)


def say_steps(document):
    """Prints the steps; returns how many of pulse's failed."""
    failed = 0
    for row in document["steps"]:
        name, own = f"step of {row['name']}, batch {row['batch']}", row["pulse"]
        if "us" not in own:
            print(f"{name}: {own['failure']}")
            failed += 1
            continue
        print(f"{name}: {own['us'] / 1e3:.2f} ms")
        for mode, its in row["torch"].items():
            print(f"  torch {mode}: " + (f"{its['us'] / 1e3:.2f} ms, pulse is {its['us'] / own['us']:.2f} times as fast"
                                         if "us" in its else its["failure"]))
    engines = collections.Counter(line.partition("; cuDNN: ")[0].rsplit(": ", 1)[1]
                                  for text in [document["attention"]] + [row["pulse"].get("attention", "")
                                                                         for row in document["steps"]]
                                  for line in text.splitlines())
    if engines:
        print("  attention: " + ", ".join(f"{count} by {engine}" for engine, count in engines.items()))
    return failed


def say_figures(documents, has_operations):
    """Prints the figures; returns how many miss their target plus how many steps have none."""
    memory = Figures("memory-bound kernels, of the card's copy rate", MEMORY)
    library = Figures("convolutions and products, of cuDNN's and cuBLASLt's own rate", LIBRARY)
    messages = Figures("largest messages of bench_p2p, of the card's copy rate", MESSAGES)
    missed, meaningless = 0, False
    for document in documents:
        meaningless |= document["quick"]
        for row in document.get("rows", []):
            name = f"{row['operation']} {row['shape']}, batch {row['batch']}"
            if row["flop"] == 0:
                memory.found.append((name, row["ceiling_percent"]))
            if "library_us" in row:
                library.found.append((name, 100 * row["library_us"] / row["us"]))
        for path in document.get("paths", []):
            if "copy_gb_per_s" in path and path["rows"]:
                messages.found.append((path["path"], 100 * path["rows"][-1]["gb_per_s"] / path["copy_gb_per_s"]))
        if "steps" in document:
            missed += say_steps(document)
    if has_operations:
        missed += sum(figures.say() for figures in (memory, library, messages))
    if meaningless:
        print("figures of the smallest sizes mean nothing: no target is held against them")
    return 0 if meaningless else missed


def main(folder):
    rows = [line.split("\t") for part in ("correctness", "speed") if (folder / f"{part}.txt").exists()
            for line in (folder / f"{part}.txt").read_text().splitlines()]
    if not rows:
        print(f"gpu_gate: {folder} has no results", file=sys.stderr)
        return 2
    table([["status", "s", "step", ""]] + rows)
    statuses = collections.Counter(row[0] for row in rows)
    print(", ".join(f"{count} {status}" for status, count in statuses.items()))
    documents = []
    for file in (folder / f"{part}.json" for part in ("correctness", "speed")):
        documents += json.loads(file.read_text()).values() if file.exists() else []
    missed = say_figures(documents, (folder / "correctness.json").exists())
    return 0 if missed == 0 and set(statuses) <= {"passed", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
