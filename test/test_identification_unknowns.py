"""Joint zeros that are off and gear ratios that nobody knows: rows, certificates, bounds, and who refuses them."""

import dataclasses

import numpy as np
import pytest
import yaml
from certificate_support import declaring, forge, random_log, random_model, verdicts, write_chain
from identification_events import CASES, Attack, SmoothAttack
from identification_plant import geared

from safe_sysid.apps.generate import arm_of
from safe_sysid.control.gains.design import design_gains
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.identification.arm.bounds.intervals import arm_intervals, base_of
from safe_sysid.identification.certificates.arm_check import check_arm_certificate
from safe_sysid.identification.certificates.files.arm import read_arm_certificate, write_arm_certificate
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import SampleRun
from safe_sysid.identification.equations.momentum import RowSource
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.resources import resource_path
from safe_sysid.robot import load_robot
from safe_sysid.robot.kinematics import NO_MOTORS
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns


def hidden(rng, kin, theta, offset, room=0.5):
    """(arm without motors, unknowns of which the truth is an end, true constants)."""
    motors = kin.motors
    kappa = theta[12 * len(kin.axis) + motors.joint] * motors.gear
    width = room * np.abs(kappa)
    lower = np.where(rng.random(len(kappa)) < 0.5, kappa, kappa - width)
    reaction = np.stack([lower, np.maximum(lower + width, kappa)], axis=1)
    unknowns = Unknowns(np.abs(offset), motors._replace(gear=np.ones(len(kappa))), reaction)
    return kin._replace(motors=NO_MOTORS), unknowns, np.concatenate([kappa, offset[offset != 0.0]])


class Off:
    """An attack on an arm whose zeros are off by all that is declared, and whose motors' ratios are not told."""

    scale = 0.03

    def begin(self):
        self.offset = self.scale * self.rng.choice([-1.0, 0.3, 1.0], self.n) * self.rng.integers(0, 2, self.n)
        self.offset[-1] = self.scale
        self.told, self.unknowns, self.constants = hidden(self.rng, self.kin, self.theta, self.offset)
        return self

    def measure(self, e, signs):
        data = super().measure(e, signs)
        return dataclasses.replace(data, q=data.q - self.offset)

    def rows(self, e, signs, windows, ramp, unknowns):
        run = SampleRun(self.measure(e, signs), False, 3)
        return RowSource(self.told, self.box, e, run, ramp > 0.0, unknowns=unknowns).rows(windows, ramp)

    def ratios_of(self, rows, e):
        left = rows.matrix @ self.truth(e) - rows.target
        return np.abs(left + rows.constants @ self.constants) / rows.slack


class OffAttack(Off, Attack):
    pass


class OffSmoothAttack(Off, SmoothAttack):
    pass


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("kind", "link"), [(OffAttack, {}), (OffSmoothAttack, {}), (OffSmoothAttack, {"link": True})])
def test_rows_hold_and_are_tighter_than_position_errors(kind, link, name):
    largest = without_remainder = without_columns = 0.0
    sharper = []
    for seed in range(6):
        attack = kind(seed, 2 + seed % 5, motors=True, period=5e-3, coulomb=0.3, **link).begin()
        e = attack.errors(**CASES[name])
        # The same columns, with nothing left for what they do not say.
        small = dataclasses.replace(attack.unknowns, zero=1e-12 * attack.unknowns.zero)
        for ramp, shortest in ((0.0, 4), (0.02, 7)):
            windows = np.array([[3, shortest], [4, 14], [5, 30], [10, 33]])
            signs = attack.rng.choice([-1.0, 1.0], (3 * attack.n + 1, len(attack.t)))
            rows = attack.rows(e, signs, windows, ramp, attack.unknowns)
            assert rows.constants.shape == (4 * attack.n, attack.unknowns.count)
            largest = max(largest, attack.ratios_of(rows, e).max())
            # Over theta alone they hold as well.
            alone = rows.without_constants(attack.unknowns)
            assert np.all(np.abs(alone.matrix @ attack.truth(e) - alone.target) <= alone.slack)
            mutant = attack.rows(e, signs, windows, ramp, small)
            without_remainder = max(without_remainder, attack.ratios_of(mutant, e).max())
            mutant = dataclasses.replace(rows, constants=np.zeros_like(rows.constants))
            without_columns = max(without_columns, attack.ratios_of(mutant, e).max())
            zeros = dataclasses.replace(attack.unknowns, zero=np.zeros(attack.n))
            noisy = dataclasses.replace(e, position=e.position + attack.unknowns.zero)
            run = SampleRun(attack.measure(e, signs), False, 3)
            other = RowSource(attack.told, attack.box, noisy, run, ramp > 0.0, unknowns=zeros).rows(windows, ramp)
            sharper += (rows.slack / other.slack).tolist()
    assert largest <= 1.0
    if name == "exact":  # noise would hide it
        assert without_remainder > 1.0, "the truth must break rows that forget what their columns leave open"
    assert without_columns > (1.5 if name == "exact" else 1.0)
    assert np.median(sharper) < 0.8


