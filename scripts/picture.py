#!/usr/bin/env python3
"""Runs parlor in a fresh home and draws what a terminal would show, line by line, as an animated SVG.

usage: picture.py PARLOR OUTPUT.svg
"""

import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile

COMMANDS = [
    "parlor chat '/say Hello! I am the built-in agent: no key, no network.'",
    "parlor chat '!mkdir -p src && echo \"fn main() {}\" > src/main.rs && ls src'",
    "parlor diff",
    "parlor undo",
    "parlor chat '!ls -A | wc -l'    # src is gone again",
]
COLUMNS = 92
LINE, LEFT, TOP, SIZE = 20, 18, 46, 14
# Seconds until the next line appears, after a command and after a line of output, and how long the end stays.
AFTER_COMMAND, AFTER_LINE, AT_END = 0.9, 0.25, 5.0


def main():
    program, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        project, programs = pathlib.Path(folder) / "project", pathlib.Path(folder) / "bin"
        project.mkdir()
        programs.mkdir()
        (programs / "parlor").symlink_to(program)
        environment = {"HOME": folder, "PATH": f"{programs}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        for command in COMMANDS:
            done = subprocess.run(["bash", "-c", command], cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{command}: {done.stdout}{done.stderr}")
            lines.append(("command", command))
            lines += [("output", clean(line, folder)) for line in done.stdout.splitlines()]
    output.write_text(svg(lines), encoding="utf-8")


def clean(line, folder):
    """A line without what differs from run to run."""
    line = line.replace(folder, "~").rstrip()
    line = re.sub(r"run_[0-9a-f]{32}", "run_01a1…", line)
    line = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}\b", "01a1…", line)
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def svg(lines):
    times, now = [], 0.5
    for index, (kind, _) in enumerate(lines):
        times.append(now)
        if kind == "command":
            now += AFTER_COMMAND
        elif index + 1 < len(lines) and lines[index + 1][0] == "command":
            now += AFTER_COMMAND
        else:
            now += AFTER_LINE
    total = now + AT_END
    width, height = LEFT * 2 + int(COLUMNS * 8.43), TOP + LINE * len(lines) + 10
    rules, texts = [], []
    for index, ((kind, text), begin) in enumerate(zip(lines, times)):
        share = 100 * begin / total
        rules.append(f"@keyframes l{index}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}.l{index}{{animation:l{index} {total:.1f}s infinite}}")
        prompt = '<tspan class="prompt">$ </tspan>' if kind == "command" else ""
        texts.append(f'<text class="{kind} l{index}" x="{LEFT}" y="{TOP + LINE * index + SIZE}" xml:space="preserve">{prompt}{html.escape(text)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        "<title>A terminal with parlor, made by scripts/picture.py</title>",
        "<style>",
        f"text{{font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#cdd6e0}}",
        ".command{fill:#fff}.prompt{fill:#5ad1a0}",
        *rules,
        "@media (prefers-reduced-motion:reduce){text{animation:none!important}}",
        "</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#16202b"/>',
        '<circle cx="22" cy="20" r="6" fill="#ff6159"/><circle cx="42" cy="20" r="6" fill="#ffbd2e"/><circle cx="62" cy="20" r="6" fill="#28c941"/>',
        *texts,
        "</svg>",
        "",
    ])


if __name__ == "__main__":
    main()
