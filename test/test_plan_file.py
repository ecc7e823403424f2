"""Plan files: what was certified can be certified again from the file, and nothing better than it can be claimed."""

from __future__ import annotations

import base64
import copy
import functools
import io
import json
import operator
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_planner import at_rest

from safe_sysid.apps.verify.verification import Verification, VerifyStatus
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.errors import SafeSysIdError
from safe_sysid.planning.certification.certificate import FAMILIES, verify_plan
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.plan_files.plan_chain import Proved, box_ground, chain_problem, mixture_problem
from safe_sysid.planning.plan_files.plan_check import PlanChecker, PlanReport
from safe_sysid.planning.plan_files.plan_file import PlanFileError, file_name, read_plan, write_plan
from safe_sysid.robot import ParameterBox, RobotModel, Scene, load_robot, load_scene
from safe_sysid.robot.identity import digest, identity
from safe_sysid.trajectories.plan import Plan

CELLS = 12  # enough for short motions
SHORT = np.array([0.05, -0.08, 0.03, 0.06, -0.1, 0.09, 0.1])  # k of one
Content = dict[str, Any]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return load_scene("six_boxes")


@pytest.fixture(scope="module")
def checker(model: RobotModel, scene: Scene) -> PlanChecker:
    return PlanChecker(model, scene, lockstep=True)


def box_of(model: RobotModel, seq: int = 1) -> ParameterBox:
    """Within the prior: half of its payload, so that there is room to claim more."""
    prior = model.arm_prior
    mid, rad = prior.mid[prior.layout.payload], 0.5 * prior.rad[prior.layout.payload]
    return prior.with_payload(mid - rad, mid + rad, seq)


def plan_from(
    model: RobotModel, state: np.ndarray, k: np.ndarray | float, box: ParameterBox, sequence: int = 0, time: float = 0.0
) -> Plan:
    settings, k = model.settings.planner, k * np.ones(model.n)
    family = TrajectoryFamily(state, np.full(model.n, settings.k_range), settings.t_f)
    return Plan(family.trajectory(k), time, settings.t_p, box.identity, sequence, k)


def written(path: Path, plan: Plan, model: RobotModel, box: ParameterBox, scene: Scene, gains: ControllerGains) -> Path:
    certificate = verify_plan(plan, model, box, scene, gains, intervals=CELLS)
    assert certificate.ok, certificate.status
    return write_plan(path, plan, certificate, model, box, scene, gains, intervals=CELLS)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, model: RobotModel, scene: Scene, gains: ControllerGains) -> Path:
    box = box_of(model)
    plan = plan_from(model, at_rest(scene.start_for(model)), SHORT, box)
    return written(tmp_path_factory.mktemp("plans") / "good.json", plan, model, box, scene, gains)


def forged(good: Path, path: Path, change: Callable[[Content], None]) -> Path:
    """The file with a change, every digest made to fit."""
    content = json.loads(good.read_text())
    change(content)
    for name in ("robot", "scene", "gains"):
        if isinstance(content.get(name), dict):
            part = {key: value for key, value in content[name].items() if key != "sha256"}
            content[name] = {**part, "sha256": digest(part)}
    content["sha256"] = digest({key: value for key, value in content.items() if key != "sha256"})
    path.write_text(json.dumps(content))
    return path


def outcome(checker: PlanChecker, path: Path) -> str:
    """Why it is refused; empty for a PASS."""
    try:
        return checker.check(path).reason or ""
    except PlanFileError as error:
        return str(error)


# -- what is true passes ----------------------------------------------------------------------------------------------


def test_a_plan_comes_back_bit_by_bit_and_is_certified_again(
    good: Path, checker: PlanChecker, model: RobotModel, scene: Scene, gains: ControllerGains
) -> None:
    file, box = read_plan(good), box_of(model)
    plan = plan_from(model, at_rest(scene.start_for(model)), file.plan.k, box)
    certificate = verify_plan(plan, model, box, scene, gains, intervals=CELLS)
    assert np.array_equal(file.plan.trajectory.knots, plan.trajectory.knots)
    assert np.array_equal(file.plan.trajectory.times, plan.trajectory.times)
    assert np.array_equal(file.box.lower, box.lower)
    assert np.array_equal(file.box.upper, box.upper)
    assert np.array_equal(file.directions, certificate.witness)
    report = checker.check(good)
    assert report.passed, report.reason
    for name in FAMILIES:
        claimed, found = file.claims[name].value, report.certificate.families[name].value
        assert claimed <= found <= claimed + 3e-9 * (1.0 + found)
    assert PlanChecker(lockstep=True).check(good).passed, "the packaged robot and scene are those that the file names"


