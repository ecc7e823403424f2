"""FIGAROH 1.0.2 from the Python registry, in an environment of its own: what it needs need not fit what we need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import com_and_inertia

__all__ = ["arm_arrays", "figaroh"]

RELEASE = "figaroh==1.0.2"


def environment() -> Path:
    """The Python that has FIGAROH; made on the first call, in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = base / "safe_sysid" / f"{RELEASE.replace('==', '-')}-python{version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"{RELEASE}: an environment of its own in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", RELEASE], check=True)
        (folder / "complete").touch()
    return python


def arm_arrays(model: RobotModel) -> dict[str, Any]:
    """The arm as drawn: frames (n, ..), axes (n, 3), consistent inertias (n, 10), friction and rotors (n,)."""
    kin, layout, nominal = model.kinematics, model.layout, np.array(model.theta_nominal)
    parts = [com_and_inertia(nominal[layout.link(j)]) for j in range(model.n)]
    return {
        "drawn": np.array([pin.Inertia(*part).toDynamicParameters() for part in parts]),
        "parent": kin.parent,
        "sliding": kin.sliding,
        "axis": kin.axis,
        "rotation": kin.rotation,
        "translation": kin.translation,
        "gravity": kin.gravity,
        "fs": nominal[layout.coulomb],
        "fv": nominal[layout.viscous],
        "Ia": nominal[layout.rotor_inertia],
        "off": nominal[layout.offset],
    }


def figaroh(task: str, problems: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `peer_figaroh.py TASK` says of each problem, a dict of arrays.

    Raises SystemExit: FIGAROH ended with an error, which is told.
    """
    script = Path(__file__).with_name("peer_figaroh.py")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{k}.npz") for k in range(len(problems))]
        for file, arrays in zip(files, problems, strict=True):
            np.savez(file, **arrays)
        done = subprocess.run([environment(), script, task, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"FIGAROH: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
