"""Checks what kernels use of a multiprocessor.   resources.py LIBRARY [--write]

No kernel may use local memory, to which registers spill, nor more registers or static shared memory than resources.txt
says for the same version of PTX; --write writes that file. No attention loop with tensor-core products may contain a
64-bit product or division. Kernels with packs of 8 scalars must not store part of a pack. The blocks of a grid that
fills a device must all be resident at once."""

import ctypes
import os
import re
import struct
import subprocess
import sys

from device import PTX, images_in
from ptx import kernels_of

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "resources.txt")
REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info, which map symbols to numbers
SLOW = re.compile(r"\b(mul|mad)\.(lo|hi)\.[su]64|\b(div|rem)\.[su]64")
PACKS = re.compile(r"__nv_bfloat16, 8\b|head_tile<bf16")
PART_OF_PACK = re.compile(r"\bst\.(global\.((v2\.)?[bsu](16|32)|v4\.[bsu]16|[bsu]64)|shared\.(v2\.)?[bsu]16)\b")
BLOCK_THREADS = re.compile(r"\.entry\s+(\w+)\s*\([^)]*\)\s*\.maxntid (\d+)")
MOST_REGISTERS, MOST_THREADS = 65536, 1536  # per multiprocessor, of the smallest device
RESIDENT = {"column_sums_kernel", "adamw_kernel", "adamw_blocks_kernel"}  # kernels whose grids exactly fill a device


def text_at(data, at):
    return data[at : data.index(b"\0", at)].decode()


def attributes_of(cubin):
    """{kernel: {attribute: value}} of a device's ELF file."""
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQ", cubin, headers + 64 * i) for i in range(count)]
    at = {text_at(cubin, sections[names][4] + section[0]): section for section in sections}
    found = {}
    place, size = at[".nv.info"][4:6]
    end = place + size
    while place < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, place)
        if form == 4 and attribute in (REGISTERS, FRAME):
            symbol, value = struct.unpack_from("<II", cubin, place + 4)
            (name,) = struct.unpack_from("<I", cubin, at[".symtab"][4] + 24 * symbol)
            found.setdefault(text_at(cubin, at[".strtab"][4] + name), {})[attribute] = value
        place += 4 + (size if form == 4 else 0)
    return found


def short_names(kernels):
    """Demangled names without arguments."""
    said = subprocess.run(["c++filt"], input="\n".join(kernels), capture_output=True, text=True, check=True).stdout
    short = [re.sub(r"^void ", "", name).replace("pulse::cuda::", "") for name in said.split("\n")]
    return dict(zip(kernels, [re.sub(r">\(.*", ">", name) for name in short]))


def main(library, writes):
    wrong = []
    kernels, registers, block_threads, architectures, texts = {}, {}, {}, set(), []
    version = None
    for kind, architecture, image in images_in(library):
        if kind == PTX:
            text = image.decode().rstrip("\0")
            version = re.search(r"\.version (\S+)", text)[1]
            texts.append((architecture, kernels_of(text)))
            kernels.update(texts[-1][1])
            block_threads.update((name, int(threads)) for name, threads in BLOCK_THREADS.findall(text))
            continue
        architectures.add(architecture)
        for symbol, attributes in attributes_of(image).items():
            if attributes[FRAME]:
                wrong.append(f"sm_{architecture}: {symbol} has {attributes[FRAME]} bytes of local memory")
            if REGISTERS in attributes:
                registers.setdefault(symbol, {})[architecture] = attributes[REGISTERS]
    columns = sorted(architectures)
    names = short_names(sorted(kernels))
    # Each architecture has a separate text.
    for architecture, kernel_texts in texts:
        for name, kernel in kernel_texts.items():
            here = f"compute_{architecture}: {names[name]}"
            for loop in kernel.loops():
                if "attention" in name and any(text.startswith("mma.") for text in loop):
                    wrong += [f"{here}, in a loop: {text}" for text in loop if SLOW.search(text)]
            if PACKS.search(names[name]):
                wrong += [f"{here}: {text}" for text in kernel.texts if PART_OF_PACK.search(text)]
    host = ctypes.CDLL(library)
    looked_at = {names[name].split("<")[0] for name in block_threads
                 if hasattr(host, names[name].split("<")[0] + "_blocks")}
    if looked_at != RESIDENT:
        wrong.append(f"the blocks of {sorted(looked_at)} are looked at, and not those of {sorted(RESIDENT)}")
    for name, threads in block_threads.items():
        blocks = names[name].split("<")[0] + "_blocks"
        for architecture, count in registers[name].items() if hasattr(host, blocks) else ():
            fit = min(MOST_REGISTERS // (-(-count // 8) * 8 * threads), MOST_THREADS // threads)
            asked = ctypes.c_int.in_dll(host, blocks).value
            if fit < asked:
                wrong.append(f"{names[name]}: {fit} of {asked} blocks fit a multiprocessor of sm_{architecture}")
    rows = {names[k]: [registers[k][a] for a in columns] + [kernels[k].static_bytes] for k in kernels}
    lines = [f"PTX {version}: registers on {', '.join(f'sm_{a}' for a in columns)}, bytes of static shared memory"]
    lines += ["%4d" * len(columns) % tuple(row[:-1]) + "%6d  " % row[-1] + name for name, row in sorted(rows.items())]
    print("\n".join(lines))
    if writes:
        with open(TABLE, "w") as file:
            file.write("\n".join(lines) + "\n")
    with open(TABLE) as file:
        first, *table = file.read().splitlines()
    if first == lines[0]:
        known = {line.split(maxsplit=len(columns) + 1)[-1]: [int(n) for n in line.split()[: len(columns) + 1]]
                 for line in table}
        for name, row in rows.items():
            if name not in known or any(n > most for n, most in zip(row, known[name])):
                wrong.append(f"{name}: {row}, and resources.txt has {known.get(name)}")
    else:
        print(f"not compared with a table of another version: {first}")
    print("\n".join("WRONG " + what for what in dict.fromkeys(wrong)))
    return 1 if wrong else 0


sys.exit(main(sys.argv[1], "--write" in sys.argv))