def _modest(content: Content) -> None:
    for claim in content["certificate"]["families"].values():
        claim["smallest"] *= 1.0 - 1e-7


@pytest.mark.parametrize("change", [_modest, lambda content: content.update(witness=None)])
def test_a_claim_may_be_modest_and_the_library_proposes_directions_that_are_not_there(
    change: Callable[[Content], None], good: Path, tmp_path: Path, checker: PlanChecker
) -> None:
    assert outcome(checker, forged(good, tmp_path / "plan.json", change)) == ""


def test_real_time_gains_are_synthesised_for_real_time(tmp_path: Path, model: RobotModel) -> None:
    gains, scene, box = design_gains(model), load_scene("open"), box_of(model)
    q = np.array([0.0, 0.26, 3.1416, -2.27, 0.0, 0.96, 1.5708])
    plan = plan_from(model, at_rest(q), 0.02, box)
    certificate = verify_plan(plan, model, box, scene, gains, intervals=CELLS)
    path = write_plan(tmp_path, plan, certificate, model, box, scene, gains, intervals=CELLS)
    assert path.name == file_name(plan)
    assert read_plan(path).timing == "real-time"
    report = PlanChecker(model, scene).check(path)
    assert report.passed, report.reason
    assert any("real time" in line for line in report.assumed)
    assert "(lock-step)" in outcome(PlanChecker(model, scene, lockstep=True), path)


def test_a_file_does_not_choose_the_timing(
    good: Path, tmp_path: Path, checker: PlanChecker, model: RobotModel, scene: Scene
) -> None:
    """The tube of a plant that waits is narrower than that of an arm with delays."""
    reason = outcome(PlanChecker(model, scene), good)
    assert "gains.timing = 'lock-step'" in reason
    assert "--lockstep" in reason
    assert not PlanChecker().check(good).passed
    assert any("the plant waits for every command (lock-step)" in line for line in checker.check(good).assumed)
    lying = forged(good, tmp_path / "plan.json", _set("gains", "timing", value="real-time"))
    assert "gains: other than" in outcome(PlanChecker(model, scene), lying)
    assert "timing" in outcome(checker, lying)


# -- what is not is refused -------------------------------------------------------------------------------------------


def _set(*keys: Any, value: Any = None, by: float | None = None) -> Callable[[Content], None]:
    """One field is another, or more by so much."""

    def change(content: Content) -> None:
        part: Any = functools.reduce(operator.getitem, keys[:-1], content)
        part[keys[-1]] = value if by is None else part[keys[-1]] + by

    return change


def _repack(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Content], None]:
    def apply(content: Content) -> None:
        part = content["witness"]
        raw = zlib.decompress(base64.b64decode(part["directions"]))
        values = np.frombuffer(raw, "<f8").reshape(len(part["grid"]) - 1, part["pairs"], 3)
        packed = zlib.compress(np.ascontiguousarray(change(values.copy()), "<f8").tobytes())
        part["directions"] = base64.b64encode(packed).decode()

    return apply


def _drop_obstacle(content: Content) -> None:
    content["scene"]["obstacles"].pop("post_middle")


def _into_the_ground(content: Content) -> None:
    """A motion that bows too low, its k made to fit."""
    content["plan"]["knots"][1][0][1] = content["plan"]["knots"][0][0][1] + 0.78
    content["plan"]["k"][1] = 0.78 / 0.785


