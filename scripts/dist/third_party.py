#!/usr/bin/env python3
"""Describes what the program contains: the licences of all dependencies, and a CycloneDX list of them.

usage: third_party.py TARGET LICENCES_FILE SBOM_FILE

Reads Cargo's own metadata and the installed packages of the page, and fails if a dependency has no licence text.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Parts of the page's build tools that end up in the page.
BUNDLED_WITH_THE_PAGE = ["svelte", "clsx", "esm-env"]
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)([-._].*)?$", re.IGNORECASE)
# Deep enough for the C sources that a crate carries, such as vendor/dbus/COPYING.
LICENCE_DEPTH = 3


def main():
    target, licences_path, sbom_path = sys.argv[1:]
    metadata = cargo_metadata(target)
    crates, edges, program = linked_crates(metadata, names_in_tree(target))
    packages = [*page_packages(), *runtime_parts()]
    pathlib.Path(licences_path).write_text(licences(crates, packages), encoding="utf-8")
    pathlib.Path(sbom_path).write_text(json.dumps(sbom(program, crates, edges, packages), indent=1) + "\n", encoding="utf-8")
    print(f"dist: {len(crates)} crates and {len(packages)} other packages are in the program", file=sys.stderr)


def cargo_metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def names_in_tree(target):
    """Name and version of every crate that `parlor` needs at run time. The metadata also has those of features that are off."""
    command = ["cargo", "tree", "--locked", "--package", "parlor", "--edges", "normal", "--target", target, "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {tuple(line.split()[:2]) for line in lines if line}


def linked_crates(metadata, names):
    """All crates that `parlor` needs at run time, without those of the workspace, and who needs whom."""
    by_id = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    program = next(package for package in metadata["packages"] if package["name"] == "parlor")
    seen, waiting, edges = set(), [program["id"]], {}
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        needed = [
            dependency["pkg"]
            for dependency in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
            and (by_id[dependency["pkg"]]["name"], f"v{by_id[dependency['pkg']]['version']}") in names
        ]
        edges[package] = needed
        waiting.extend(needed)
    checksums = locked_checksums()
    crates = []
    for package in (by_id[identifier] for identifier in seen):
        if package["source"] is None:
            continue
        crates.append({
            "id": package["id"],
            "name": package["name"],
            "version": package["version"],
            "licence": package["license"] or "",
            "authors": package["authors"],
            "folder": pathlib.Path(package["manifest_path"]).parent,
            "purl": f"pkg:cargo/{package['name']}@{package['version']}",
            "sha256": checksums.get((package["name"], package["version"])),
        })
    crates.sort(key=lambda crate: (crate["name"], crate["version"]))
    return crates, edges, program


def locked_checksums():
    found = {}
    for block in (ROOT / "Cargo.lock").read_text(encoding="utf-8").split("[[package]]"):
        value = lambda key: (re.search(rf'^{key} = "(.*)"$', block, re.MULTILINE) or [None, None])[1]
        if value("checksum"):
            found[(value("name"), value("version"))] = value("checksum")
    return found


def runtime_parts():
    """What the compiler and the linker add: Rust's standard library, and the C library of Zig's copy of musl."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    release = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    parts = [
        ("rust-std", release.split()[1], "MIT OR Apache-2.0", pathlib.Path(sysroot.strip()) / "share/doc/rust/licenses"),
        ("musl", "1.2.5", "MIT", ROOT / "target/dist/tools/python/ziglang/lib/libc/musl"),
    ]
    described = []
    for name, version, licence, folder in parts:
        purl = f"pkg:generic/{name}@{version}"
        described.append({"name": name, "version": version, "licence": licence, "authors": [], "folder": folder, "purl": purl, "sha256": None})
    return described


def page_packages():
    """The npm packages that the page contains, each as a part of the program."""
    manifest = json.loads((ROOT / "web/package.json").read_text(encoding="utf-8"))
    packages = []
    for name in sorted([*manifest["dependencies"], *BUNDLED_WITH_THE_PAGE]):
        folder = ROOT / "web/node_modules" / name
        package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        packages.append({
            "name": name,
            "version": package["version"],
            "licence": package["license"],
            "authors": [],
            "folder": folder,
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{package['version']}",
            "sha256": None,
        })
    return packages


