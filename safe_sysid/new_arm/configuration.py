"""Configuration of a new arm from its URDF: facts, derived values, and starting values for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml

from safe_sysid.control.checks.start import why_not_rate
from safe_sysid.control.gains.design import design_gains
from safe_sysid.decimals import at_least, at_most
from safe_sysid.errors import ConfigError, ParameterError, SafeSysIdError
from safe_sysid.new_arm.arm_facts import look_at
from safe_sysid.new_arm.draft import Draft, check_name, check_out, urdf_for
from safe_sysid.new_arm.drives import DriveGuess, drives_of, simulated_drives, unknown_drives
from safe_sysid.new_arm.home import never_apart, payload_capacity, propose_home
from safe_sysid.new_arm.hypotheses import PlanReach, eigenvalue_bounds, find_hypotheses, load_inertia
from safe_sysid.new_arm.pairs import stated_pairs
from safe_sysid.new_arm.payload import PayloadGuess, out_of_arm, prior_of
from safe_sysid.new_arm.shapes import fit_meshes, uncovered_links
from safe_sysid.new_arm.text import configuration_text
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.planning.planner import Planner
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.whole_files import write_text

__all__ = ["NewArm", "write_configuration"]

Say = Callable[[str], None]
#: What is tried, in this order: share of the payload and how far plans go (rad); for each, rotor inertia over load.
_TRIALS = ((1.0, 0.5), (0.75, 0.5), (0.5, 0.5), (0.35, 0.5), (0.25, 0.5), (0.5, 0.3), (0.25, 0.3), (0.1, 0.3))
_MATCHING = (1.5, 2.0, 3.0, 4.0, 5.0)
#: Half width of the cell around home for which the smallest eigenvalue of the inertia is told, rad.
_CELL = 0.02
_SPARE = 1.25  # on the acceleration that the gains allow for
#: Where the theorem asks for other drives than the arm has.
_OTHER_WAY = "or none: controller.interface: trajectory, the arm's own position controller (docs/use/trajectory.md)"


@dataclass(frozen=True)
class NewArm:
    """What a user says of a new arm."""

    tool_frame: str | None = None  #: link that payloads are gripped at; None: guessed by its name
    joints: Sequence[str] | None = None  #: of the arm, the others are locked; None: the longest chain without fingers
    #: positions of joints that are not the arm's, rad or m; others are guessed
    locked: Mapping[str, float] | None = None
    package_dirs: Sequence[str | Path] = ()  #: folders that hold packages which the URDF names
    payload_kg: float | None = None  #: largest payload; None: guessed from the torque limits
    name: str | None = None  #: of the robot; None: the file's
    base_link: str | None = None  #: link that the arm begins at, if ``tip_link`` is given; None: the root
    tip_link: str | None = None  #: link that the arm ends at, in place of ``joints``
    allowed_pairs: Sequence[tuple[str, str]] = ()  #: links that are not checked against each other
    srdf: Path | None = None  #: file whose disabled collisions are not checked
    gear_ratios: Mapping[str, float] | None = None
    drives: Path | None = None  #: robot file whose friction and rotor inertia were measured; None: they are unknown
    simulated_drives: bool = False


def write_configuration(
    urdf: str | Path, out: str | Path, arm: NewArm = NewArm(), *, overwrite: bool = False, say: Say = lambda line: None
) -> list[str]:
    """Write a commented robot file for an arm that has none.

    Drives are never invented. Without ``drives`` or ``simulated_drives`` the file is for identification only; with
    either, gains exist, and a first plan was certified.

    ``urdf``: path of the URDF, or ``package://NAME/PATH``. Returns remarks: what was guessed and should be looked at.

    Raises:
        ConfigError: the output exists, the robot's name cannot be one, or a name is not one of the URDF's.
        ModelError: the URDF or one of its meshes cannot be used.
        ParameterError: with drives: no pose to start from, or no gains for the payload asked for.
    """
    out = Path(out)
    check_out(out, overwrite)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", out.stem) if arm.name is None else check_name(arm.name)
    if arm.payload_kg is not None and not arm.payload_kg > 0.0:
        raise ConfigError("--payload-kg", "payload", arm.payload_kg, "a mass > 0 kg")
    if arm.drives is not None and arm.simulated_drives:
        raise ConfigError("--drives", "file", str(arm.drives), "not --simulated-drives too")
    facts = look_at(urdf, arm.tool_frame, arm.joints, arm.locked, arm.package_dirs, arm.base_link, arm.tip_link)
    say(f"{len(facts.chain.joints)} joints: " + ", ".join(joint.name for joint in facts.chain.joints))
    remarks = list(facts.remarks)
    bare = uncovered_links(facts.chain)
    remarks += [
        f"geometry.{link}: [] is a guess: the link has mass and no collision geometry, and nothing covers it unless "
        "another link's shapes do; give its hulls, or plans may hit with it"
        for link in bare
    ]
    geometry = fit_meshes(facts.chain, arm.package_dirs, say) | dict.fromkeys(bare, ())
    draft = Draft(name, urdf_for(out, urdf, facts.urdf), facts, geometry)
    model = draft.model()
    _check_links(model, str(facts.urdf))
    if out_of_arm(model.flange) < 0.0:
        remarks.append(f"payload.envelope: z of {facts.tool_frame} points into the arm: payloads are held along -z")
    draft = replace(draft, pairs=stated_pairs(model, arm.allowed_pairs, arm.srdf))
    payload_kg = arm.payload_kg
    if payload_kg is None:
        payload_kg = payload_capacity(model)
        remarks.append(f"payload: {payload_kg:g} kg is a guess from the torque limits (--payload-kg)")
    if arm.simulated_drives or arm.drives is not None:
        measured = None
        if arm.drives is not None:
            declared = load_robot(arm.drives)
            declared.require_known_drives("--drives")
            if declared.joint_names != model.joint_names:
                raise ConfigError(str(arm.drives), "joints", list(declared.joint_names), ", ".join(model.joint_names))
            measured = drives_of(declared, arm.drives.name)
        found, more = _decide(draft, payload_kg, measured, arm.payload_kg is not None, say)
    else:
        found, more = _identify_only(draft, payload_kg, arm.gear_ratios or {}, say)
    remarks += more
    model = found.model()
    text = configuration_text(found.data(), _sentences(found, model), remarks, found.sliding)
    if yaml.safe_load(text) != found.data():
        raise ParameterError("the file's text does not say what was computed: expected the same; please report this")
    write_text(out, text)
    return remarks


def _check_links(model: RobotModel, urdf: str) -> None:
    """Every link that moves must be a body: otherwise there is nothing to simulate, and nothing to identify."""
    for j, name in enumerate(model.joint_names):
        theta = model.theta_nominal[model.layout.link(j)]
        if not theta[0] > 0.0:
            raise ConfigError(
                urdf, f"mass of what joint {name!r} moves", float(theta[0]), "an <inertial> with a mass > 0"
            )
        if not is_consistent(theta):
            c, moments = theta[1:4] / theta[0], theta[[4, 5, 7, 5, 6, 8, 7, 8, 9]].reshape(3, 3)
            about = np.linalg.eigvalsh(moments - theta[0] * (c @ c * np.eye(3) - np.outer(c, c)))
            raise ConfigError(
                urdf,
                f"inertial of what joint {name!r} moves: moments of inertia about its centre",
                [float(f"{value:.4g}") for value in about],
                "those of a solid body: none below 0, none above the sum of the other two",
            )


def _with_payload(draft: Draft, mass: float) -> Draft:
    payload = PayloadGuess.of(mass, out_of_arm(draft.model().flange))
    model = replace(draft, payload=payload).model()
    return replace(draft, payload=payload, prior=prior_of(payload, model.hand_prior, model.flange))


def _decide(
    draft: Draft, payload_kg: float, measured: DriveGuess | None, asked: bool, say: Say
) -> tuple[Draft, list[str]]:
    """The first candidate for which gains exist, home can be held and a plan is certified."""
    why = "none was tried"
    for share, reach in _TRIALS:
        mass = float(f"{share * payload_kg:.2g}") if share < 1.0 else payload_kg
        say(f"payload {mass:g} kg, plans of {reach:g} rad")
        base, remarks = _with_pairs(_with_payload(draft, mass))
        try:
            base = _at_home(base, reach, say)
        except ParameterError as error:
            why = str(error)
            say(f"  {why}")
            continue
        for candidate, words in _candidates(base, reach, measured):
            found, why = _complete(candidate)
            say(f"  {words}: {why or ('gains exist' if draft.sliding else 'a plan is certified')}")
            if found is None:
                continue
            if share < 1.0 and asked:
                raise ParameterError(
                    f"payload {payload_kg:g} kg: no useful tracking bound; one exists for {mass:g} kg "
                    f"(--payload-kg {mass:g}); measured friction and rotor inertia (--drives), or a narrower prior, "
                    "may do; without either option the file serves identification of any payload"
                )
            remarks.append(words + (": the least of what was tried that has a useful tracking bound" * (not measured)))
            if draft.sliding:
                remarks.append(
                    f"sliding joints ({', '.join(draft.sliding)}): model, gains and identification know them, the "
                    "planner does not: no plan was tried"
                )
            if share < 1.0:
                remarks.append(f"payload: {mass:g} kg: no useful tracking bound was found for {payload_kg:g} kg")
            return found, remarks
    raise ParameterError(
        f"no configuration found for payloads from {_TRIALS[-1][0] * payload_kg:.2g} to {payload_kg:g} kg: {why}; "
        "expected a smaller payload (--payload-kg), or higher torque limits; or let the arm's own controller move it: "
        "without drives the file serves identification, and with controller.interface: trajectory and a tube that "
        "`safe-sysid tube` measures certified motions, too (docs/use/trajectory.md)"
    )


def _identify_only(
    draft: Draft, payload_kg: float, gear_ratios: Mapping[str, float], say: Say
) -> tuple[Draft, list[str]]:
    """A file for identification: drives unknown, nothing invented; and what a tracking bound would need."""
    names = [joint.name for joint in draft.facts.chain.joints]
    for name in gear_ratios:
        if name not in names:
            raise ConfigError("--gear-ratio", "joint", name, f"one of {', '.join(names)}")
    ratios = {names.index(name): abs(ratio) for name, ratio in gear_ratios.items()}
    base, remarks = _with_pairs(_with_payload(draft, payload_kg))
    try:
        at_home = _at_home(base, _TRIALS[0][1], say)
        need = _need(at_home)
    except ParameterError as error:
        at_home, need = base, f"no tracking bound: {error}"
        say(f"  {error}")
    drives = unknown_drives(draft.torque, ratios)
    found = replace(at_home, drives=drives, fastest=draft.quickest)
    if at_home.home is None:
        remarks.append("home: the pose nearest to 0 is a guess; it was not found to be clear, or held")
    say("identify only: nothing is known of the drives")
    return found, [f"drives: unknown, IDENTIFY ONLY: {need}", *remarks]


def _need(draft: Draft) -> str:
    """What a tracking bound would need, found by trial."""
    for reach in (0.5, 0.3):
        for candidate, _ in _candidates(draft, reach, None):
            model = candidate.model()
            if find_hypotheses(model, np.asarray(draft.home), candidate.motion, np.asarray(candidate.load)):
                rotors = model.theta_nominal[model.layout.rotor_inertia]
                each = ", ".join(
                    f"{joint.name} {rotor:.3g}" for joint, rotor in zip(draft.facts.chain.joints, rotors, strict=True)
                )
                return (
                    f"a tracking bound at 1 kHz for {draft.payload.mass:g} kg would need rotor inertia of about {each} "
                    "kg m^2, known to 15 %, and Coulomb friction known to 0.5 % of the torque limit (the least of what "
                    f"was tried); {_OTHER_WAY}"
                )
    return (
        f"no tracking bound at 1 kHz for {draft.payload.mass:g} kg even with rotors that weigh "
        f"{_MATCHING[-1]:g} times what the joints move: a narrower prior, or a smaller payload; {_OTHER_WAY}"
    )


def _with_pairs(draft: Draft) -> tuple[Draft, list[str]]:
    """With pairs that are close in every pose allowed, each named with its distance; the payload's are only named."""
    model = draft.model()
    kinds = {body.name: body.kind for body in model.bodies}
    arm, remarks = list(draft.pairs), []
    for pair, distance in never_apart(model).items():
        told = f"{' / '.join(pair)}: {distance:.3f} m at best in 400 poses"
        if "payload" in (kinds[pair[0]], kinds[pair[1]]):
            if distance < 0.0:
                remarks.append(f"payload.envelope hits the arm in every pose: {told}; expected another tool frame")
        else:
            arm.append(pair)
            remarks.append(f"allowed_pairs: {told}, so not checked")
    return replace(draft, pairs=tuple(arm)), remarks