FORGERIES: dict[str, tuple[Callable[[Content], None], str]] = {
    "schema": (_set("schema", value="safe_sysid/plan/1"), "schema"),
    "no schema": (lambda c: c.pop("schema"), "schema"),
    "unknown field": (_set("comment", value="trust me"), "comment"),
    "missing box": (lambda c: c.pop("box"), "box"),
    "knots": (_into_the_ground, "not certified: clearance"),
    "knots off k": (_set("plan", "knots", 1, 0, 3, by=1e-4), "plan.k"),
    "k": (_set("plan", "k", 2, by=1e-3), "plan.k"),
    "k out of range": (_set("plan", "k", 0, value=2.0), "plan.k"),
    "not at rest at the end": (_set("plan", "knots", 1, 1, 0, value=0.1), "rest"),
    "fast start": (_set("plan", "knots", 0, 1, 0, value=2.0), "plan.k"),
    "times": (_set("plan", "times", value=[0.0, 2.0]), "grid"),
    "times backwards": (_set("plan", "times", value=[0.0, -3.0]), "times"),
    "t_plan": (_set("plan", "t_plan", value=2.0), "t_plan"),
    "t_plan after the end": (_set("plan", "t_plan", value=30.0), "t_plan"),
    "one joint less": (lambda c: [row.pop() for knot in c["plan"]["knots"] for row in knot], "knots"),
    "heavier box": (_set("box", "upper", 60, value=30.0), "not certified"),
    "box upside down": (_set("box", "lower", 60, value=9.0), "lower"),
    "box of another arm": (lambda c: (c["box"]["lower"].pop(), c["box"]["upper"].pop()), "box"),
    "clearance margin": (_set("certificate", "clearance_margin", value=0.0), "clearance_margin"),
    "tube": (_set("gains", "e_bound", 0, value=1e-6), "gains"),
    "damping": (_set("gains", "K_d", 3, value=10.0), "gains"),
    "V_max": (_set("gains", "V_max", value=1e-9), "gains"),
    "timing": (_set("gains", "timing", value="real-time"), "timing"),
    "hold": (_set("gains", "assumptions", "hold_max", value=1e-5), "gains"),
    "no gains": (_set("gains", value={}), "gains"),
    "obstacle removed": (_drop_obstacle, "post_middle"),
    "obstacle moved": (_set("scene", "obstacles", "post_middle", "points", 0, 0, by=0.01), "post_middle"),
    "obstacle shrunk": (_set("scene", "obstacles", "ground", "radius", value=-0.01), "ground"),
    "allowed pair": (lambda c: c["scene"]["allowed_pairs"].append(["payload", "post_middle"]), "allowed_pairs"),
    "torque limit": (_set("robot", "limits", "torque", 0, value=500.0), "torque"),
    "body": (_set("robot", "bodies", "payload", "radius", value=-0.05), "payload"),
    "friction": (_set("robot", "friction_transition_velocity", value=1.0), "friction"),
    "prior": (_set("robot", "prior", "upper", 0, by=-0.01), "prior"),
    "direction upside down": (_repack(np.negative), "recomputed"),
    "directions lost": (_repack(lambda rows: 0.0 * rows), ""),
    "directions not finite": (_repack(lambda rows: rows + np.nan), "finite"),
    "too few directions": (_repack(lambda rows: rows[:, :-1]), "witness"),
    "no compressed numbers": (_set("witness", "directions", value="AAAA"), "witness"),
    "grid stops early": (lambda c: c["witness"]["grid"].__setitem__(-1, 2.9), "grid"),
    "grid backwards": (lambda c: c["witness"]["grid"].__setitem__(2, 0.0), "grid"),
    "unit": (_set("certificate", "families", "torque", "unit", value="kN m"), "unit"),
    "culprit": (_set("certificate", "families", "position", "culprit", value="joint_6"), "position"),
    "culprit that is none": (_set("certificate", "families", "torque", "culprit", value="nobody"), "culprit"),
    "time of the worst": (_set("certificate", "families", "clearance", "time", value=1.1), "clearance"),
    "family left out": (lambda c: c["certificate"]["families"].pop("tracking"), "tracking"),
    "a number beyond floats": (_set("plan", "start_time", value=10**400), "start_time"),
    "another robot's name": (_set("robot", "name", value="kinova_gen4"), "name"),
    "nested robot": (_set("robot", "limits", value=json.loads(401 * "[" + 401 * "]")), "limits"),
    "text for a limit": (_set("robot", "limits", "torque", 0, value="56.7"), "torque"),
    "truth for a limit": (_set("robot", "limits", "torque", 0, value=True), "torque"),
    "family made up": (
        lambda c: c["certificate"]["families"].update(safety=c["certificate"]["families"]["torque"]),
        "safety",
    ),
    "margin that is no number": (_set("certificate", "families", "torque", "smallest", value="1e9"), "smallest"),
} | {
    f"better {name}": ((lambda n: lambda c: c["certificate"]["families"][n].update(
        smallest=c["certificate"]["families"][n]["smallest"] * (1 + 1e-5) + 1e-7
    ))(name), f"families.{name}.smallest")
    for name in FAMILIES
} | {
    f"unconstrained {name}": (
        _set("certificate", "families", name, "smallest", value=None), f"families.{name}.smallest"
    )
    for name in FAMILIES
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGERIES)
def test_forgeries_are_refused(kind: str, good: Path, tmp_path: Path, checker: PlanChecker) -> None:
    change, word = FORGERIES[kind]
    reason = outcome(checker, forged(good, tmp_path / "plan.json", change))
    assert reason
    assert word in reason


