#!/usr/bin/env python3
"""Prints what takes the space in a program with symbols: its sections, and the code and data of each crate.

usage: binary-size.py PROGRAM [LINES]
"""

import collections
import re
import subprocess
import sys

# The beginnings of the names in C libraries.
C_LIBRARIES = {
    "aws_lc_": "aws-lc (C)",
    "sqlite3": "sqlite (C)",
    "dbus": "dbus (C)",
    "_dbus": "dbus (C)",
}


def main():
    program, lines = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 25
    sections = run("size", "-A", program).splitlines()[2:]
    sizes = sorted(((int(parts[1]), parts[0]) for parts in map(str.split, sections) if len(parts) == 3), reverse=True)
    print("| section | KiB |\n|---|---|")
    for size, name in sizes[:8]:
        print(f"| `{name}` | {size // 1024} |")
    by_crate = collections.Counter()
    for line in run("nm", "--print-size", "--defined-only", "--demangle", program).splitlines():
        parts = line.split(" ", 3)
        if len(parts) == 4 and parts[2].lower() in "tdrbv":
            by_crate[owner(parts[3])] += int(parts[1], 16)
    print("\n| crate | KiB of named code and data |\n|---|---|")
    for crate, size in by_crate.most_common(lines):
        print(f"| {crate} | {size // 1024} |")
    print(f"| all | {sum(by_crate.values()) // 1024} |")


def owner(symbol):
    """The crate of a symbol. Code of a generic function counts for the first crate in its name."""
    for beginning, name in C_LIBRARIES.items():
        if symbol.startswith(beginning):
            return name
    found = re.match(r"^[<&\[(*\s]*(?:(?:mut|const|dyn|impl) )*([a-z_][a-z0-9_]*)(?:\[[0-9a-f]+\])?::", symbol)
    return found[1] if found else "other C code and data"


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
