"""Where the commands of a page run: a folder of its own, what they find there, and runs that pages share."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from docs_commands.pages import ROOT

#: Longest that one command may take on a machine that does nothing else, s.
PATIENCE = 240.0


@dataclass(frozen=True)
class Outcome:
    """What became of a command."""

    status: int
    output: str


@dataclass
class Shared:
    """What all pages share: finished runs by command, and what each command cost."""

    root: Path
    runs: dict[str, Path] = field(default_factory=dict)
    costs: list[tuple[float, str]] = field(default_factory=list)

    def execute(
        self, words: list[str], folder: Path, variables: dict[str, str], until: str = "", label: str = ""
    ) -> Outcome:
        """Run a program in a folder; ``until``: it is interrupted once it has printed that, and must end well.

        Raises:
            AssertionError: it does not end, or never prints what it should.
        """
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, **variables, "PYTHONUNBUFFERED": "1"}
        log = self.root / "output.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        timer = threading.Timer(PATIENCE * busy, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            if until:
                while until not in log.read_text(errors="replace") and process.poll() is None:
                    time.sleep(0.05)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.costs.append((usage.ru_utime + usage.ru_stime, label or shlex.join(words)))
        told = log.read_text(errors="replace")
        if until:
            assert until in told, f"{shlex.join(words)} never said {until!r}:\n{told[-2000:]}"
            return Outcome(0 if process.returncode == 130 else process.returncode, told)  # 130: interrupted
        return Outcome(process.returncode, told)

    def demo(self, arguments: list[str], folder: Path, variables: dict[str, str]) -> Outcome:
        """A run of the demo; the same one again is a copy."""
        rest, out, name = list(arguments), "", ""
        if "--out" in rest:
            at = rest.index("--out")
            out = rest[at + 1]
            del rest[at : at + 2]
        key = _key(rest, folder)
        if key not in self.runs:
            name = f"demo_{len(list(self.root.glob('demo_*')))}"  # one that failed has left its own
            done = self.execute([*PROGRAM, "demo", *rest, "--out", str(self.root / name)], folder, variables)
            if done.status != 0:
                return done
            (self.root / name / "_told.txt").write_text(done.output, encoding="utf-8")
            self.runs[key] = self.root / name
        source = self.runs[key]
        target = folder / (out or f"runs/20260504-10150{len(self.runs)}-{source.name}")
        assert not target.exists(), f"{target} exists"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("_told.txt"))
        return Outcome(0, (source / "_told.txt").read_text(encoding="utf-8"))


PROGRAM = [sys.executable, "-m", "safe_sysid"]


def _key(arguments: list[str], folder: Path) -> str:
    """What makes a run another one: its options in any order, and the files that they name."""
    files = [folder / word for word in arguments if (folder / word).is_file()]
    options = sorted(option.strip() for option in re.split(r" (?=--)", shlex.join(arguments)))
    return " ".join(options) + "".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


class Workspace:
    """The scratch folder in which the commands of one page run one after the other."""

    def __init__(self, folder: Path, shared: Shared) -> None:
        folder.mkdir(parents=True)
        self.folder, self.shared = folder, shared
        self.variables: dict[str, str] = {}  # what a block exports holds until its end
        self._runs: list[Path] = []

    # -- what commands name ------------------------------------------------------------------------------------

    def note_runs(self) -> None:
        """Remember which run directories have come, in order."""
        found = [path for path in (self.folder / "runs").glob("*") if path.is_dir()]
        new = sorted((path for path in found if path not in self._runs), key=lambda path: path.stat().st_mtime_ns)
        self._runs += new

    def last_run(self, word: str) -> str:
        """The newest run directory of this page; of a kind, where the word names one: identify, plan, demo."""
        kind = next((kind for kind in ("identify", "plan-", "demo") if kind in word), "")
        fitting = [run for run in self._runs if kind.strip("-") in run.name]
        same = re.sub(r"^\d{8}-\d{6}-", "", word)  # a plan's scene is part of the name, and of what verify asks for
        fitting = [run for run in fitting if run.name.endswith(f"-{same}")] or fitting
        if not fitting and kind == "identify":
            return str(self.identified().relative_to(self.folder))
        if not fitting and kind in ("demo", ""):
            self.run_program(["demo", "--plans", "1", "--record"])
            self.note_runs()
            fitting = self._runs
        assert fitting, f"no earlier command of this page made a run for {word}"
        return str(fitting[-1].relative_to(self.folder))

    def resolve(self, words: list[str]) -> list[str]:
        """Words with placeholders filled in, and the files that they name at hand."""
        found = []
        text = shlex.join(words)
        for word in words:
            word = re.sub(r"runs/(@[a-z_]+@|\d{8}-\d{6}-[\w-]+)", lambda m: self.last_run(m[1]), word)
            found.append(os.path.expandvars(word.replace("$PWD", str(self.folder))))
        for position, word in enumerate(found):
            if position and found[position - 1] in ("--out", "--json"):
                continue
            for pattern, make in GIVEN:
                name = re.fullmatch(pattern, word)
                if name and word.startswith("RUN_DIR"):  # another one for every command
                    shutil.rmtree(self.folder / word, ignore_errors=True)
                if name and not (self.folder / word).exists():
                    (self.folder / word).parent.mkdir(parents=True, exist_ok=True)
                    make(self, self.folder / word, text)
        return found

    # -- running ----------------------------------------------------------------------------------------------

    def run_program(self, arguments: list[str], until: str = "") -> Outcome:
        """`safe-sysid` with these arguments."""
        if arguments[:1] == ["demo"] and "--help" not in arguments and not until:
            done = self.shared.demo(arguments[1:], self.folder, self.variables)
        else:
            done = self.shared.execute(
                [*PROGRAM, *arguments], self.folder, self.variables, until, shlex.join(["safe-sysid", *arguments])
            )
        self.note_runs()
        return done

    def made(self, *arguments: str) -> None:
        """Something that a command of the page takes for granted."""
        done = self.run_program(list(arguments))
        assert done.status == 0, f"safe-sysid {shlex.join(arguments)}: status {done.status}\n{done.output[-3000:]}"

    # -- what is given -----------------------------------------------------------------------------------------

    def recorded(self) -> Path:
        """A recorded run of the demo, below `given`."""
        if not (run := self.folder / "given" / "recorded").exists():
            self.made("demo", "--plans", "1", "--record", "--out", str(run))
        return run

    def empty(self) -> Path:
        """A run with the empty hand."""
        if not (run := self.folder / "given" / "empty").exists():
            self.made("demo", "--payload", "none", "--plans", "1", "--out", str(run))
        return run

    def tare(self) -> Path:
        """A tare of that."""
        if not (file := self.folder / "given" / "tare.npz").exists():
            self.made("tare", str(self.empty()), "--robot", "kinova_gen3", "--out", str(file), "--quiet")
        return file

    def identified(self, *options: str) -> Path:
        """What `identify` makes of the recorded run."""
        name = hashlib.sha256(shlex.join(options).encode()).hexdigest()[:8]
        if not (run := self.folder / "given" / f"identify-{name}").exists():
            log = str(self.recorded() / "log.npz")
            self.made("identify", log, "--out", str(run), "--quiet", *options)
        return run


def _urdf(_: Workspace, file: Path, __: str) -> None:
    tutorial = (ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
    file.write_text(tutorial.split("```xml\n")[1].split("```")[0], encoding="utf-8")


def _own_arm(space: Workspace, file: Path, _: str) -> None:
    if not (urdf := file.with_suffix(".urdf")).exists():
        _urdf(space, urdf, "")
    space.made("config", "init", "--urdf", urdf.name, "--out", file.name, "--payload-kg", "2", "--simulated-drives")


def _own_run(space: Workspace, folder: Path, text: str) -> None:
    """A run directory; with the robot and settings that the command names."""
    if "--robot my_arm.yaml" not in text:
        shutil.copytree(space.identified(), folder)
        return
    if not (space.folder / "my_arm.yaml").exists():
        _own_arm(space, space.folder / "my_arm.yaml", "")
    run, arguments = (space.folder / "given" / "own", ("--robot", "my_arm.yaml", "--payload", "4lb", "--plans", "1"))
    if not run.exists():
        space.made("demo", *arguments, "--out", str(run))
    settings = re.findall(r"--set \S+", text)
    options = [word for setting in settings for word in setting.split()]
    space.made("identify", str(run / "log.npz"), "--robot", "my_arm.yaml", *options, "--out", str(folder), "--quiet")


def _bag(space: Workspace, folder: Path, _: str) -> None:
    shutil.copytree(space.recorded() / "bag", folder)


def _bounds(space: Workspace, file: Path, _: str) -> None:
    shutil.copy(space.identified() / "bounds.yaml", file)


def _table(space: Workspace, file: Path, text: str) -> None:
    """The recorded run as a text table, with the columns that the command names."""
    import numpy as np

    log = np.load(space.recorded() / "log.npz")
    names = dict(re.findall(r"--column (\S+?)=(\S+)", text))
    columns = {names.get("time", "time"): log["stamps"]}
    for index, joint in enumerate(log["joint_names"].tolist()):
        for quantity, key in (("position", "q"), ("velocity", "qd"), ("effort", "effort")):
            name = names.get(f"{joint}.{quantity}", f"{joint}_{quantity}")
            columns[name] = log[key][:, index]
    rows = np.column_stack(list(columns.values()))
    np.savetxt(file, rows, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")


def _empty_log(space: Workspace, file: Path, _: str) -> None:
    shutil.copy(space.empty() / "log.npz", file)


def _log(space: Workspace, file: Path, _: str) -> None:
    shutil.copy(space.recorded() / "log.npz", file)


def _certificate(space: Workspace, file: Path, _: str) -> None:
    run = space.identified("--tare", str(space.tare()), "--update", "0.4")
    for found in run.glob("certificate_*"):
        shutil.copy(found, file.parent)
    shutil.copy(space.recorded() / "log.npz", file.parent / "run.npz")
    shutil.copy(space.empty() / "log.npz", file.parent / "empty_hand.npz")


def _cell(space: Workspace, file: Path, text: str) -> None:
    """A scene with a start and a goal; a work cell for the experiments."""
    source = "experiments/pso_c.yaml" if "make_motions" in text else "scenes/six_boxes.yaml"
    shutil.copy(ROOT / "config" / source, file)


#: Files and folders that commands name and no earlier command made: pattern, who makes them.
GIVEN: tuple[tuple[str, Callable[[Workspace, Path, str], None]], ...] = (
    (r"my_arm\.urdf", _urdf),
    (r"(robot:=)?my_arm\.yaml", _own_arm),
    (r"RUN_DIRECTORY|RUN_DIR", _own_run),
    (r"rosbag2_[\d_-]+", _bag),
    (r"(\S+/)?bounds\.yaml", _bounds),
    (r"log\.csv", _table),
    (r"empty_hand_log\.npz", _empty_log),
    (r"LOG|run\.npz", _log),
    (r"certificate_\d_\d{5}\.json", _certificate),
    (r"(\S+/)?(cell|my_scene)\.yaml", _cell),
)
