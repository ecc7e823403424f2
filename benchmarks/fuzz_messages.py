"""Broken messages and requests for every node, for as long as one likes: docs/use/security.md has the figures.

    python benchmarks/fuzz_messages.py --seconds 600              fields and bytes of sound messages, broken at random
    python benchmarks/fuzz_messages.py --seconds 600 --coverage   bytes, led by coverage (pip install atheris)

An input passes if no exception leaves a callback, the next measurement is answered with a torque that the arm has, and
the nodes' diagnostics stay sound. The first that does not is printed with what it takes to repeat it; status 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test")]


class Tally:
    """What was tried, kept in a file: a fuzzer that is led by coverage ends without a word."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.inputs, self.slowest = file, Counter[str](), {}
        self._began = time.monotonic()

    def add(self, target: str, seconds: float) -> None:
        """Count one input."""
        self.inputs[target] += 1
        if seconds > self.slowest.get(target, (0.0,))[0]:
            self.slowest[target] = (seconds,)
        if self.file is not None and self.inputs.total() % 1000 == 0:
            self.file.write_text(json.dumps(self.record()))

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {
            "seconds": round(time.monotonic() - self._began, 1),
            "inputs": self.inputs.total(),
            "by target": dict(sorted(self.inputs.items())),
            "slowest ms": {name: round(1e3 * worst[0], 1) for name, worst in sorted(self.slowest.items())},
        }


def targets(bench):
    """Name, what takes bytes, sound inputs to begin with."""
    from message_bench import request_of
    from rclpy.serialization import serialize_message

    found = []
    for node, topic in bench.topics():
        seeds = [bytes(serialize_message(seed)) for seed in bench.seeds(topic)]
        found.append((f"{node.get_name()}: {topic}", lambda data, n=node, t=topic: bench.send(n, t, data), seeds))
    for node, service in bench.services():
        name = service.srv_name.rpartition("/")[2]
        if name in ("change_state", "stop", "emergency_stop"):  # sound ones end what is tried here
            continue
        rng = random.Random(0)
        seeds = [bytes(serialize_message(request_of(rng, service))) for _ in range(5)]
        found.append((f"{node.get_name()}: ~/{name}", lambda data, s=service: bench.ask(s, data), seeds))
    return found


def at_random(bench, tally, seconds: float, seed: int) -> int:
    """Break sound messages at random."""
    from message_bench import break_bytes, broken, request_of
    from rclpy.serialization import serialize_message

    number, end = seed, time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        rng = random.Random(number)
        if rng.random() < 0.8:
            node, topic = rng.choice(bench.topics())
            name, data = f"{node.get_name()}: {topic}", broken(rng, rng.choice(bench.seeds(topic)))
            call = lambda: bench.send(node, topic, data)  # noqa: B023, E731
        else:
            node, service = rng.choice(bench.services())
            request = request_of(rng, service)
            name = f"{node.get_name()}: ~/{service.srv_name.rpartition('/')[2]}"
            data = bytes(serialize_message(request))
            if rng.random() < 0.5 and not hasattr(request, "transition"):
                data = break_bytes(rng, data)
            call = lambda: bench.ask(service, data)  # noqa: B023, E731
        began = time.monotonic()
        try:
            call()
            tally.add(name, time.monotonic() - began)
            if number % 20 == 0:
                bench.measure(bench.torque)
            if number % 1000 == 0:
                bench.healthy()
        except BaseException as error:
            print(f"seed {number}: {name}: {type(error).__name__}: {error}\n{data.hex()}")
            return 1
    return 0


def by_coverage(tally, seconds: float, corpus: Path, directory: Path) -> None:
    """Let atheris choose the bytes; never returns."""
    import atheris

    import safe_sysid

    # What is compiled cannot be instrumented: all of that is imported before.
    rooms = ("identification", "control", "planning", "reachability", "simulation", "trajectories", "logs")
    for module in pkgutil.walk_packages(safe_sysid.__path__, "safe_sysid."):
        if module.name.startswith(tuple(f"safe_sysid.{room}" for room in rooms)):
            importlib.import_module(module.name)
    with atheris.instrument_imports(include=["safe_sysid.nodes"]):
        from message_bench import MessageBench
    bench = MessageBench(directory)
    all_targets = targets(bench)
    corpus.mkdir(parents=True, exist_ok=True)
    for i, (_, _, seeds) in enumerate(all_targets):
        for k, seed in enumerate(seeds):
            (corpus / f"{i}_{k}").write_bytes(bytes([i]) + seed)

    def one(data: bytes) -> None:
        if not data:
            return
        name, call, _ = all_targets[data[0] % len(all_targets)]
        began = time.monotonic()
        call(data[1:])
        tally.add(name, time.monotonic() - began)
        if tally.inputs.total() % 20 == 0:
            bench.measure(bench.torque)
        if tally.inputs.total() % 1000 == 0:
            bench.healthy()

    options = [f"-max_total_time={seconds:.0f}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=6000", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="the first random number")
    parser.add_argument("--coverage", action="store_true", help="led by coverage")
    parser.add_argument("--corpus", type=Path, default=None, help="where inputs are kept (--coverage)")
    parser.add_argument("--tally", type=Path, default=None, help="write figures here as JSON")
    options = parser.parse_args()
    # A network of its own; nothing is sent all the same.
    os.environ |= {"ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    with tempfile.TemporaryDirectory() as scratch:
        tally = Tally(options.tally)
        if options.coverage:
            by_coverage(tally, options.seconds, options.corpus or Path(scratch) / "corpus", Path(scratch))
        from message_bench import MessageBench

        bench = MessageBench(Path(scratch))
        status = at_random(bench, tally, options.seconds, options.seed)
        bench.close()
    print(json.dumps(tally.record(), indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())
