#!/usr/bin/env python3
"""Packs the program into a Python wheel: `pip install` puts it beside `python`.

usage: wheel.py VERSION PROGRAM PLATFORM_TAGS OUTPUT_FOLDER LICENCE_FILE...
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile


def main():
    version, program, platforms, folder, *licences = sys.argv[1:]
    info = f"parlor-{version}.dist-info"
    readme = (pathlib.Path(__file__).parent.parent.parent / "packaging/pypi-readme.md").read_text(encoding="utf-8")
    metadata = "\n".join([
        "Metadata-Version: 2.4",
        "Name: parlor",
        f"Version: {version}",
        "Summary: One agent runtime with many doors",
        "License-Expression: MIT",
        *(f"License-File: {pathlib.Path(licence).name}" for licence in licences),
        "Requires-Python: >=3.7",
        "Description-Content-Type: text/markdown",
        "",
        readme,
    ])
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms.split("."))
    files = [
        (f"parlor-{version}.data/scripts/parlor", pathlib.Path(program).read_bytes(), 0o755),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: parlor\nRoot-Is-Purelib: false\n{tags}".encode(), 0o644),
    ]
    for licence in licences:
        path = pathlib.Path(licence)
        files.append((f"{info}/licenses/{path.name}", path.read_bytes(), 0o644))
    files.append((f"{info}/RECORD", record(files, info).encode(), 0o644))
    # A zip file cannot name a time before 1980.
    epoch = max(int(os.environ["SOURCE_DATE_EPOCH"]), 315619200)
    wheel = pathlib.Path(folder) / f"parlor-{version}-py3-none-{platforms}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)


def record(files, info):
    lines = []
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"


if __name__ == "__main__":
    main()