def test_a_change_without_new_digests_is_noticed(good: Path, tmp_path: Path, checker: PlanChecker) -> None:
    content = json.loads(good.read_text())
    for section in ("robot", "scene", "gains"):
        changed = copy.deepcopy(content)
        changed[section]["sha256"] = "0" * 64
        (tmp_path / "plan.json").write_text(json.dumps(changed))
        assert "sha256" in outcome(checker, tmp_path / "plan.json")
    content["plan"]["start_time"] = 1.0  # harmless, but changed
    (tmp_path / "plan.json").write_text(json.dumps(content))
    assert "sha256" in outcome(checker, tmp_path / "plan.json")


def test_flipped_bits_are_noticed(good: Path, tmp_path: Path) -> None:
    """One bit anywhere: the file cannot be read, or it says the same (an E for an e, a zero's sign)."""
    data, rng = good.read_bytes(), np.random.default_rng(7)
    before, path = json.loads(data), tmp_path / "plan.json"
    for _ in range(150):
        i, bit = int(rng.integers(len(data))), int(rng.integers(8))
        path.write_bytes(data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :])
        try:
            read_plan(path)
        except PlanFileError:
            continue
        assert json.loads(path.read_bytes()) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '{"schema": NaN}',
        '{"schema": 1e999}',
        '{"schema": "safe_sysid/plan/2", "schema": "safe_sysid/plan/2"}',
        "[" * 100_000,
        '{"schema": "safe_sysid/plan/2", "robot": ' + "[" * 900 + "]" * 900 + "}",
        '{"schema": "safe_sysid/plan/2"}',
        '{"schema": ' + "9" * 5000 + "}",
        "\xff\xfe",
    ],
)
def test_what_is_no_plan_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PlanFileError, match=r"plan\.json"):
        read_plan(path)


def test_truncated_and_missing_files(good: Path, tmp_path: Path) -> None:
    data, path = good.read_bytes(), tmp_path / "plan.json"
    for share in (0.1, 0.5, 0.99):
        path.write_bytes(data[: int(share * len(data))])
        with pytest.raises(PlanFileError):
            read_plan(path)
    for missing in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(PlanFileError, match="cannot be read"):
            read_plan(missing)


def test_a_bomb_is_not_unpacked(good: Path, tmp_path: Path, checker: PlanChecker) -> None:
    bomb = base64.b64encode(zlib.compress(b"\0" * (100 << 20), 9)).decode()
    change = _set("witness", "directions", value=bomb)
    assert "witness" in outcome(checker, forged(good, tmp_path / "plan.json", change))


def test_another_robot_is_not_checked(good: Path, scene: Scene) -> None:
    heavier = load_robot("kinova_gen3", **{"actuator.torque_abs": 0.05, "planner.clearance_margin": 0.004})
    reason = outcome(PlanChecker(heavier, scene, lockstep=True), good)
    assert "gains" in reason  # bodies and limits are the same, its controller is not
    other = load_robot("kinova_gen3", **{"uncertainty.relative": 0.06})
    with pytest.raises(PlanFileError, match="another robot"):
        PlanChecker(other, scene).check(good)


def test_only_packaged_names_are_looked_up(good: Path, tmp_path: Path) -> None:
    for section in ("robot", "scene"):
        path = forged(good, tmp_path / "plan.json", _set(section, "name", value="../elsewhere.yaml"))
        with pytest.raises(PlanFileError, match=f"--{section}"):
            PlanChecker().check(path)
    with pytest.raises(SafeSysIdError, match="atlantis"):
        PlanChecker().check(forged(good, tmp_path / "plan.json", _set("scene", "name", value="atlantis")))


