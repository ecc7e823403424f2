"""Fuzz every parser of files with atheris, guided by the coverage of our own code and of the Python that it uses.

    pip install atheris
    python benchmarks/fuzz_files.py --seconds 60            # each target, one after the other
    python benchmarks/fuzz_files.py --target "mesh ply"     # one

Each target runs in a process of its own, with a limit of memory and of time for one input. What a parser does not
answer by reading or by a refusal of ours is a crash: the input is kept in ``--out``. Targets: test/fuzz_targets.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test")]
MEMORY = 4 << 30  # bytes
ONE_INPUT_S = 30


def fuzz(name: str, seconds: int, corpus: Path, crashes: Path) -> None:
    """Run atheris on a target; ends the process.

    Args:
        name: of the target.
        seconds: how long.
        corpus: directory of inputs, which grows.
        crashes: directory for inputs that are bugs.
    """
    import atheris

    with atheris.instrument_imports(
        include=["safe_sysid", "yaml", "zipfile", "json", "csv", "rosbags", "defusedxml"]
    ):
        from fuzz_targets import TARGETS, run
    target = TARGETS[name]
    for i, seed in enumerate(target.seeds()):
        (corpus / f"seed{i}").write_bytes(seed)
    dictionary = corpus.parent / "words"
    words = ['"' + "".join(f"\\x{byte:02x}" for byte in word[:60]) + '"' for word in target.words]
    dictionary.write_text("\n".join(words) + "\n", encoding="ascii")
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limit))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))

    def one(content: bytes) -> None:
        run(target, content, folder)

    options = [
        f"-max_total_time={seconds}", f"-timeout={ONE_INPUT_S}", f"-artifact_prefix={crashes}/", "-rss_limit_mb=0",
        "-max_len=20000", f"-dict={dictionary}", "-print_final_stats=1", "-use_value_profile=0",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


def campaign(names: list[str], seconds: int, out: Path) -> int:
    """Each target in a process of its own.

    Args:
        names: of targets.
        seconds: for each.
        out: directory for crashes and ``result.json``.

    Returns:
        Number of targets that crashed.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = {}
    for name in names:
        place = out / name.replace(" ", "_")
        corpus = place / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds), "--out", str(place)]
        found = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        executed = re.findall(
            r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)\s", found.stderr, re.MULTILINE
        )
        inputs = max((int(a or b) for a, b in executed), default=0)
        coverage = re.findall(r"cov: (\d+)", found.stderr)
        bugs = sorted(
            file.name for file in place.iterdir() if file.name.startswith(("crash", "timeout", "oom"))
        )
        table[name] = {"inputs": inputs, "coverage": int(coverage[-1]) if coverage else 0, "bugs": bugs}
        print(
            f"{name:22s} {inputs:9d} inputs, coverage {table[name]['coverage']:6d}, bugs: {', '.join(bugs) or 'none'}"
        )
        if found.returncode and not bugs:
            print(found.stderr[-2000:])
        (place / "log.txt").write_text(found.stderr[-20_000:], encoding="utf-8")
        (out / "result.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return sum(bool(entry["bugs"]) for entry in table.values())


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", action="append", help="name of a target; all if not given")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--out", type=Path, default=Path("fuzz_files"), help="directory for what is found")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        fuzz(options.one, options.seconds, options.out / "corpus", options.out)
        return 0
    from fuzz_targets import TARGETS

    return min(campaign(options.target or list(TARGETS), options.seconds, options.out), 1)


if __name__ == "__main__":
    sys.exit(main())