def licence_texts(part):
    """The licence files of a crate or package, in the order of their paths."""
    found = []
    for folder, folders, files in os.walk(part["folder"]):
        depth = len(pathlib.Path(folder).relative_to(part["folder"]).parts)
        folders[:] = sorted(name for name in folders if depth < LICENCE_DEPTH and name not in ("node_modules", "tests"))
        for name in sorted(files):
            if LICENCE_FILE.match(name) and not name.endswith((".rs", ".py", ".js", ".ts", ".json", ".toml")):
                text = (pathlib.Path(folder) / name).read_text(encoding="utf-8", errors="replace")
                found.append(text.replace("\r\n", "\n").strip())
    return list(dict.fromkeys(text for text in found if text))


def licences(crates, packages):
    by_text, without = {}, []
    for part in [*crates, *packages]:
        texts = licence_texts(part)
        if not texts:
            without.append(part)
        for text in texts:
            by_text.setdefault(text, []).append(part)
    for part in without:
        by_text.setdefault(standard_text(part, by_text), []).append(part)
    lines = ["Parlor is under the MIT licence. It contains the software below, each part under its own licence.", ""]
    for part in [*crates, *packages]:
        lines.append(f"  {part['name']} {part['version']}: {expression(part['licence']) or 'see its text'}")
    for text, parts in by_text.items():
        names = ", ".join(f"{part['name']} {part['version']}" for part in parts)
        lines += ["", "=" * 100, names, "=" * 100, "", text]
    return "\n".join(lines) + "\n"


def standard_text(part, by_text):
    """The text for a crate whose archive has none: that of the licence which it names."""
    named = expression(part["licence"])
    if "Apache-2.0" in named:
        return next(text for text in by_text if text.startswith("Apache License") and "END OF TERMS" in text)
    holders = ", ".join(author.split(" <")[0] for author in part["authors"]) or f"the authors of {part['name']}"
    terms = {
        "MIT": "Permission is hereby granted, free of charge",
        "BSD-3-Clause": "Redistribution and use in source and binary forms",
    }
    for licence, beginning in terms.items():
        if licence in named:
            text = next(text for text in by_text if beginning in text)
            return f"Copyright (c) {holders}\n\n{text[text.index(beginning):]}"
    sys.exit(f"dist: {part['name']} {part['version']} ({part['licence']}) has no licence text")


def expression(licence):
    """A licence as SPDX writes it: older crates separate choices with a slash."""
    return re.sub(r"\s*/\s*", " OR ", licence)


def sbom(program, crates, edges, packages):
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    purls = {crate["id"]: crate["purl"] for crate in crates}
    root = f"pkg:cargo/parlor@{program['version']}"
    components = [component(part) for part in [*crates, *packages]]
    # Crates of the workspace are parts of parlor, so what they need, parlor needs.
    inside = [package for package in edges if package not in purls]
    direct = sorted({purls[need] for package in inside for need in edges[package] if need in purls})
    depends = [{"ref": root, "dependsOn": direct + [package["purl"] for package in packages]}]
    for crate in crates:
        needs = sorted({purls[need] for need in edges[crate["id"]] if need in purls})
        depends.append({"ref": crate["purl"], "dependsOn": needs})
    content = hashlib.sha256(json.dumps([root, components, depends]).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "parlor",
                "version": program["version"],
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": components,
        "dependencies": depends,
    }


def component(part):
    described = {
        "type": "library",
        "bom-ref": part["purl"],
        "name": part["name"],
        "version": part["version"],
        "purl": part["purl"],
    }
    if part["licence"]:
        described["licenses"] = [{"expression": expression(part["licence"])}]
    if part["sha256"]:
        described["hashes"] = [{"alg": "SHA-256", "content": part["sha256"]}]
    return described


if __name__ == "__main__":
    main()
