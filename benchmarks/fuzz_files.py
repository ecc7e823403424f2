"""Fuzz every parser of files with atheris, guided by the coverage of our own code and of the Python that it uses.

    pip install atheris
    python benchmarks/fuzz_files.py --seconds 60            # each target, one after the other
    python benchmarks/fuzz_files.py --target "mesh ply"     # one
    python benchmarks/fuzz_files.py --random --seconds 10   # without atheris, unguided

Each target runs in a process of its own, with a limit of memory and of time for one input. What a parser does not
answer by reading or by a refusal of ours is a crash: the input is kept in ``--out``. Targets: test/fuzz_targets.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
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

    with atheris.instrument_imports(include=["safe_sysid", "yaml", "zipfile", "json", "csv", "rosbags", "defusedxml"]):
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


def mutated(rng: random.Random, content: bytes, words: tuple[bytes, ...]) -> bytes:
    """A file with one to eight changes.

    ``rng``: that draws them; ``content``: of a valid file; ``words``: that the parser knows.
    """
    data = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randint(0, len(data))
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 200)]
        elif kind == 2:
            data[at:at] = data[rng.randint(0, len(data)) :][: rng.randint(1, 200)]
        elif kind == 3 and words:
            data[at : at + rng.randint(0, 8)] = rng.choice(words)
        else:
            data[at:at] = rng.choice((b"\0", b"-1", b"9" * 30, b"1e999", b"nan", b"\xff\xff\xff\xff", b"<", b"{", b"["))
    return bytes(data)


def fuzz_at_random(name: str, seconds: int, crashes: Path) -> None:
    """As :func:`fuzz`, without guidance; writes atheris' line on inputs, and what is a bug.

    ``name``: of the target; ``seconds``: how long; ``crashes``: directory for inputs that are bugs.
    """
    from fuzz_targets import TARGETS, run

    target = TARGETS[name]
    seeds, words = target.seeds(), tuple(target.words)
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limit))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    rng, tried, end = random.Random(name), 0, time.monotonic() + seconds
    signal.signal(signal.SIGALRM, _too_long)
    while time.monotonic() < end:
        content = mutated(rng, rng.choice(seeds), words)
        signal.alarm(ONE_INPUT_S)
        try:
            run(target, content, folder)
        except BaseException as error:
            kind = "timeout" if isinstance(error, TimeoutError) else "crash"
            (crashes / f"{kind}-{tried}").write_bytes(content)
            traceback.print_exc()
        tried += 1
    print(f"stat::number_of_executed_units: {tried}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"one input took more than {ONE_INPUT_S} s")


def campaign(names: list[str], seconds: int, out: Path, more: tuple[str, ...] = ()) -> int:
    """Each target in a process of its own. Returns the number of targets that crashed.

    Args:
        names: of targets.
        seconds: for each.
        out: directory for crashes and ``result.json``.
        more: options of each process.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = {}
    for name in names:
        place = out / name.replace(" ", "_")
        corpus = place / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--one", name, "--seconds", str(seconds), "--out", str(place), *more]
        found = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        executed = re.findall(r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)\s", found.stderr, re.MULTILINE)
        inputs = max((int(a or b) for a, b in executed), default=0)
        coverage = re.findall(r"cov: (\d+)", found.stderr)
        bugs = sorted(file.name for file in place.iterdir() if file.name.startswith(("crash", "timeout", "oom")))
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
    parser.add_argument("--random", action="store_true", help="without atheris")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one and options.random:
        fuzz_at_random(options.one, options.seconds, options.out)
        return 0
    if options.one:
        fuzz(options.one, options.seconds, options.out / "corpus", options.out)
        return 0
    from fuzz_targets import TARGETS

    more = ("--random",) if options.random else ()
    return min(campaign(options.target or list(TARGETS), options.seconds, options.out, more), 1)


if __name__ == "__main__":
    sys.exit(main())
