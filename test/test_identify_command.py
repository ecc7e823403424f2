"""`safe-sysid identify` from file to verdict: the truth inside, contradictions noticed, every file usable."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import recording_support as small
import yaml
from log_support import (
    JOINTS,
    csv_columns,
    measured,
    robot,
    run_identify,
    true_log,
    without_pictures,
    write_bag,
    write_csv,
)
from scipy.optimize import linprog

from safe_sysid.cli import main
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import read_log, write_log
from safe_sysid.logs.bounds_file import bounds_box, read_bounds, write_bounds
from safe_sysid.logs.run import LogRun, run_log
from safe_sysid.report.identification.output import write_all
from safe_sysid.report.identification.result import IdentificationResult, PayloadAlone, payload_alone
from safe_sysid.report.identification.urdf import payload_urdf
from safe_sysid.robot.parameters import inertia_from_com, is_consistent, transform_inertial
from safe_sysid.simulation.payloads import dumbbell


def piece(scale=1.0):
    """Half of the run."""
    return measured(scale)[:1501]


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def identified(tmp_path_factory):
    """One identification from our own format: (folder, result, what the identifier held at the end)."""
    folder, runs = tmp_path_factory.mktemp("identify"), []

    def noted(*arguments, **options):
        runs.append(run_log(*arguments, **options))
        return runs[-1]

    write_log(folder / "log.npz", JOINTS, piece())
    options = ["--update", "0.75", "--quiet", "--json", folder / "copy.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safe_sysid.apps.identify.methods.run_log", noted)
        assert run_identify(folder / "log.npz", "--out", folder / "out", *options, pictures=True) == 0
    return folder, result_of(folder / "out"), runs[0].identifier


@pytest.fixture(scope="module")
def done(identified):
    """(folder, result) of that identification."""
    return identified[:2]


def write_small(path, log=None):
    """A log of an arm of three joints, which is identified in a third of the time."""
    write_log(path, small.robot().joint_names, small.measured() if log is None else log)
    return path


def identify_small(log, out, *options):
    """(exit status, what result.json says) for a log of that arm."""
    return run_identify(log, "--robot", small.ROBOT, "--out", out, "--quiet", *options), result_of(out)


def test_the_last_samples_have_a_proof_though_they_tell_next_to_nothing(tmp_path, monkeypatch):
    """What is worth no update is in the log all the same: whoever verifies must see that it contradicts nothing."""
    monkeypatch.setattr("safe_sysid.identification.identifier._LEAST", 0.9)
    log, out = write_small(tmp_path / "log.npz", small.measured()[:1101]), tmp_path / "out"
    assert identify_small(log, out, "--update", "0.3")[0] == 0
    samples = [json.loads(f.read_text())["log"]["samples"] for f in sorted(out.glob("certificate_*.json"))]
    assert len(samples) < 4  # one of the four updates at least taught less than that
    assert samples[-1] == 1101
    assert main(["verify", str(out)]) == 0


def holds(result, payload):
    return all(p["lower"] <= x <= p["upper"] for p, x in zip(result["parameters"], payload, strict=True))


def holds_small(result):
    return holds(result, small.truth()[small.robot().layout.payload])


def test_truth_is_inside_after_every_update_and_intervals_shrink(done):
    _, result = done
    theta, _ = true_log()
    last = (np.full(10, -np.inf), np.full(10, np.inf))
    assert len(result["updates"]) == 2
    for update in result["updates"]:
        low, high = np.array(update["lower"]), np.array(update["upper"])
        assert np.all((low <= theta[60:70]) & (theta[60:70] <= high))
        assert np.all((last[0] <= low) & (high <= last[1]))
        assert np.all((low <= update["nominal"]) & (update["nominal"] <= high))
        last = low, high
    assert holds(result, theta[60:70])
    mass = result["parameters"][0]
    assert mass["upper"] - mass["lower"] < 0.2 * (mass["prior_upper"] - mass["prior_lower"])
    assert result["status"] == "ok"
    assert result["guaranteed"]
    assert result["findings"] == []


def test_the_verdict_says_how_little_a_short_log_tests(identified):
    """Definition: the largest |residual| over half width at the parameters of the prior that make it least."""
    folder, result, identifier = identified
    assert 0.0 < result["errors_used"] < 1.0
    verdict = re.search(r'class="verdict ">([^<]*)<', (folder / "out" / "report.html").read_text()).group(1)
    assert re.search(r"guaranteed as far as tested: 1.5 s, 2 updates, [0-9.]+ % of the declared errors used", verdict)
    # By another solver, from the definition: least s with |A x - t| <= s w for some x of the prior.
    model = robot()
    rows, box = identifier.rows, sensor_prior(model.arm_prior, MeasurementErrors.from_model(model))
    matrix, right = (rows.matrix * box.rad / rows.slack[:, None], (rows.target - rows.matrix @ box.mid) / rows.slack)
    sides = np.hstack([np.vstack([matrix, -matrix]), -np.ones((2 * len(rows), 1))])
    cost, sizes = np.append(np.zeros(box.size), 1.0), [(-1.0, 1.0)] * box.size + [(0.0, None)]
    least = linprog(cost, sides, np.concatenate([right, -right]), bounds=sizes)
    assert result["errors_used"] == pytest.approx(least.fun, rel=1e-3)


def test_the_payload_alone_holds_the_dumbbell_in_the_tool_frame(done):
    folder, result = done
    alone = result["payload"]
    truth = dumbbell(8).theta
    assert alone["frame"] == robot().settings.tool_frame
    assert np.all((np.array(alone["lower"]) <= truth) & (truth <= np.array(alone["upper"])))
    link = ET.parse(folder / "out" / "payload.urdf").getroot().find("link/inertial")
    assert float(link.find("mass").get("value")) == pytest.approx(alone["nominal"][0], rel=1e-6)
    assert is_consistent(alone["nominal"], 1e-9)


def test_bounds_file_reads_back_and_fits_only_its_arm(done, tmp_path):
    folder, result = done
    model = robot()
    bounds = read_bounds(folder / "out" / "bounds.yaml")
    assert [p["lower"] for p in result["parameters"]] == bounds.lower.tolist()
    box = bounds_box(bounds, model, "file")
    assert box.is_inside(model.arm_prior)
    assert box.contains(true_log()[0])
    write_bounds(tmp_path / "b.yaml", bounds)
    assert np.array_equal(read_bounds(tmp_path / "b.yaml").upper, bounds.upper)
    data = yaml.safe_load((folder / "out" / "bounds.yaml").read_text())
    of_all = data["bounds"]
    for change, expected in (
        ({"robot": "other"}, "robot = 'other'"),
        ({"identity": "0" * 64}, "identity"),
        ({"assumed": {**data["assumed"], "gravity": [0.0, 0.0, 9.81]}}, "assumed.gravity"),
        ({"guaranteed": False}, "guaranteed = False"),
        ({"schema": 1}, "schema"),
        ({"joint": "elbow"}, "robot"),
        ({"bounds": of_all | {"m": of_all["m"] | {"lower": 6.0}}}, "lower <= nominal <= upper"),
        ({"bounds": of_all | {"m": {"unit": "kg", "lower": 6.0, "nominal": 6.5, "upper": 7.0}}}, "meets the prior"),
        ({"bounds": of_all | {"m": of_all["m"] | {"unit": "lb"}}}, "unit kg"),
        ({"bounds": {k: v for k, v in of_all.items() if k != "Ixx"}}, "the ten parameters"),
    ):
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({**data, **change}, sort_keys=False))
        with pytest.raises(ConfigError, match=re.escape(expected)):
            bounds_box(read_bounds(tmp_path / "c.yaml"), model, "c.yaml")


def test_certificates_name_the_log_that_lies_beside_them_and_pass_verification(done):
    folder, result = done
    assert main(["verify", str(folder / "out")]) == 0
    log = read_log(folder / "out" / "log.npz")
    assert result["log"]["sha256"] == log_digest(log.joint_names, log.measurements)
    names = sorted(path.name for path in (folder / "out").glob("certificate_*.json"))
    assert len(names) == 2
    assert result["certificate"] == names[-1]
    last = json.loads((folder / "out" / names[-1]).read_text())
    assert last["log"] == {"sha256": result["log"]["sha256"], "samples": result["log"]["samples"]}
    assert [b["lower"] for b in last["bounds"]] == [p["lower"] for p in result["parameters"]]


def test_the_report_needs_nothing_else_and_says_what_is_not_guaranteed(done):
    folder, result = done
    text = (folder / "out" / "report.html").read_text()
    assert 'name="viewport"' in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert text.count("data:image/png;base64,") == 2
    assert (text.count("<svg "), text.count('class="chart"')) == (10, 1)  # ten intervals, and how they narrow
    for name in PAYLOAD_NAMES:
        assert f"<td>{name}</td>" in text
    assert "Not guaranteed" in text
    assert json.loads((folder / "copy.json").read_text()) == result


def test_other_formats_give_the_same_intervals(tmp_path):
    m, names, order = small.measured(), small.robot().joint_names, np.random.default_rng(5).permutation(3)
    write_csv(tmp_path / "log.csv", m.stamps, csv_columns(m, lambda w, j, i: f"{j}/{w}", order, names))
    bag = write_bag(tmp_path / "bag", m, ["finger", *[names[i] for i in order]], [-1, *order])
    own = identify_small(write_small(tmp_path / "log.npz"), tmp_path / "own")[1]
    for path in (tmp_path / "log.csv", bag):
        status, other = identify_small(path, tmp_path / f"of_{path.stem}")
        assert status == 0
        for a, b in zip(own["parameters"], other["parameters"], strict=True):
            # The stamps of a bag are whole nanoseconds, and programs stop at 1 %: the same intervals, not digits.
            assert a["lower"] == pytest.approx(b["lower"], abs=0.01 * (a["prior_upper"] - a["prior_lower"])), path
        assert holds_small(other)


def test_noise_beyond_the_declared_bounds_is_a_contradiction(tmp_path, capsys):
    log, out = write_small(tmp_path / "log.npz", small.measured(3.0)), tmp_path / "out"
    out.mkdir()
    (out / "bounds.yaml").write_text("left over from another log")
    status, result = identify_small(log, out)
    assert status == 1
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1].startswith("CONTRADICTION")
    assert result["status"] == "empty_set"
    assert not result["guaranteed"]
    assert any(name in result["message"] for name in small.robot().joint_names)
    assert not (out / "bounds.yaml").exists()
    assert "Nothing: the data contradict" in (out / "report.html").read_text()
    m = small.robot().settings.measurement
    status, result = identify_small(log, out, "--torque-noise", f"{3 * m.torque_abs},{3 * m.torque_rel}")
    assert status == 0
    assert holds_small(result)


def test_a_log_with_errors_is_refused_unless_forced(tmp_path, capsys):
    m = piece()[:751]
    write_log(tmp_path / "ms.npz", JOINTS, replace(m, stamps=1e3 * m.stamps))
    assert run_identify(tmp_path / "ms.npz", "--out", tmp_path / "out") == 2
    assert "error: 1 error in " in capsys.readouterr().err
    write_log(tmp_path / "log.npz", JOINTS, replace(m, effort=-m.effort))
    assert run_identify(tmp_path / "log.npz", "--out", tmp_path / "out") == 2
    assert "opposite sign" in capsys.readouterr().err
    assert not (tmp_path / "out" / "bounds.yaml").exists()
    assert run_identify(tmp_path / "log.npz", "--out", tmp_path / "out", "--force", "--quiet", "--to", "0.5") == 1


def test_forced_intervals_are_not_called_guaranteed(tmp_path):
    m = piece()[:600]
    # Efforts one sample late; noise is declared so large that the equations hold all the same.
    write_log(tmp_path / "log.npz", JOINTS, Measurements(m.stamps[1:], m.q[1:], m.qd[1:], m.effort[:-1]))
    options = ["--force", "--quiet", "--torque-noise", "3,0.1", "--method", "lp"]
    run_identify(tmp_path / "log.npz", "--out", tmp_path / "out", *options)
    result = result_of(tmp_path / "out")
    assert result["status"] == "ok"
    assert not result["guaranteed"]
    assert not read_bounds(tmp_path / "out" / "bounds.yaml").guaranteed
    assert "Nothing that you should build on" in (tmp_path / "out" / "report.html").read_text()


def test_parts_filters_and_other_methods(tmp_path):
    log, out = write_small(tmp_path / "log.npz"), tmp_path / "out"
    status, result = identify_small(log, out, "--from", "0.5", "--to", "1.25", "--update", "0.25", "--method", "lp")
    assert status == 0
    assert (result["log"]["start_s"], result["log"]["end_s"]) == pytest.approx((0.5, 1.25))
    assert len(result["updates"]) == 3
    assert holds_small(result)
    status, result = identify_small(log, out, "--to", "0.75", "--filter", "100")
    assert status in (0, 1)  # whatever comes out, it claims nothing
    assert not result["guaranteed"]
    status, result = identify_small(log, out, "--to", "0.75", "--method", "sensitivity")
    assert status == 0
    assert not result["guaranteed"]
    assert result["certificate"] is None
    assert not read_bounds(out / "bounds.yaml").guaranteed


def test_a_box_around_the_payload_tightens(done, tmp_path):
    folder, result = done
    options = ["--payload-box", "0.085,0.21,0.085,0,0,0.14", "--update", "1.5", "--quiet", "--out", tmp_path / "out"]
    assert run_identify(folder / "log.npz", *options) == 0
    boxed = result_of(tmp_path / "out")
    assert holds(boxed, true_log()[0][60:70])
    width = [sum(p["upper"] - p["lower"] for p in r["parameters"][4:]) for r in (boxed, result)]
    assert width[0] < 0.95 * width[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--payload-box", "1,2"], "lx,ly,lz,cx,cy,cz"),
        (["--payload-box", "0.1,-0.1,0.1,0,0,0"], "payload.box"),
        (["--density", "500,8000"], "--density: value = '500,8000': expected --payload-box too"),
        (["--density", "a"], "expected two numbers"),
        (["--torque-noise", "0.1,1.5"], "torque_rel"),
        (["--from", "3", "--to", "2"], "expected from < to"),
        (["--from", "100"], "no sample from 100"),
        (["--column", "joint_1.position=a"], "for tables"),
        (["--column", "nonsense"], "expected JOINT.position=COLUMN"),
        (["--robot", "nobody"], "nobody"),
        (["--update", "0"], "expected a number > 0"),
        (["--method", "magic"], "invalid choice"),
        (["--filter", "900"], "expected a frequency"),
        (["--map", "none.yaml"], "none.yaml"),
    ],
)
def test_wrong_options_are_one_line_and_status_two(done, tmp_path, capsys, options, expected):
    folder, _ = done
    capsys.readouterr()
    assert run_identify(folder / "log.npz", "--out", tmp_path / "out", *options) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert expected in error[0]


def test_no_motion_is_little_information_but_no_failure(tmp_path):
    m, model, theta = measured(), robot(), true_log()[0]
    held = dynamics_of(model.kinematics).gravity(theta, m.q[0])
    still = Measurements(m.stamps[:1000], *(np.tile(x, (1000, 1)) for x in (m.q[0], 0 * m.q[0], held)))
    write_log(tmp_path / "log.npz", JOINTS, still)
    assert run_identify(tmp_path / "log.npz", "--out", tmp_path / "out", "--quiet") == 0
    found = result_of(tmp_path / "out")["payload"]
    assert found["lower"][0] + 0.2 < dumbbell(8).theta[0] < found["upper"][0] - 0.2, "gravity tells something, not much"
    gap = Measurements(m.stamps[::2][:40], m.q[:40], m.qd[:40], m.effort[:40])
    write_log(tmp_path / "gap.npz", JOINTS, gap)
    assert run_identify(tmp_path / "gap.npz", "--out", tmp_path / "out", "--quiet", "--force") == 2
    assert not (tmp_path / "out" / "bounds.yaml").exists()


def held(rng, payload, most):
    """What is said of a payload in a random hand whose intervals are up to ``most`` wide on either side."""
    model = robot()
    hand = np.where(rng.random(10) < 0.5, *model.hand_prior)
    theta_e, pad = hand + transform_inertial(*model.flange, payload), rng.uniform(0.0, most, (2, 10))
    alone = payload_alone(model, theta_e - pad[0], theta_e, theta_e + pad[1])
    lower, nominal, upper = (np.array(x) for x in (alone.lower, alone.nominal, alone.upper))
    assert np.all((lower <= payload) & (payload <= upper))
    assert np.all((lower <= nominal) & (nominal <= upper))
    return alone, nominal


def test_intervals_of_the_payload_alone_hold_it_for_random_hands():
    rng = np.random.default_rng(0)
    for _ in range(60):
        alone, nominal = held(rng, rng.normal(size=10), 0.1)
        # Numbers at random are no body, so intervals about them need not hold one: then that is said.
        assert is_consistent(nominal, 1e-9) or not alone.possible


def test_the_estimate_of_the_payload_alone_is_a_body_inside_its_intervals():
    """The nearest possible body, by its eigenvalues alone, weighed more than the interval of the mass allowed."""
    rng, moved = np.random.default_rng(5), 0
    for _ in range(60):
        mass, centre = rng.uniform(0.02, 3.0), rng.uniform(-0.1, 0.1, 3)
        payload = inertia_from_com(mass, centre, mass * rng.uniform(0.0, 0.05) ** 2 * np.eye(3))
        alone, nominal = held(rng, payload, 1e-4)
        assert alone.possible, "the payload is a body inside these intervals"
        assert is_consistent(nominal, 1e-9)
        moved += not alone.consistent
    assert moved > 20, "or nothing was put to the test"


def test_where_no_body_is_found_inside_the_intervals_there_is_no_estimate(done):
    folder, result = done
    alone = PayloadAlone(**{**result["payload"], "possible": False})
    assert {texts[1] for texts in alone.texts} == {"-"}
    link = ET.fromstring(payload_urdf(alone, "arm", True)).find("link")
    assert link.find("inertial") is None
    found = IdentificationResult(**{**result, "payload": alone})
    (folder / "none").mkdir()
    run, log = LogRun((), None, robot().arm_prior, 0, 0.0, False, ""), read_log(folder / "log.npz")
    with without_pictures():
        verdict = write_all(folder / "none", found, robot(), log, run, "guaranteed", "")
    assert "no estimate" in verdict


def test_the_directory_of_the_log_is_not_cleared(tmp_path, capsys):
    write_log(tmp_path / "log.npz", JOINTS, piece())
    assert run_identify(tmp_path / "log.npz", "--out", tmp_path, "--quiet") == 2
    assert "expected another directory" in capsys.readouterr().err
    assert (tmp_path / "log.npz").exists()


def test_what_is_declared_has_units_and_says_what_is_not_declared(done):
    folder, result = done
    declared = result["declared"]
    assert declared["measurement.torque_abs"] == "0.05 N m"
    assert declared["uncertainty.floor.mass"] == "0.001 kg"
    assert declared["payload.box"] is None
    assert not any("Settings" in (text or "") or "None" in (text or "") for text in declared.values())
    page = (folder / "out" / "report.html").read_text()
    assert "<td>not declared</td>" in page
    assert "report.html" not in page
    assert f"<title>Payload of kinova_gen3: {folder / 'log.npz'}</title>" in page


def test_only_guaranteed_intervals_are_called_ok(tmp_path, capsys):
    log = write_small(tmp_path / "log.npz")
    for method, word in (("ols", "ESTIMATE: "), ("lp", "OK: ")):
        assert identify_small(log, tmp_path / "o", "--method", method)[0] == 0
        assert capsys.readouterr().out.strip().splitlines()[-1].startswith(word)


def test_a_scale_in_the_mapping_turns_signs_and_units_and_is_recorded(tmp_path):
    m, elbow = small.measured(), small.robot().joint_names[1]
    q, qd, effort = np.array(m.q), np.array(m.qd), np.array(m.effort)
    q[:, 1], qd[:, 1], effort[:, 1] = -q[:, 1], -qd[:, 1], -1000.0 * effort[:, 1]
    log = write_small(tmp_path / "log.npz", Measurements(m.stamps, q, qd, effort))
    part = {"position": -1, "velocity": -1, "effort": -0.001}
    (tmp_path / "map.yaml").write_text(yaml.safe_dump({"scale": {elbow: part}}))
    status, result = identify_small(log, tmp_path / "o", "--map", tmp_path / "map.yaml")
    assert status == 0
    assert holds_small(result)
    assert f"{elbow}.effort times -0.001" in result["log"]["scaled"]
    assert f"{elbow}.effort times -0.001" in (tmp_path / "o" / "report.html").read_text()


@pytest.mark.parametrize("scale", [{"elbow": {"effort": 2}}, {"joint_1": {"effort": 0}}, {"joint_1": {"mass": 2}}])
def test_scales_that_cannot_be(tmp_path, capsys, scale):
    write_log(tmp_path / "log.npz", JOINTS, piece()[:50])
    (tmp_path / "map.yaml").write_text(yaml.safe_dump({"scale": scale}))
    assert run_identify(tmp_path / "log.npz", "--map", tmp_path / "map.yaml", "--quiet") == 2
    assert "scale" in capsys.readouterr().err