def test_a_stated_scene_is_believed_only_if_asked_for(good: Path, tmp_path: Path, model: RobotModel) -> None:
    path = forged(good, tmp_path / "plan.json", _drop_obstacle)
    assert "post_middle" in outcome(PlanChecker(model, lockstep=True), path)
    believing = PlanChecker(model, stated=True, lockstep=True)
    report = believing.check(good)
    assert report.passed
    assert any("as the file itself states" in line for line in report.assumed)
    assert "ground" in outcome(believing, forged(good, path, _set("scene", "obstacles", "ground", "points", value=[])))


# -- what must not be written -----------------------------------------------------------------------------------------


def test_only_certified_plans_are_written(
    tmp_path: Path, model: RobotModel, scene: Scene, gains: ControllerGains
) -> None:
    box, start = box_of(model), at_rest(scene.start_for(model))
    bad = plan_from(model, start, -1.0, box)
    certificate = verify_plan(bad, model, box, scene, gains, intervals=CELLS)
    assert not certificate.ok
    with pytest.raises(PlanFileError, match="not certified"):
        write_plan(tmp_path, bad, certificate, model, box, scene, gains)
    fine = plan_from(model, start, 0.0, box)
    certificate = verify_plan(fine, model, box, scene, gains, intervals=CELLS)
    with pytest.raises(PlanFileError, match="0:2"):
        write_plan(tmp_path, fine, certificate, model, box_of(model, 2), scene, gains)
    assert list(tmp_path.iterdir()) == []


# -- plans of a run ---------------------------------------------------------------------------------------------------


def test_motions_of_a_run_hand_over_to_each_other(
    tmp_path: Path, model: RobotModel, scene: Scene, gains: ControllerGains, checker: PlanChecker
) -> None:
    box = box_of(model)
    first = plan_from(model, at_rest(scene.start_for(model)), 0.03, box)
    state = first.trajectory.state(first.t_plan)[:3]
    second = plan_from(model, state, 0.01, box, 1, first.hand_over_time)
    paths = [written(tmp_path / file_name(p), p, model, box, scene, gains) for p in (first, second)]
    reports = [checker.check(path) for path in paths]
    assert [r.reason for r in reports] == [None, None]
    wrong, assumed = chain_problem(reports)
    assert wrong is None
    assert assumed[0].startswith("the arm holds still")
    assert "plan_00000.json" in assumed[0]
    assert "plan_00001.json" in (chain_problem(reports[1:])[0] or ""), "the first one is gone"
    late = checker.check(forged(paths[1], tmp_path / "late.json", _set("plan", "start_time", by=0.01)))
    assert late.passed
    assert "hand-over" in (chain_problem([reports[0], late])[0] or "")
    twice = checker.check(forged(paths[1], tmp_path / "twice.json", _set("plan", "sequence", value=0)))
    assert "sequence" in (chain_problem([reports[0], twice])[0] or "")


def chain(*plans: Plan, alone: bool = False) -> tuple[str, list[str]]:
    """As if proved: what plans say together does not depend on margins."""
    files = [SimpleNamespace(path=Path(file_name(plan)), plan=plan) for plan in plans]
    wrong, assumed = chain_problem([PlanReport(file.path, None, file) for file in files], alone=alone)  # type: ignore[arg-type]
    return wrong or "", assumed


@pytest.fixture(scope="module")
def plan_for(model: RobotModel) -> Callable[..., Plan]:
    """From a state (or at rest at angles), with its number and its time."""
    return lambda state, *when: plan_from(
        model, at_rest(state) if state.ndim == 1 else state, 0.05, box_of(model), *when
    )


@pytest.fixture(scope="module")
def first(plan_for: Callable[..., Plan], model: RobotModel, scene: Scene) -> Plan:
    return plan_for(scene.start_for(model))


def test_every_plan_of_a_run_begins_where_an_earlier_one_leaves_the_arm(first: Plan, plan_for: Callable) -> None:
    end = first.trajectory.knots[-1, 0]
    elsewhere = first.trajectory.knots[0, 0] + 2.5 * np.eye(len(end))[0]
    assert chain(first, plan_for(end, 1, first.end_time + 1.0))[0] == ""
    for q, time, words in (
        (elsewhere, first.end_time + 1.0, "the arm cannot jump"),
        (elsewhere, first.hand_over_time, "it is still moving"),
        (end, first.end_time - 0.01, "it is not there yet"),
        (end + 1e-8, first.end_time + 1.0, "nearly is not there"),
    ):
        assert "begins at rest" in chain(first, plan_for(q, 1, time))[0], words
    assert "plan_00000.json" in chain(plan_for(end, 0, 5.0), plan_for(elsewhere, 1, 1.0))[0], "time orders them"