def with_unknowns(rng, model, theta, scale, duration):
    """The model with zeros within ``scale`` and no ratio told; a log of the true one, its offsets at an end."""
    offset = scale * rng.choice([-1.0, 1.0], model.n)
    kin = geared(rng, model.kinematics)
    told, unknowns, _ = hidden(rng, kin, theta, offset)
    data = random_log(rng, dataclasses.replace(model, kinematics=kin), theta, duration)
    model = dataclasses.replace(model, kinematics=told, unknowns=unknowns)
    return model, dataclasses.replace(data, q=data.q - offset)


@pytest.mark.parametrize(
    ("n", "link", "states"), [pytest.param(3, False, False, marks=pytest.mark.slow), (4, True, False), (3, False, True)]
)
def test_chains_pass_and_say_what_is_unknown(n, link, states, tmp_path):
    rng = np.random.default_rng(60 + n)
    noise = {"position": 2e-5, "velocity": 2e-3} if states else {}
    model, theta = random_model(rng, n, **noise)
    model = declaring(model, torque_source="link" if link else "motor")
    model, data = with_unknowns(rng, model, theta, 0.01, 0.6)
    paths, box = write_chain(tmp_path, model, data, 301)
    assert len(paths) >= 2
    e = box.layout.payload
    assert np.all((box.payload_lower <= theta[e]) & (theta[e] <= box.payload_upper))
    assert [v.reason for v in verdicts(model, paths, data)] == [None] * len(paths)
    smaller = dataclasses.replace(model.unknowns, zero=0.999 * model.unknowns.zero)
    with pytest.raises(CertificateError, match=r"another robot.*unknowns"):
        verdicts(dataclasses.replace(model, unknowns=smaller), paths, data)

    def shorter(arrays):
        arrays["slack"] *= 0.99

    def other_column(arrays):
        arrays["matrix"][:, -1] *= 0.9

    for change in (shorter, other_column):
        (tmp_path / change.__name__).mkdir()
        forged = forge(paths[0], tmp_path / change.__name__, change)
        assert "not what the log gives" in verdicts(model, [forged], data)[0].reason


def test_ten_milliradians_at_one_joint():
    """Declared exact, the log is found to be a contradiction and nothing is bounded; declared, the bounds hold."""
    rng = np.random.default_rng(7)
    model, theta = random_model(rng, 3, torque=(0.002, 0.002))
    prior = model.arm_prior
    known = ParameterBox(*(theta + 0.2 * (side - theta) for side in (prior.lower, prior.upper)))  # an arm known to 1 %
    model = dataclasses.replace(model, arm_prior=known.with_payload(prior.payload_lower, prior.payload_upper))
    data = random_log(rng, model, theta, 1.5)
    off = np.array([0.0, 0.01, 0.0])
    data = dataclasses.replace(data, q=data.q - off)
    identifiers = [Identifier(dataclasses.replace(model, unknowns=Unknowns(zero))) for zero in (0.0 * off, off)]
    for identifier in identifiers:
        identifier.add(data)
    exact, declared = (identifier.update(final=True) for identifier in identifiers)
    # Bounds of the acceleration on every step narrow the equations until 10 mrad of gravity do not fit into them.
    assert exact.status is UpdateStatus.EMPTY_SET, "a false zero gives false bounds unless it is found"
    assert exact.proof is None
    np.testing.assert_array_equal(exact.box.lower, model.arm_prior.lower)
    np.testing.assert_array_equal(exact.box.upper, model.arm_prior.upper)
    assert declared.status is UpdateStatus.OK
    assert np.all((declared.box.lower <= theta) & (theta <= declared.box.upper))
    prior = model.arm_prior.payload_upper - model.arm_prior.payload_lower
    assert np.median(declared.widths / prior) < 0.5


def test_other_consumers_get_rows_over_theta_alone():
    rng = np.random.default_rng(5)
    model, theta = random_model(rng, 3)
    model, data = with_unknowns(rng, model, theta, 0.01, 0.3)
    errors = MeasurementErrors.from_model(model)
    windows = default_windows(model, errors)
    rows = MomentumStream(model, errors, windows).push(data, model.arm_prior)
    assert rows.constants.shape[1] == 0
    assert np.all(np.abs(rows.matrix @ theta - rows.target) <= rows.slack)
    narrow = MomentumStream(model, errors, windows, constants=True).push(data, model.arm_prior)
    assert np.all(rows.slack > narrow.slack)


