"""Configuration of a new arm from its URDF: facts, derived values, and starting values for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from safe_sysid.control.checks import why_not_rate
from safe_sysid.control.design import design_gains
from safe_sysid.decimals import at_least, at_most
from safe_sysid.errors import ConfigError, ParameterError, SafeSysIdError
from safe_sysid.new_arm.arm_facts import look_at
from safe_sysid.new_arm.draft import Draft, check_name, check_out, urdf_for
from safe_sysid.new_arm.drives import guess_drives
from safe_sysid.new_arm.home import never_apart, payload_capacity, propose_home
from safe_sysid.new_arm.hypotheses import Excursion, eigenvalue_bounds, find_hypotheses, load_inertia
from safe_sysid.new_arm.payload import PayloadGuess, out_of_arm, prior_of
from safe_sysid.new_arm.shapes import fit_meshes, uncovered_links
from safe_sysid.new_arm.text import configuration_text
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.planning.planner import Planner
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.whole_files import write_text

__all__ = ["write_configuration"]

FloatArray = NDArray[np.float64]
Say = Callable[[str], None]
#: What is tried, in this order: share of the payload and how far plans go (rad); for each, rotor inertia over load.
_TRIALS = ((1.0, 0.5), (0.75, 0.5), (0.5, 0.5), (0.35, 0.5), (0.25, 0.5), (0.5, 0.3), (0.25, 0.3), (0.1, 0.3))
_MATCHING = (1.5, 2.0, 3.0, 4.0, 5.0)
#: Half width of the cell around home for which the smallest eigenvalue of the inertia is told, rad.
_CELL = 0.02
_SPARE = 1.25  # on the acceleration that the gains allow for


def write_configuration(
    urdf: str | Path,
    out: str | Path,
    *,
    tool_frame: str | None = None,
    joints: Sequence[str] | None = None,
    locked: Mapping[str, float] | None = None,
    package_dirs: Sequence[str | Path] = (),
    payload_kg: float | None = None,
    name: str | None = None,
    base_link: str | None = None,
    tip_link: str | None = None,
    overwrite: bool = False,
    say: Say = lambda line: None,
) -> list[str]:
    """Write a commented robot file for an arm that has none; it loads, gains exist, and a first plan was certified.

    Args:
        urdf: path of the URDF, or ``package://NAME/PATH``.
        out: YAML file to write.
        tool_frame: link that payloads are gripped at; None: guessed by its name.
        joints: of the arm, the others are locked; None: the longest chain.
        locked: positions of joints that are not the arm's, rad or m; others are guessed.
        package_dirs: folders that hold packages which the URDF names.
        payload_kg: largest payload; None: guessed from the torque limits.
        name: of the robot; None: the file's.
        base_link: link that the arm begins at, if ``tip_link`` is given; None: the root.
        tip_link: link that the arm ends at, in place of ``joints``.
        overwrite: replace a file that exists.
        say: gets lines of progress.

    Returns:
        Remarks: what was guessed and should be looked at.

    Raises:
        ConfigError: the output exists, the robot's name cannot be one, or a name is not one of the URDF's.
        ModelError: the URDF or one of its meshes cannot be used.
        ParameterError: no pose to start from, or no gains for any payload.
    """
    out = Path(out)
    check_out(out, overwrite)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", out.stem) if name is None else check_name(name)
    if payload_kg is not None and not payload_kg > 0.0:
        raise ConfigError("--payload-kg", "payload", payload_kg, "a mass > 0 kg")
    facts = look_at(urdf, tool_frame, joints, locked, package_dirs, base_link, tip_link)
    say(f"{len(facts.chain.joints)} joints: " + ", ".join(joint.name for joint in facts.chain.joints))
    remarks = list(facts.remarks)
    bare = uncovered_links(facts.chain)
    remarks += [
        f"geometry.{link}: [] is a guess: the link has mass and no collision geometry, and nothing covers it unless "
        "another link's shapes do; give its hulls, or plans may hit with it"
        for link in bare
    ]
    geometry = fit_meshes(facts.chain, package_dirs, say) | dict.fromkeys(bare, ())
    draft = Draft(name, urdf_for(out, urdf, facts.urdf), facts, geometry)
    model = draft.model()
    _check_links(model, str(facts.urdf))
    if out_of_arm(model.flange) < 0.0:
        remarks.append(
            f"payload.envelope: z of {facts.tool_frame} points into the arm: payloads are held along -z"
        )
    if payload_kg is None:
        payload_kg = payload_capacity(model)
        remarks.append(f"payload: {payload_kg:g} kg is a guess from the torque limits (--payload-kg)")
    found, payload_remarks = _decide(draft, payload_kg, say)
    remarks += payload_remarks
    model = found.model()
    text = configuration_text(found.data(), _sentences(found, model), remarks, found.sliding)
    if yaml.safe_load(text) != found.data():
        raise ParameterError(
            "the file's text does not say what was computed: expected the same; please report this"
        )
    write_text(out, text)
    return remarks


def _check_links(model: RobotModel, urdf: str) -> None:
    """Every link that moves must be a body: otherwise there is nothing to simulate, and nothing to identify."""
    for j, name in enumerate(model.joint_names):
        theta = model.theta_nominal[model.layout.link(j)]
        if not (theta[0] > 0.0 and is_consistent(theta)):
            raise ConfigError(
                urdf,
                f"inertial of what joint {name!r} moves",
                [float(f"{value:.4g}") for value in theta],
                "mass, centre and inertia of a solid body (m, m c, inertia about the joint's origin)",
            )


def _with_payload(draft: Draft, mass: float) -> Draft:
    payload = PayloadGuess.of(mass, out_of_arm(draft.model().flange))
    model = replace(draft, payload=payload).model()
    return replace(draft, payload=payload, prior=prior_of(payload, model.hand_prior, model.flange))


def _decide(draft: Draft, payload_kg: float, say: Say) -> tuple[Draft, list[str]]:
    """The first candidate for which gains exist, home can be held and a plan is certified."""
    why = "none was tried"
    for share, reach in _TRIALS:
        mass = float(f"{share * payload_kg:.2g}")
        say(f"payload {mass:g} kg, plans of {reach:g} rad")
        base = _with_payload(draft, mass)
        try:
            base = _at_home(base, reach, say)
        except ParameterError as error:
            why = str(error)
            say(f"  {why}")
            continue
        for candidate, words in _candidates(base, reach):
            found, why = _complete(candidate)
            say(f"  {words}: {why or ('gains exist' if draft.sliding else 'a plan is certified')}")
            if found is not None:
                remarks = [f"{words}: the least of what was tried that has a useful tracking bound"]
                if draft.sliding:
                    remarks.append(
                        f"sliding joints ({', '.join(draft.sliding)}): model, gains and identification know them, the "
                        "planner does not: no plan was tried"
                    )
                if share < 1.0:
                    remarks.append(
                        f"payload: prepared for {mass:g} kg, not for {payload_kg:g}: no useful tracking bound with "
                        "these starting values; measured friction and rotor inertia, or a narrower prior, may do"
                    )
                return found, remarks
    raise ParameterError(
        f"no configuration found for payloads from {_TRIALS[-1][0] * payload_kg:.2g} to {payload_kg:g} kg: {why}; "
        "expected a smaller payload (--payload-kg), or higher torque limits"
    )


def _at_home(draft: Draft, reach: float, say: Say) -> Draft:
    """With pairs that may overlap and a pose to start from."""
    model = draft.model()
    pairs = never_apart(model)
    if pairs:
        draft = replace(draft, pairs=pairs)
        model = draft.model()
    home = propose_home(model, 0.6 * reach)
    say("  home: " + ", ".join(f"{value:g}" for value in home))
    return replace(draft, home=home)


def _candidates(draft: Draft, reach: float) -> Iterator[tuple[Draft, str]]:
    """Drafts with heavier and heavier rotors."""
    load = load_inertia(draft.model(), np.asarray(draft.home), 0.6 * reach)
    for matching in _MATCHING:
        drives = guess_drives(draft.torque, load, matching)
        words = f"rotor inertia {matching:g} times the inertia that the joints move"
        yield replace(draft, motion=Excursion(reach), drives=drives, load=load), words


def _complete(draft: Draft) -> tuple[Draft | None, str]:
    """The draft with hypotheses, or why there are none."""
    model = draft.model()
    hypotheses = find_hypotheses(model, np.asarray(draft.home), draft.motion, np.asarray(draft.load))
    if hypotheses is None:
        return None, "no useful tracking bound"
    draft = replace(draft, hypotheses=hypotheses)
    try:
        model = draft.model()
        gains = [design_gains(model, lockstep) for lockstep in (False, True)]
        fastest = _SPARE * np.maximum(gains[0].acceleration_bound, gains[1].acceleration_bound)
        draft = replace(draft, fastest=np.ceil(fastest))
        model = draft.model()
        if draft.sliding:  # no certificates for them: nothing to plan
            return draft, ""
        scene, home = Scene("nothing around"), np.asarray(draft.home)
        gains = [design_gains(model, lockstep) for lockstep in (False, True)]
        reasons = [why_not_rate(model)]
        for one in gains:
            reasons += start_check(model, model.arm_prior, scene, one, home)
        reasons = [reason for reason in reasons if reason]
        if reasons:
            return None, f"home: {reasons[0]}"
        start = np.stack([home, np.zeros_like(home), np.zeros_like(home)])
        answer = Planner(model, scene, gains[1]).plan_next(
            start, model.settings.planner.t_p, model.arm_prior, 0
        )
    except SafeSysIdError as error:
        return None, str(error)
    if answer.plan is None:
        return None, f"no certified plan: {'; '.join(answer.reasons) or answer.status.value}"
    return draft, ""


def _sentences(draft: Draft, model: RobotModel) -> dict[str, str]:
    """What the file says of this arm."""
    h, drives = draft.hypotheses, draft.drives
    home = np.asarray(draft.home)
    everywhere, near, links = eigenvalue_bounds(model, home, _CELL)
    bare = "not proved positive" if links <= 0.0 else at_least(links)
    return {
        "source": f"written by `safe-sysid config init` from {draft.facts.urdf.name}",
        "drives": (
            "Starting values: Coulomb friction 0.5 % and viscous friction 2 % (per rad/s) of the torque "
            "limit, both uncertain "
            f"by all of it; rotor inertia {drives.matching if drives else 0:g} times the inertia that the "
            "joint moves with "
            "the largest payload near home (drives are matched to their load), at least 0.007 kg m^2 per N "
            "m of torque "
            "limit."
        ),
        "payload": (
            f"They hold for the URDF's last link and any payload up to {draft.payload.mass:g} kg inside the "
            "envelope, its centre "
            "of mass in the middle quarter of it."
        ),
        "inertia": (
            "Smallest eigenvalue of the inertia matrix H, rigorous lower bounds (kg m^2): in every pose "
            f"{at_least(everywhere)} (the rotors alone, so `inertia_lower` needs no entry); "
            f"within {_CELL:g} rad of home {at_least(near)}; there without rotors {bare}."
        ),
        "gains": (
            f"Proved tracking error with them: "
            f"{at_most(float(np.max(h.gains.e_bound)) if h else np.nan)} rad (real time)."
        ),
        "geometry": (
            "Convex hulls of points (link frame, m) inflated by a radius, fitted around the collision "
            "meshes of these links: "
            "each contains its meshes. Links with primitives (box, cylinder, sphere) are covered by themselves; an "
            "empty list says that another link's shapes hold the link, or that there is nothing to hit."
            if draft.geometry
            else "Replaces the URDF's collision geometry of a link by hulls (docs/scenes.md); its primitives are used."
        ),
        "home": "Where a run starts if the scene says nothing else (rad): clear of itself, held with every payload.",
    }