def _at_home(draft: Draft, reach: float, say: Say) -> Draft:
    """With a pose to start from."""
    home = propose_home(draft.model(), 0.6 * reach)
    say("  home: " + ", ".join(f"{value:g}" for value in home))
    return replace(draft, home=home)


def _candidates(draft: Draft, reach: float, measured: DriveGuess | None) -> Iterator[tuple[Draft, str]]:
    """The draft with the drives that were measured, or with heavier and heavier simulated rotors."""
    load = load_inertia(draft.model(), np.asarray(draft.home), 0.6 * reach)
    draft = replace(draft, motion=PlanReach(reach), load=load)
    if measured is not None:
        yield replace(draft, drives=measured), "measured drives"
        return
    for matching in _MATCHING:
        words = f"SIMULATED drives: rotor inertia {matching:g} times the inertia that the joints move"
        yield replace(draft, drives=simulated_drives(draft.torque, load, matching)), words


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
        answer = Planner(model, scene, gains[1]).plan_next(start, model.settings.planner.t_p, model.arm_prior, 0)
    except SafeSysIdError as error:
        return None, str(error)
    if answer.plan is None:
        return None, f"no certified plan: {'; '.join(answer.reasons) or answer.status.value}"
    return draft, ""


def _sentences(draft: Draft, model: RobotModel) -> dict[str, str]:
    """What the file says of this arm."""
    h, drives = draft.hypotheses, draft.drives
    home = np.asarray(draft.data()["home"])
    everywhere, near, links = eigenvalue_bounds(model, home, _CELL)
    bare = "not proved positive" if links <= 0.0 else at_least(links)
    return {
        "source": f"written by `safe-sysid config init` from {draft.facts.urdf.name}",
        "drives": "" if drives is None else drives.words,
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
            "Not looked for: identify only."
            if h is None
            else "Found by computation. Proved tracking error with them: "
            f"{at_most(float(np.max(h.gains.e_bound)))} rad (real time)."
        ),
        "geometry": (
            "Convex hulls of points (link frame, m) inflated by a radius, fitted around the collision "
            "meshes of these links: "
            "each contains its meshes. Links with primitives (box, cylinder, sphere) are covered by themselves; an "
            "empty list says that another link's shapes hold the link, or that there is nothing to hit."
            if draft.geometry
            else "Replaces the URDF's collision geometry of a link by hulls (docs/use/scenes.md); primitives are used."
        ),
        "home": "Where a run starts if the scene says nothing else (rad): clear of itself, held with every payload.",
    }