def test_a_plan_that_nothing_follows_from_is_said_not_to_be_driven(
    first: Plan, model: RobotModel, plan_for: Callable
) -> None:
    """A controller refuses a plan that comes too late; the arm then brakes along the one before."""
    late = plan_for(first.trajectory.state(first.t_plan)[:3], 1, first.hand_over_time)
    after = plan_for(first.trajectory.knots[-1, 0], 2, first.end_time + 0.1)
    again = plan_from(model, first.trajectory.knots[0], -0.05, box_of(model), 3, 0.5)
    for plans, left_out in (((after, late, first), "plan_00001.json"), ((first, again), "plan_00000.json")):
        wrong, assumed = chain(*plans)
        assert wrong == ""
        assert any("not driven" in line and left_out in line for line in assumed)


def test_a_plan_out_of_its_run_may_begin_in_motion_but_that_is_said(first: Plan, plan_for: Callable) -> None:
    state = first.trajectory.state(first.t_plan)[:3]
    moving = plan_for(state, 1, first.hand_over_time)
    assert "begins in motion at 1.500000 s" in chain(moving)[0]
    wrong, assumed = chain(moving, alone=True)
    assert wrong == ""
    for word in ("BEGINS IN MOTION", "1.500000 s", *(f"{x:.4g}" for x in state[:2].ravel())):
        assert word in assumed[0]


def test_plans_of_a_run_are_of_one_robot_scene_and_timing(good: Path, tmp_path: Path) -> None:
    def other(section: str, *keys: Any, value: Any) -> PlanReport:
        return PlanReport(good, None, read_plan(forged(good, tmp_path / "o.json", _set(section, *keys, value=value))))

    mine = PlanReport(good, None, read_plan(good))
    assert mixture_problem([mine, mine, mine]) is None
    for section, word, keys, value in (
        ("scene", "scene", ("name",), "open"),
        ("scene", "scene", ("allowed_pairs",), []),
        ("robot", "robot", ("name",), "other"),
        ("robot", "robot", ("limits", "torque", 0), 500.0),
        ("gains", "timing", ("timing",), "real-time"),
    ):
        wrong = mixture_problem([mine, mine, other(section, *keys, value=value)]) or ""
        assert f"another {word} than good.json" in wrong


def test_a_box_needs_bounds_that_are_proved(good: Path, checker: PlanChecker, model: RobotModel) -> None:
    """And proved of this robot: the same arm under other assumptions is another one."""
    report, box = checker.check(good), box_of(model)
    known = Proved(box.payload_lower, box.payload_upper, digest(identity(model, "bounds")))
    wider = replace(known, upper=np.nextafter(known.upper, [np.inf, *known.upper[1:]]))
    other = load_robot("kinova_gen3", **{"measurement.torque_abs": 0.01})
    foreign = replace(known, robot=digest(identity(other, "bounds")))
    elsewhere = "0:9 of another run"
    for own, others, verdict, words in (
        ({}, {}, (False, False), "no certificate"),
        ({"0:1": known}, {}, (True, False), "proved"),
        ({"0:1": wider}, {}, (False, True), "0:1"),
        ({}, {elsewhere: known}, (True, False), elsewhere),
        ({}, {elsewhere: wider}, (False, False), "no certificate"),
        ({"0:1": foreign}, {}, (False, True), "another robot than the plan"),
        ({}, {elsewhere: foreign}, (False, False), ""),
    ):
        ground = box_ground(report, model, own, others)
        assert (ground.proved, ground.wrong) == verdict, words
        assert words in ground.text


def test_box_zero_is_the_prior(
    good: Path, tmp_path: Path, checker: PlanChecker, model: RobotModel, scene: Scene, gains: ControllerGains
) -> None:
    """A point that is called 0:0 would be taken by a controller, to which 0:0 is the prior."""

    def point(content: Content) -> None:
        box = content["box"]
        box["lower"] = box["upper"] = (0.5 * (np.array(box["lower"]) + np.array(box["upper"]))).tolist()
        box["seq"] = 0

    for change in (_set("box", "seq", value=0), point):
        reason = outcome(checker, forged(good, tmp_path / "plan.json", change))
        assert "0:0 is the robot's prior by its number" in reason
    box = box_of(model, 0)
    plan = plan_from(model, at_rest(scene.start_for(model)), 0.0, box)
    certificate = verify_plan(plan, model, box, scene, gains, intervals=CELLS)
    assert certificate.ok
    with pytest.raises(PlanFileError, match="robot's prior by its number"):
        write_plan(tmp_path, plan, certificate, model, box, scene, gains)