def test_intervals_of_the_arm_hold_and_are_proved(tmp_path):
    """Their rows have no columns for unknown constants; the checker widens what it rebuilds."""
    rng = np.random.default_rng(2)
    model, theta = random_model(rng, 3)
    theta[model.layout.payload] = model.theta_nominal[model.layout.payload]
    model, data = with_unknowns(rng, model, theta, 0.005, 0.5)
    base = base_of(model)
    found = arm_intervals(model, MeasurementErrors.from_model(model), [data], base)
    true = base.matrix @ theta
    assert np.all((found.lower <= true) & (true <= found.upper))
    names = [str(i) for i in range(len(true))]
    write_arm_certificate(tmp_path / "arm.json", found, names, ["1"] * len(true), model, [data])
    book = LogBook([NamedLog("log", model.joint_names, data)])
    verdict = check_arm_certificate(read_arm_certificate(tmp_path / "arm.json"), model, book)
    assert verdict.reason is None
    assert np.all((verdict.lower <= true) & (true <= verdict.upper))


RANGE = {"joints.elbow.gear_ratio_range": [50.0, 100.0]}


def test_a_range_of_ratios_is_an_interval_of_reactions_and_no_part_of_the_dynamics():
    known = load_robot("three_joint", **{"joints.elbow.gear_ratio": 80.0})
    model = load_robot("three_joint", **RANGE)
    assert not len(model.kinematics.motors.joint)
    least, most = (side[known.layout.rotor_inertia][2] for side in (known.arm_prior.lower, known.arm_prior.upper))
    low, high = model.unknowns.reaction[0]
    assert least / 100.0 * (1.0 - 1e-12) <= low <= least / 100.0
    assert most / 50.0 <= high <= most / 50.0 * (1.0 + 1e-12)
    np.testing.assert_array_equal(model.unknowns.motors.axis, known.kinematics.motors.axis)
    either = load_robot("three_joint", **RANGE, **{"joints.elbow.gear_sign": "either"})
    assert either.unknowns.reaction[0].tolist() == [-high, high]
    ratio = next(line for line in model.model_assumptions if "elbow" in line)
    assert "one ratio of its declared range" in ratio
    with pytest.raises(ConfigError, match=r"joints\.elbow\.gear_ratio_range.*one number, `gear_ratio`, for gains"):
        design_gains(model, lockstep=True)
    for wrong in ([100.0, 50.0], [-50.0, 50.0], [0.0, 50.0], [50.0]):
        with pytest.raises(ConfigError, match="gear_ratio_range"):
            load_robot("three_joint", **{"joints.elbow.gear_ratio_range": wrong})
    with pytest.raises(ConfigError, match="not both"):
        load_robot("three_joint", **RANGE, **{"joints.elbow.gear_ratio": 80.0})
    with pytest.raises(ConfigError, match="gear_ratio_range too"):
        load_robot("three_joint", **{"joints.elbow.gear_sign": "either"})


def test_control_and_plans_take_a_zero_that_is_off_as_an_error_of_position():
    model = load_robot("three_joint", **{"joints.elbow.zero_error": 2e-4})
    gains, exact = design_gains(model, lockstep=True), design_gains(load_robot("three_joint"), lockstep=True)
    np.testing.assert_allclose(
        gains.assumptions.position_error - exact.assumptions.position_error, [0.0, 0.0, 2e-4], atol=1e-12
    )
    assert gains.V_max > exact.V_max
    assert "constant offsets of elbow within 0.0002 rad" in model.model_assumptions[0]


def test_unknowns_that_make_no_sense_are_refused():
    model = load_robot("three_joint", **RANGE)
    motors = model.unknowns.motors
    with pytest.raises(ModelError, match="zeros >= 0"):
        Unknowns(np.array([0.0, -1e-3, 0.0]))
    with pytest.raises(ModelError, match="gears of 1"):
        Unknowns(np.zeros(3), motors._replace(gear=np.array([0.02])), np.zeros((1, 2)))
    known = model.kinematics._replace(motors=motors._replace(gear=np.array([0.02])))
    with pytest.raises(ModelError, match="one motor per joint"):
        dataclasses.replace(model, kinematics=known)


def test_no_code_is_made_of_an_arm_whose_reactions_are_not_known(tmp_path):
    robot = yaml.safe_load(resource_path("config/three_joint.yaml").read_text())
    robot["joints"]["elbow"] |= {"gear_ratio_range": [50.0, 100.0]}
    robot["urdf"] = str(resource_path("urdf/three_joint.urdf"))
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(robot))
    with pytest.raises(ConfigError, match=r"gear_ratio_range.*for generated dynamics"):
        arm_of(str(tmp_path / "arm.yaml"))
