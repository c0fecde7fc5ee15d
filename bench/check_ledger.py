"""Whether a training step does more than it did.   check_ledger.py PROGRAM [--write]

PROGRAM counts steps (bench_blocks --count). No kind of pulse's work has over 1 % more kernels or bytes than ledger.txt says;
--write writes it."""

import json
import os
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ledger.txt")
MOST = 1.01


def counted(program):
    """{(step, kind): (kernels, bytes)}"""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "count.json")
        subprocess.run([program, "--count", "--json", file], check=True)
        with open(file) as text:
            steps = json.load(text)["steps"]
    return {(f"{step['model']}, batch {step['batch']}", kind): (round(amount["kernels"]), round(amount["bytes"]))
            for step in steps for kind, amount in step["parties"]["pulse"].items()}


def main(program, writes):
    found = counted(program)
    if writes:
        with open(TABLE, "w") as file:
            file.writelines(f"{step}: {kind}: {kernels} kernels, {size} bytes\n"
                            for (step, kind), (kernels, size) in found.items())
    known = {}
    with open(TABLE) as file:
        for line in file:
            step, kind, amounts = line.split(": ")
            kernels, size = amounts.split(", ")
            known[step, kind] = int(kernels.split()[0]), int(size.split()[0])
    wrong = [f"{step} is not counted" for step in {step for step, _ in known} - {step for step, _ in found}]
    for (step, kind), amounts in found.items():
        for unit, amount, before in zip(("kernels", "bytes"), amounts, known.get((step, kind), (0, 0))):
            if amount > MOST * before:
                wrong.append(f"{step}: {kind}: {amount} {unit}, and ledger.txt has {before}")
            elif amount * MOST < before:
                print(f"less than ledger.txt has: {step}: {kind}: {amount} {unit} of {before}")
    print("\n".join("WRONG " + what for what in wrong))
    return 1 if wrong else 0


sys.exit(main(sys.argv[1], "--write" in sys.argv))
