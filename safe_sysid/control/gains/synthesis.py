"""Gain synthesis: the smallest V_max for which the tracking theorem holds (docs/understand/guarantees.md)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.control.gains.power_loss import ClosedLoop, PowerLoss
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["narrowed", "synthesise"]

_ROUND = 1.0 + 1e-10
#: Candidates: c of the robust term, and the lead as a share of (hold_max + delay_max) / 2.
_GAINS = np.concatenate([np.linspace(0.6, 3.0, 13), np.geomspace(3.4, 12.0, 8)])
_LEADS = (0.0, 0.4, 0.6, 0.8, 1.0)
#: A larger sqrt(2 V_max) than this is no bound worth having.
_LARGEST = 10.0
#: Oldest late command whose growth rate is kept, s.
_LATE = 0.1
#: The last gains by all that they depend on: who plans, checks and judges one motion asks for the same ones each time.
_KEPT: dict[bytes, ControllerGains] = {}
_MOST_KEPT = 64


def synthesise(
    kin: Kinematics,
    box: ParameterBox,
    assume: TrackingAssumptions,
    inertia_lower: ArrayLike,
    K_r: ArrayLike,
    kappa: float,
    transition: float,
    joint_names: tuple[str, ...] = (),
    own_inertia: bool = False,
) -> ControllerGains:
    """Choose K_d, the robust gain, the lead and the smallest V_max with ``power_loss < 2 kappa V_max``.

    Args:
        box: of parameters that the theorem is to hold for.
        inertia_lower: (n,) L with H >= diag(L): the lower rotor inertia, or what certificates shall prove, kg m^2.
        K_r: (n,) or one for all, 1/s.
        kappa: decay rate, 1/s.
        transition: friction transition velocity, rad/s.
        own_inertia: the damping is ``kappa H r``, H the arm's own inertia; no K_d then.

    Raises:
        ParameterError: no positive bound of the inertia, or no V_max exists; says which assumption to relax.
    """
    asked = pickle.dumps((kin, box, assume, np.array(inertia_lower), np.array(K_r), kappa, transition, own_inertia))
    gains = _KEPT.get(asked)
    if gains is None:
        gains = _synthesised(kin, box, assume, inertia_lower, K_r, kappa, transition, joint_names, own_inertia)
        while len(_KEPT) >= _MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[asked] = gains
    return gains


def _synthesised(
    kin: Kinematics,
    box: ParameterBox,
    assume: TrackingAssumptions,
    inertia_lower: ArrayLike,
    K_r: ArrayLike,
    kappa: float,
    transition: float,
    joint_names: tuple[str, ...],
    own_inertia: bool,
) -> ControllerGains:
    """Computed, not looked up."""
    n = box.n
    lam = np.array(np.broadcast_to(np.asarray(inertia_lower, float), (n,)))
    k_r = np.broadcast_to(np.asarray(K_r, float), (n,)).copy()
    if np.any(lam <= 0.0):
        j = int(np.argmin(lam))
        name = joint_names[j] if joint_names else f"joint {j}"
        raise ParameterError(
            f"{name}: inertia has lower bound {float(lam[j])!r} kg m^2: expected a positive rotor inertia, or "
            "controller.inertia_lower: the tracking bound rests on H >= diag(inertia_lower)"
        )
    if np.any(k_r <= 0.0) or not kappa > 0.0:
        raise ParameterError(f"K_r = {k_r.tolist()}, kappa = {kappa!r}: expected positive gains")
    if not 0.0 <= assume.delay_max <= assume.hold_max:
        raise ParameterError(
            f"delay_max = {assume.delay_max!r}, hold_max = {assume.hold_max!r}: expected 0 <= delay_max <= hold_max"
        )
    box.layout.require_compiled("the tracking theorem", box.lower, box.upper)
    viscous = box.lower[box.layout.viscous]
    own = kappa if own_inertia else 0.0
    K_d = np.zeros(n) if own_inertia else np.maximum(kappa * assume.inertia_upper - viscous, 0.0)
    kappa_true = float(np.min((K_d + viscous) / assume.inertia_upper)) * (1.0 - 1e-12)
    loop = ClosedLoop(kin, box, assume, lam, k_r, K_d, kappa_true, transition, own)
    best: tuple[float, float, float, PowerLoss] | None = None
    for lead in (share * 0.5 * (assume.hold_max + assume.delay_max) for share in _LEADS):
        for c in _GAINS:
            limit = _LARGEST if best is None else best[0]
            smallest = _smallest(loop, float(c), lead, limit)
            if smallest is not None:
                best = (smallest[0], float(c), lead, smallest[1])
    if best is None:
        raise ParameterError(
            "no tracking bound exists for these assumptions: relax one of controller.kappa or K_r (lower), "
            f"timing.hold_max_s = {assume.hold_max!r} (lower), measurement errors (lower), "
            f"tracking.uncertainty = {assume.uncertainty!r} (lower, i.e. a smaller prior box); or let the arm's "
            "own position controller move it (controller.interface: trajectory), which needs no such bound"
        )
    nu, c, lead, power_loss = best
    return _gains(loop, box, lam, K_d, c, lead, nu, power_loss)


def narrowed(gains: ControllerGains, kin: Kinematics, transition: float, uncertainty: float) -> ControllerGains | None:
    """The same law, and what the theorem proves of it where S stays below a smaller bound.

    "Narrower tubes" in docs/understand/guarantees.md: law, box and all other assumptions are those of ``gains``.

    Args:
        kin: of the arm that the gains are for.
        transition: friction transition velocity, rad/s.
        uncertainty: bound of S, at most the gains' own, sqrt(W/s).

    Returns:
        None if that proves no smaller V_max.
    """
    g = gains
    assume = replace(g.assumptions, uncertainty=uncertainty)
    loop = ClosedLoop(kin, g.box, assume, g.inertia_lower, g.K_r, g.K_d, g.kappa, transition, g.own_damping)
    widest = float(np.sqrt(2.0 * g.V_start))
    smallest = _smallest(loop, g.robust_gain, g.lead, widest)
    if smallest is None or not smallest[0] <= widest:
        return None
    return _gains(loop, g.box, g.inertia_lower, g.K_d, g.robust_gain, g.lead, *smallest)


def _gains(
    loop: ClosedLoop,
    box: ParameterBox,
    lam: FloatArray,
    K_d: FloatArray,
    c: float,
    lead: float,
    nu: float,
    power_loss: PowerLoss,
) -> ControllerGains:
    """All that follows from the law's numbers and nu = sqrt(2 V_max)."""
    assume, own, k_r = loop.assume, loop.own, loop.K_r
    late = [
        (age, found[0])
        for age in np.geomspace(assume.hold_max, max(_LATE, assume.hold_max), 16)
        if (found := _aged(loop, box, lam, K_d, own, float(age)).crude(nu, age, lead)) is not None
    ]
    r_bound = nu / np.sqrt(lam) * _ROUND
    arrays = {
        "K_r": k_r,
        "K_d": K_d,
        "inertia_lower": lam,
        "r_bound": r_bound,
        "e_bound": r_bound / k_r * _ROUND,
        "de_bound": 2.0 * r_bound * _ROUND,
        "acceleration_bound": power_loss.acceleration,
        "late_ages": np.array([age for age, _ in late]),
        "late_rates": _ROUND * np.array([2.0 * assume.uncertainty + rate for _, rate in late]),
    }
    for array in arrays.values():
        array.setflags(write=False)
    return ControllerGains(
        assumptions=assume,
        box=box,
        kappa=loop.kappa,
        robust_gain=c,
        lead=lead,
        V_max=0.5 * nu * nu,
        V_start=0.5 * nu * nu - power_loss.excess,
        power_loss=power_loss.power,
        own_damping=own,
        **arrays,
    )


def _aged(loop: ClosedLoop, box: ParameterBox, lam: FloatArray, K_d: FloatArray, own: float, age: float) -> ClosedLoop:
    """The loop for commands up to that age: the arm's own inertia changes meanwhile."""
    if own == 0.0:
        return loop
    return ClosedLoop(loop.kin, box, loop.assume, lam, loop.K_r, K_d, own, loop.transition, own, age)


def _smallest(loop: ClosedLoop, gain: float, lead: float, limit: float) -> tuple[float, PowerLoss] | None:
    """Smallest nu below ``limit`` whose power loss is dissipated, from below: the loss grows with nu."""
    nu = 1e-3
    for _ in range(400):
        power_loss = loop.power_loss(nu, gain, lead)
        # 0.2 % above what the power loss needs: room for rounding at hand-overs (step 11 of the proof).
        target = float(np.sqrt(power_loss.power / loop.kappa)) * 1.001
        if not np.isfinite(target) or target >= limit:
            return None
        if target <= nu:
            return nu, power_loss
        nu = target * 1.001
    return None
