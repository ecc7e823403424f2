"""The protocol of dynamics: its backends agree, and a stranger's backend is one file and one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from arm_factory import check_agreement, random_arm
from identification_plant import geared

from safe_sysid.dynamics import Dynamics, dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.extensions import DYNAMICS
from safe_sysid.new_arm.home import inertia_matrices
from safe_sysid.robot.loading import load_robot

#: A stranger's file: numbers are those of the package, but every call is written down.
STRANGER = """
from safe_sysid.dynamics.recursion import RecursiveDynamics


class StrangersDynamics(RecursiveDynamics):
    calls = []

    def momentum_regressor(self, q, qd):
        self.calls.append(len(q))
        return super().momentum_regressor(q, qd)
"""


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", sorted(set(DYNAMICS) - {"pinocchio", "generated"}))  # the latter: its own file
def test_backends_agree_on_arms_with_sliding_joints_and_geared_rotors(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kin, _, theta = random_arm(1 + seed % 6, rng, 0.4 * (seed % 2))
    kin = geared(rng, kin) if seed % 3 else kin
    ours, theirs = dynamics_of(kin, name), dynamics_of(kin, "pinocchio")
    check_agreement(ours, theirs, kin, theta, rng)


def test_a_strangers_backend_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strangers_dynamics.py").write_text(STRANGER, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(DYNAMICS, "mine", "strangers_dynamics:StrangersDynamics")
    model = load_robot("three_joint")
    home = np.array(model.settings.home)
    mine: Dynamics = dynamics_of(model.kinematics, "mine")
    expected = dynamics_of(model.kinematics).mass_matrix(model.theta_nominal, home)
    np.testing.assert_array_equal(mine.mass_matrix(model.theta_nominal, home), expected)
    assert mine.calls == [3]  # type: ignore[attr-defined]
    # Everything that asks for no backend by name takes the first of the table, the package's own parts too.
    monkeypatch.setitem(DYNAMICS, "recursion", DYNAMICS["mine"])
    inertia_matrices(model, home[None])
    assert mine.calls[1:] == [1, 1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", list(DYNAMICS))
def test_bad_input_is_refused_by_every_backend(name: str) -> None:
    model = load_robot("three_joint")
    backend, q = dynamics_of(model.kinematics, name), np.zeros(3)
    with pytest.raises(ParameterError, match=r"theta of shape \(3,\): expected \(42,\)"):
        backend.gravity(q, q)
    with pytest.raises(ParameterError, match=r"expected all \(N, 3\)"):
        backend.torque_regressor(q, np.zeros(2), q)
    with pytest.raises(ParameterError, match=r"expected all \(N, 3\)"):
        backend.inverse_dynamics(model.theta_nominal, q, np.zeros((2, 3)), q)
