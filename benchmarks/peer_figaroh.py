"""Runs FIGAROH 1.0.2 on samples that others prepared: knows of FIGAROH, NumPy and Pinocchio, of nothing of ours.

    python peer_figaroh.py arm FILE.npz ..       # base parameters of a whole arm; residuals on held-out samples
    python peer_figaroh.py payload FILE.npz ..   # the last link with what it holds, all ten parameters

Prints one line of JSON: a list, one entry for each file. `peers.figaroh` writes the files.
"""

import json
import logging
import sys
import time
import types
import warnings

import numpy as np
import pinocchio as pin

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

from figaroh.identification.identification_tools import get_standard_parameters  # noqa: E402
from figaroh.identification.parameter import add_standard_additional_parameters  # noqa: E402
from figaroh.identification.physical_fit import FixedExtras, build_problem, solve_direct_effort_fit  # noqa: E402
from figaroh.tools.qrdecomposition import QRDecomposer  # noqa: E402
from figaroh.tools.regressor import build_regressor_basic, build_regressor_reduced, get_index_eliminate  # noqa: E402
from figaroh.tools.solver import LinearSolver  # noqa: E402


def robot_of(d):
    """FIGAROH's robot from the arm's frames, axes and drawn inertias; its configuration."""
    model, n = pin.Model(), d["q"].shape[1]
    for j in range(n):
        joint = (pin.JointModelPrismaticUnaligned if d["sliding"][j] else pin.JointModelRevoluteUnaligned)(d["axis"][j])
        index = model.addJoint(int(d["parent"][j]) + 1, joint, pin.SE3(d["rotation"][j], d["translation"][j]), str(j))
        model.appendBodyToJoint(index, pin.Inertia.FromDynamicParameters(d["drawn"][j]), pin.SE3.Identity())
    model.gravity = pin.Motion(np.concatenate([d["gravity"], np.zeros(3)]))
    motor = bool(d.get("motor", True))
    config = {
        "has_friction": motor,
        "has_actuator_inertia": motor,
        "has_joint_offset": True,
        "is_joint_torques": True,
        "is_external_wrench": False,
        "act_idxv": list(range(n)),
    }
    for key in ("fv", "fs", "Ia", "off"):
        config[key] = d.get(key, np.zeros(n)).tolist()
    return types.SimpleNamespace(model=model, data=model.createData()), config


def by_joint(residual, n):
    """(n,) root mean square of residuals stacked joint by joint."""
    return np.sqrt(np.mean(residual.reshape(n, -1) ** 2, axis=1))


def arm(d):
    """Held-out RMS of base parameters, plain and weighted by joint, and seconds."""
    robot, config = robot_of(d)
    n = len(config["act_idxv"])
    begin = time.perf_counter()
    whole = build_regressor_basic(robot, d["q"], d["qd"], d["qdd"], config)
    out, kept = get_index_eliminate(whole, {str(k): 0.0 for k in range(whole.shape[1])})
    reduced, tau = build_regressor_reduced(whole, out), d["torque"].T.ravel()
    found = QRDecomposer()
    found.double_decomposition(tau, reduced, kept)
    base = list(found.base_indices)
    columns = reduced[:, base]
    plain = np.linalg.lstsq(columns, tau, rcond=None)[0]
    sigma = np.repeat(by_joint(tau - columns @ plain, n), len(d["q"]))
    weighted = LinearSolver("lstsq").solve(columns / sigma[:, None], tau / sigma)
    seconds = time.perf_counter() - begin
    other = build_regressor_basic(robot, d["q_o"], d["qd_o"], d["qdd_o"], config)
    other, tau_o = build_regressor_reduced(other, out)[:, base], d["torque_o"].T.ravel()
    rms = {
        name: by_joint(tau_o - other @ x, n).tolist() for name, x in (("FIGAROH OLS", plain), ("FIGAROH WLS", weighted))
    }
    return {"rms": rms, "seconds": seconds}


def payload(d):
    """Ten parameters of the last link with its payload by the physically consistent effort fit.

    ``arm as drawn``: the other links and the rotors are held at the drawing (FIGAROH's fixed extras); ``all links``:
    nothing is held, the drawing is the prior. Rows are weighted by the residuals of a first least squares, joint by
    joint, as FIGAROH's weighted least squares does.
    """
    robot, config = robot_of(d)
    n = len(config["act_idxv"])
    drawn = get_standard_parameters(robot.model) | add_standard_additional_parameters(robot.model, config)
    names, prior, tau = list(drawn), np.array(list(drawn.values())), d["torque"].T.ravel()
    held = [k for j in range(n - 1) for k in names[10 * j : 10 * j + 10]] + [k for k in names if k.startswith("Ia_")]
    joints, told = [str(j) for j in range(n)], {}
    for label, fixed in (("FIGAROH, arm as drawn", held), ("FIGAROH, all links", [])):
        begin = time.perf_counter()
        whole = build_regressor_basic(robot, d["q"], d["qd"], d["qdd"], config)
        extras = FixedExtras(tuple(fixed), tuple(drawn[k] for k in fixed), "declared")
        own = joints[-1:] if fixed else joints
        first = build_problem(whole, tau, names, own, prior=prior, extras=extras)
        sigma = by_joint(first.tau - first.Y[:, list(first.base_indices)] @ first.phi_ols, n)
        weight = np.repeat(1.0 / np.maximum(sigma, 1e-6), len(d["q"]))
        problem = build_problem(whole, tau, names, own, prior=prior, extras=extras, row_weight=weight)
        record = solve_direct_effort_fit(problem)
        theta = None
        if record.theta is not None:
            first_of_last = problem.params_std.index(f"m_{joints[-1]}")
            theta = record.theta[first_of_last : first_of_last + 10].tolist()
        told[label] = {
            "theta": theta,
            "status": record.solver_status,
            "accepted": record.accepted,
            "seconds": time.perf_counter() - begin,
        }
    return told


def main():
    """Each file, one after the other."""
    task = {"arm": arm, "payload": payload}[sys.argv[1]]
    told = []
    for path in sys.argv[2:]:
        with np.load(path) as file:
            told.append(task({k: file[k] for k in file}))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
