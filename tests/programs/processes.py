"""The processes of a run."""

import os
import pathlib


def processes_of(launcher, program):
    """The process ids of a program's ranks that a launcher in its own session has started."""
    def parent_of(process):
        return int(pathlib.Path("/proc", str(process), "stat").read_text().rsplit(")", 1)[1].split()[1])

    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                if line[0] == str(program).encode() and os.getsid(int(entry.name)) != os.getsid(0):
                    parent = parent_of(entry.name)
                    if launcher.pid in (parent, parent_of(parent)):
                        found.append(int(entry.name))
            except (OSError, IndexError):
                continue
    return found