def test_conditions_are_no_pass(good: Path, tmp_path: Path) -> None:
    """A box without certificates, or a scene that only the plan names: another word, another exit status."""
    shutil.copy(good, tmp_path / "plan_00000.json")

    def verified(*names: Path, **options: Any) -> tuple[VerifyStatus, str]:
        text = io.StringIO()
        console = Console(file=text, width=10_000)
        return Verification(console, lockstep=True, quiet=True, **options).check(names), text.getvalue()

    answer, text = verified(tmp_path, scene="six_boxes")
    assert answer is VerifyStatus.CONDITIONAL
    assert int(answer) == 3
    assert "PASS" not in text
    assert "CONDITIONAL: 1 plan of kinova_gen3" in text
    assert "if the true parameters lie in box 0:1: no certificate of these bounds" in text
    assert "what stands around the arm" not in text
    answer, text = verified(good)
    assert answer is VerifyStatus.CONDITIONAL
    assert "what stands around the arm is scene six_boxes, which the plans name themselves" in text
    assert verified(good, scene="open")[0] is VerifyStatus.FAIL


def test_a_check_leaves_room_for_the_feed_forward_of_the_robot_it_trusts(
    tmp_path: Path, scene: Scene, good: Path
) -> None:
    """The file says the room, the verdict names it; a robot with a feed-forward believes no plan made without one."""
    bound = 0.25
    roomy = load_robot("kinova_gen3", **{"controller.feed_forward.bound": bound})
    gains, box = design_gains(roomy, lockstep=True), box_of(roomy)
    plan = plan_from(roomy, at_rest(scene.start_for(roomy)), SHORT, box)
    path = written(tmp_path / "roomy.json", plan, roomy, box, scene, gains)
    report = PlanChecker(roomy, scene, lockstep=True).check(path)
    assert report.passed, report.reason
    assert "a feed-forward adds at most 0.25 N m to the law's torque" in report.assumed
    assert json.loads(path.read_text())["gains"]["assumptions"]["feed_forward"] == [bound] * 7
    assert "feed_forward" not in json.loads(good.read_text())["gains"]["assumptions"]
    assert "gains" in outcome(PlanChecker(roomy, scene, lockstep=True), good)
    without = verify_plan(plan, roomy, box, scene, design_gains(load_robot("kinova_gen3"), lockstep=True))
    lost = np.min(without.margins["torque"], axis=0) - np.min(report.certificate.margins["torque"], axis=0)
    assert np.all(lost >= bound)


def test_a_plan_for_one_law_is_none_for_another(
    tmp_path: Path, model: RobotModel, scene: Scene, gains: ControllerGains, good: Path, checker: PlanChecker
) -> None:
    """The file says which, unless it is the robust one; a verdict says if the law does not prove tracking."""
    assert "law" not in json.loads(good.read_text())["gains"]
    assert not any("does not prove" in line for line in checker.check(good).assumed)
    stiff, box = load_robot("kinova_gen3", **{"controller.law": "impedance"}), box_of(model)
    plan = plan_from(model, at_rest(scene.start_for(model)), 0.02, box)
    path = written(tmp_path / "stiff.json", plan, stiff, box, scene, gains)
    report = PlanChecker(stiff, scene, lockstep=True).check(path)
    assert report.passed, report.reason
    assert any(line.endswith("though its law, impedance, does not prove that") for line in report.assumed)
    assert "gains.law" not in outcome(PlanChecker(stiff, scene, lockstep=True), path)
    assert "gains: other than" in outcome(checker, path)
    assert "gains: other than" in outcome(PlanChecker(stiff, scene, lockstep=True), good)
    other = {"controller.law": "impedance", "controller.laws.impedance.damping_ratio": 0.7}
    softer = PlanChecker(load_robot("kinova_gen3", **other), scene, lockstep=True)
    assert "law.settings.damping_ratio" in outcome(softer, path)
