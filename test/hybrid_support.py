"""Learned hybrid models made up for tests: no torch."""

from __future__ import annotations

import numpy as np

from safe_sysid.learning.neural.models import Learned, Scaling
from safe_sysid.robot.model import RobotModel

WIDTH, MEMORY = 6, 4


def made_up(model: RobotModel, name: str = "rbd_sign_lstm", seed: int = 0, size: float = 0.5) -> Learned:
    """A model of an arm with random weights, the arm's own rigid part 10 % too heavy."""
    n, rng = model.n, np.random.default_rng(seed)

    def w(*shape: int) -> np.ndarray:
        return size * rng.normal(size=shape)

    weights = {"first.weight": w(WIDTH, 3 * n), "first.bias": w(WIDTH), "slope.weight": np.array([0.25])}
    if name.endswith("lstm"):
        for norm in ("norm", "norm_after"):
            weights |= {f"{norm}.weight": 1.0 + w(WIDTH), f"{norm}.bias": w(WIDTH)}
        weights |= {
            "memory.weight_ih_l0": w(4 * MEMORY, WIDTH), "memory.weight_hh_l0": w(4 * MEMORY, MEMORY),
            "memory.bias_ih_l0": w(4 * MEMORY), "memory.bias_hh_l0": w(4 * MEMORY), "last.weight": w(n, MEMORY),
        }  # fmt: skip
    else:
        weights |= {"second.weight": w(WIDTH, WIDTH), "second.bias": w(WIDTH), "last.weight": w(n, WIDTH)}
    weights["last.bias"] = w(n)
    if name in ("rbd", "rbd_sign"):
        weights = {}
    theta = np.array(model.theta_nominal)
    theta[model.layout.links] *= 1.1
    scaling = Scaling(
        0.1 * rng.normal(size=3 * n), rng.uniform(0.5, 2.0, 3 * n), np.full(3 * n, -4.0), np.full(3 * n, 4.0),
        np.full(n, -10.0), np.linspace(5.0, 20.0, n),
    )  # fmt: skip
    rigid = None if name == "lstm" else theta
    return Learned(name, "e2e", seed, tuple(model.joint_names), 1000.0, rigid, scaling, weights, {"robot": model.name})


def by_numpy(learned: Learned, states: np.ndarray) -> np.ndarray:
    """(N, n) torque of the network along (N, 3 n), derived anew from its definition."""
    w, s, n, every = learned.weights, learned.scaling, len(learned.joint_names), learned.every
    steps = np.array([states[k : k + every].mean(axis=0) for k in range(0, len(states) - every + 1, every)])
    x = (steps - s.mean) / s.deviation
    if learned.sees == "directions":
        x[:, :n] = np.clip(steps[:, n : 2 * n] / 0.02, -1.0, 1.0)

    def rectified(a: np.ndarray) -> np.ndarray:
        return np.where(a > 0.0, a, w["slope.weight"] * a)

    def normalised(a: np.ndarray, name: str) -> np.ndarray:
        return (a - a.mean()) / np.sqrt(a.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def sigma(a: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-a))

    out = np.empty((len(x), len(s.torque_low)))
    hidden = cell = np.zeros(len(w.get("memory.weight_hh_l0", np.zeros((0, 0))).T))
    for k, row in enumerate(x):
        a = w["first.weight"] @ row + w["first.bias"]
        if learned.kind.network == "mlp":
            hidden = rectified(w["second.weight"] @ rectified(a) + w["second.bias"])
        else:
            a = normalised(rectified(normalised(a, "norm")), "norm_after")
            gates = w["memory.weight_ih_l0"] @ a + w["memory.bias_ih_l0"]
            write, keep, new, read = np.split(gates + w["memory.weight_hh_l0"] @ hidden + w["memory.bias_hh_l0"], 4)
            cell = sigma(keep) * cell + sigma(write) * np.tanh(new)
            hidden = sigma(read) * np.tanh(cell)
        out[k] = (w["last.weight"] @ hidden + w["last.bias"]) * s.torque_range
    held = np.zeros(states[:, :n].shape)  # from the last tick of a step to the last but one of the next
    for k, torque in enumerate(out):
        held[(k + 1) * every - 1 :] = torque
    return held
