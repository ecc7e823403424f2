"""One trial: enclose, attack every enclosure, certify, attack the certificate."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification import certificate as certificates
from safe_sysid.reachability import cells as cell_module
from safe_sysid.reachability import clearance as clearances
from safe_sysid.reachability import pose as poses
from safe_sysid.reachability import swept
from safe_sysid.reachability import torque as torques
from safe_sysid.studies.campaign.reachability.breaks import told
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase, build_case
from safe_sysid.studies.campaign.reachability.certified import attack_certificate, corner_points
from safe_sysid.studies.campaign.reachability.distances import attack_clearances, attack_obstacles
from safe_sysid.studies.campaign.reachability.links import attack_links
from safe_sysid.studies.campaign.reachability.places import attack_poses, attack_swept
from safe_sysid.studies.campaign.reachability.record import AttackRecord
from safe_sysid.studies.campaign.reachability.torques import attack_ranges, attack_torque_forms, attack_torques

__all__ = ["attack_enclosures", "attack_plan", "run_trial"]


def run_trial(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """One trial from its number alone; everything but ``seconds`` is the same wherever it runs.

    Args:
        options: ``fixed``: settings that replace drawn ones; ``break``: what the enclosures are told wrongly, see
            :mod:`~safe_sysid.studies.campaign.reachability.breaks`.

    Returns:
        Plain data for JSON: ``index``, ``settings``, what
        :class:`~.record.AttackRecord` says, ``certified`` (whether the plan was), ``cells``
        of the enclosures and ``final_cells`` of the certificate.
    """
    began = time.thread_time()
    case = build_case(seed, index, options)
    claims = told(case, options.get("break"))
    record = AttackRecord()
    cells, times, symbols = attack_enclosures(case, claims, record)
    certificate = attack_plan(case, claims, times, symbols, record)
    if "break" not in options:
        attack_links(seed, index, record)
    return {
        "index": index,
        "settings": case.settings.to_dict(),
        "certified": certificate.ok,
        "cells": cells,
        "final_cells": len(certificate.grid) - 1,
        **record.to_dict(),
        "seconds": round(time.thread_time() - began, 4),
    }


def attack_enclosures(
    case: ReachabilityCase, claims: ReachabilityCase, record: AttackRecord
) -> tuple[int, FloatArray, FloatArray]:
    """Attack motion, torque, S, poses and clearance, each enclosure for itself.

    Enclosures are looked up in their modules at every call, so that a test can put a broken one there.

    Returns the number of cells, and times (N,) and symbols (N, size) that are worth a look by :func:`attack_plan`.
    """
    gains, model, n, assume = claims.gains, claims.model, case.n, claims.gains.assumptions
    cells = cell_module.time_cells(claims.trajectory, case.settings.intervals)
    true = cell_module.TrackingSet.of(gains, n)
    measured = true.enlarged(np.broadcast_to(assume.position_error, (n,)), np.broadcast_to(assume.velocity_error, (n,)))
    attack_ranges(case, cells, record)
    task = torques.TorqueTask(
        model.kinematics,
        claims.box,
        cells,
        measured,
        gains.K_d,
        gains.inertia_lower,
        model.friction_transition_velocity,
    )
    task.run()
    enclosure = task.enclosure()
    attack_torque_forms(
        case, cells, task.forms.nominal, task.forms.spread, (measured.e, measured.r), case.rng(15), record
    )
    found = [corner_points(case, cells), attack_torques(case, cells, enclosure, case.rng(10), record)]
    rotations, origins = poses.relative_poses(model.kinematics, cells, true)
    attack_poses(case, cells, rotations, origins, case.rng(11), record)
    clearance = clearances.enclose_clearance(model, claims.scene, cells, true)
    if model.bodies:
        volume = swept.swept_boxes(model, cells, true, group=int(case.rng(19).integers(1, 10)))
        attack_swept(case, cells, volume, case.rng(20), record)
    attack_obstacles(claims.scene, case.rng(16), record)
    found.append(attack_clearances(case, cells, clearance, case.rng(12), record))
    times, symbols = (np.concatenate(part) for part in zip(*found, strict=True))
    return cells.count, times, symbols


def attack_plan(
    case: ReachabilityCase, claims: ReachabilityCase, times: FloatArray, symbols: FloatArray, record: AttackRecord
) -> certificates.PlanCertificate:
    """Attack the certificate of the case's plan.

    ``times``: (N,) at which to look, s; ``symbols``: (N, size) likewise.
    """
    certificate = certificates.verify_plan(
        claims.plan,
        claims.model,
        claims.box,
        claims.scene,
        claims.gains,
        intervals=case.settings.intervals,
        clearance_margin=case.clearance_margin,
    )
    attack_certificate(case, certificate, times, symbols, case.rng(13), record)
    forged = _forged(certificate.witness, case.rng(17))
    again = certificates.verify_plan(
        claims.plan,
        claims.model,
        claims.box,
        claims.scene,
        claims.gains,
        clearance_margin=case.clearance_margin,
        splits=0,
        grid=certificate.grid,
        directions=forged,
    )
    attack_certificate(case, again, times[::4], symbols[::4], case.rng(18), record, commands=20)
    return certificate


def _forged(witness: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Directions that may be anything: a bad witness may prove little, never too much."""
    out = np.array(witness)
    kind = rng.integers(0, 6, out.shape[:2])
    out[kind == 1] *= -1.0
    out[kind == 2] = rng.normal(size=(int(np.sum(kind == 2)), 3))
    out[kind == 3] *= 10.0 ** rng.uniform(-5.0, 5.0, (int(np.sum(kind == 3)), 1))
    broken = rng.choice([np.nan, np.inf, 0.0, 1e-300, 1e300], (int(np.sum(kind == 4)), 3))
    out[kind == 4] = broken
    return out
