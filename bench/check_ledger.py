"""Whether a training step still does what ledger.txt says of it: PROGRAM counts steps (bench_blocks --count), and of
each kind of pulse's work, kernels, bytes and FLOP have to be within 1 % of the table. --write writes it."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ledger.txt")
MOST = 1.01
UNITS = ("kernels", "bytes", "flop")


def counted(program):
    """{(step, kind): numbers by UNITS}"""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "count.json")
        done = subprocess.run([program, "--count", "--json", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        if done.returncode != 0:
            raise SystemExit(f"{program} --count: exit status {done.returncode}\n{done.stdout}")
        with open(file) as text:
            steps = json.load(text)["steps"]
    return {(f"{step['model']}, batch {step['batch']}", kind): [round(amount[unit]) for unit in UNITS]
            for step in steps for kind, amount in step["parties"]["pulse"].items()}


def known():
    found = {}
    with open(TABLE) as file:
        for line in file:
            step, kind, amounts = line.split(": ")
            found[step, kind] = [int(amount.split()[0]) for amount in amounts.split(", ")]
    return found


def write(found):
    with open(TABLE, "w") as file:
        for (step, kind), amounts in found.items():
            text = ", ".join(f"{amount} {unit}" for amount, unit in zip(amounts, UNITS))
            file.write(f"{step}: {kind}: {text}\n")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("program")
    options.add_argument("--write", action="store_true")
    options = options.parse_args()
    found = counted(options.program)
    if options.write:
        return write(found)
    table = known()
    wrong = [f"{step}: {kind}: it is not counted" for step, kind in table if (step, kind) not in found]
    for (step, kind), amounts in found.items():
        for unit, now, before in zip(UNITS, amounts, table.get((step, kind), [-1] * len(UNITS))):
            if max(now, before) > MOST * min(now, before):
                wrong.append(f"{step}: {kind}: {now} {unit}, and ledger.txt has {max(before, 0)}")
    if wrong:
        again = f"If it should be so: {os.path.basename(__file__)} {options.program} --write"
        sys.exit("\n".join([*wrong, again]))
    return None


if __name__ == "__main__":
    main()
