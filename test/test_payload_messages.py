"""What the hand holds, as others read it: labelled intervals, and a driver's own service."""

from __future__ import annotations

import re
import time
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import Inertia, InertiaStamped, Vector3
from rclpy.task import Future

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.errors import ConfigError
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.nodes.common.base import ERROR, OK
from safe_sysid.nodes.identifier import payload_forward
from safe_sysid.nodes.identifier.payload_forward import PayloadForward, fill, with_hand
from safe_sysid.nodes.identifier.payload_message import intervals_message
from safe_sysid.robot import com_and_inertia, inertia_from_com, load_robot

#: As docs/refer/messages.md says how a program reads one.
ROW = re.compile(r"lower (\S+) nominal (\S+) upper (\S+) (.+)")


@pytest.mark.parametrize("share", [0.0, 0.5, 1e-3])
def test_intervals_are_labelled_and_hold_what_is_proved(share: float) -> None:
    model, rng = load_robot("kinova_gen3"), np.random.default_rng(5)
    box = model.arm_prior
    for _ in range(20):
        where = rng.uniform(0.0, 1.0, box.size)
        centre = box.lower + where * (box.upper - box.lower)
        box_now = type(box)(centre - share * (centre - box.lower), centre + share * (box.upper - centre), 3, 14)
        nominal = rng.uniform(box_now.payload_lower, box_now.payload_upper)
        message = intervals_message(model, box_now, nominal, OK, "bounds updated", 1_500_000_000)
        assert (message.header.stamp.sec, message.header.frame_id) == (1, model.payload_link)
        payload, link = message.status
        assert (payload.name, link.name) == ("payload", "last link with payload")
        assert payload.hardware_id == f"frame of {model.payload_link}"
        assert link.hardware_id == f"frame of {model.joint_names[-1]}"
        alone = payload_bounds(model, box_now.payload_lower, nominal, box_now.payload_upper)
        for status, lower, upper in (
            (payload, alone.lower, alone.upper),
            (link, box_now.payload_lower, box_now.payload_upper),
        ):
            assert (status.level, status.message) == (OK, "bounds updated")
            values = {pair.key: pair.value for pair in status.values}
            assert values["box"] == "3:14"
            for p, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)):
                found = ROW.fullmatch(values[name])
                assert found is not None, values[name]
                low, middle, high = (float(x) for x in found.groups()[:3])
                assert found[4] == unit
                # Rounded outward to one step, of at most a hundredth of the width or four digits of the larger end.
                assert low <= lower[p] <= upper[p] <= high
                assert low <= middle <= high
                step = float(Decimal(1).scaleb(max(int(Decimal(x).as_tuple().exponent) for x in found.groups()[:3])))
                width = upper[p] - lower[p]
                assert high - low <= width + 2.0 * step + 1e-12
                assert step <= max(width * 1e-3, min(width / 10.0, 1e-3 * max(abs(low), abs(high)))) or width == 0.0
    broken = intervals_message(model, box, box.mid[box.layout.payload], ERROR, "an assumption is false", 1)
    assert {status.level for status in broken.status} == {ERROR}


def request(**fields: tuple[str, Any]) -> Any:
    """A request with fields as a driver's file has them."""
    out = SimpleNamespace(**{name: value for name, (_, value) in fields.items()})
    out.get_fields_and_field_types = lambda: {name: kind for name, (kind, _) in fields.items()}
    return out


def universal_robots() -> Any:
    """ur_msgs/srv/SetPayload as it stands since 2020."""
    return request(mass=("float", 0.0), center_of_gravity=("geometry_msgs/Vector3", Vector3()))


MASS, CENTRE = 2.0, [0.01, -0.02, 0.1]
INERTIA = np.array([[0.03, 0.001, -0.002], [0.001, 0.04, 0.003], [-0.002, 0.003, 0.02]])


def told() -> InertiaStamped:
    message = InertiaStamped()
    message.header.frame_id = "flange"
    i = message.inertia
    i.m, (i.com.x, i.com.y, i.com.z) = MASS, CENTRE
    i.ixx, i.ixy, i.ixz, i.iyy, i.iyz, i.izz = INERTIA[np.triu_indices(3)].tolist()
    return message


def test_requests_of_drivers_are_filled() -> None:
    asked = universal_robots()
    assert fill(asked, told()) == ""
    assert (asked.mass, asked.center_of_gravity) == (2.0, Vector3(x=0.01, y=-0.02, z=0.1))
    # franka_msgs/srv/SetLoad of franka_ros2, humble
    three, nine = [0.0] * 3, [0.0] * 9
    asked = request(mass=("double", 0.0), center_of_mass=("double[3]", three), load_inertia=("double[9]", nine))
    assert fill(asked, told()) == ""
    assert (asked.mass, asked.center_of_mass) == (MASS, CENTRE)
    np.testing.assert_array_equal(np.array(asked.load_inertia).reshape(3, 3), INERTIA)
    whole = request(payload=("geometry_msgs/Inertia", None), transition_time=("double", 0.0))
    assert fill(whole, told()) == ""
    assert whole.payload == told().inertia
    stamped = request(load=("geometry_msgs/InertiaStamped", None))
    assert fill(stamped, told()) == ""
    assert stamped.load.header.frame_id == "flange"
    unknown = request(mass=("double", 0.0), name=("string", ""))
    assert fill(unknown, told()) == "its field name (string) is none that a payload could fill"
    assert fill(request(center_of_mass=("double[3]", [])), told()) == "it has no field for a mass"


def test_a_hand_that_the_driver_does_not_know_is_added() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        hand = np.array([rng.uniform(0.1, 2.0), *rng.uniform(-0.1, 0.1, 3)])
        found = with_hand(told().inertia, hand)
        both = inertia_from_com(MASS, CENTRE, INERTIA) + inertia_from_com(hand[0], hand[1:], np.zeros((3, 3)))
        mass, centre, about = com_and_inertia(both)
        assert [found.m, found.com.x, found.com.y, found.com.z] == pytest.approx([mass, *centre])
        inertia = [found.ixx, found.ixy, found.ixz, found.iyy, found.iyz, found.izz]
        assert inertia == pytest.approx(about[np.triu_indices(3)].tolist())
    assert with_hand(Inertia(), np.zeros(4)) == Inertia()  # nothing in no hand


class Driver:
    """A node with what a client of it needs, and what the driver answers."""

    def __init__(self, service: str | None = "/ur/set_payload", kind: str = "driver_msgs/srv/Set", hand: Any = None):
        self.values = {"forward.service": service, "forward.type": kind, "forward.hand": hand}
        self.asked: list[Any] = []
        self.future = Future()
        self.ready, self.ticks = True, []

    def create_client(self, kind: Any, service: str) -> Any:
        def call(asked: Any) -> Future:
            self.asked.append(asked)
            return self.future

        return SimpleNamespace(service_is_ready=lambda: self.ready, call_async=call)

    def every(self, period: float, action: Any) -> None:
        self.ticks.append(action)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("driver_msgs.srv")
    module.Set = SimpleNamespace(Request=universal_robots)
    module.Other = SimpleNamespace(Request=lambda: request(name=("string", "")))
    real = payload_forward.importlib.import_module
    found = lambda name: module if name == "driver_msgs.srv" else real(name)  # noqa: E731
    monkeypatch.setattr(payload_forward.importlib, "import_module", found)


@pytest.mark.usefixtures("installed")
def test_a_driver_is_asked_once_and_its_answer_is_passed_on() -> None:
    answers: list[tuple[bool, str]] = []
    answer = lambda *words: answers.append(words)  # noqa: E731
    driver = Driver(hand=[0.5, 0.0, 0.0, 0.05])
    forward = PayloadForward(driver)
    forward.send(told(), answer)
    assert driver.asked[0].mass == 2.5
    forward.send(told(), answer)
    assert answers == [(False, "refused: the driver has not answered yet")]
    driver.future.set_result(SimpleNamespace(success=True))
    assert answers[1:] == [(True, "/ur/set_payload: 2.5 kg")]
    driver.future = Future()
    forward.send(told(), answer)
    driver.future.set_result(SimpleNamespace(success=False, error="the arm moves"))
    assert answers[2:] == [(False, "refused by /ur/set_payload: the arm moves")]
    driver.ready = False
    forward.send(told(), answer)
    forward.send(None, answer)
    assert [text for _, text in answers[3:]] == [
        "refused: there is no service /ur/set_payload",
        "refused: no possible body was found inside the bounds",
    ]
    PayloadForward(Driver(None)).send(told(), answer)
    assert answers[5:] == [(False, "refused: forward.service is not set")]
    assert len(driver.asked) == 2


@pytest.mark.usefixtures("installed")
def test_a_type_whose_libraries_are_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("Could not import 'rosidl_typesupport_c' for package 'driver_msgs'")

    monkeypatch.setattr(Driver, "create_client", broken)
    with pytest.raises(ConfigError, match=r"driver_msgs/srv/Set at /ur/set_payload.*rosidl_typesupport_c"):
        PayloadForward(Driver())


@pytest.mark.usefixtures("installed")
def test_a_driver_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, answers = Driver(), []
    forward = PayloadForward(driver)
    forward.send(told(), lambda *words: answers.append(words))
    driver.ticks[0]()
    assert answers == []
    later = time.monotonic() + 11.0
    monkeypatch.setattr(payload_forward.time, "monotonic", lambda: later)
    driver.ticks[0]()
    assert answers == [(False, "/ur/set_payload has not answered for 10 s: what it knows is not known")]
    driver.future.set_result(SimpleNamespace(success=True))  # too late: said once is enough
    assert len(answers) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "hand", "said"),
    [
        ("SetPayload", None, "package/srv/Name"),
        (None, None, "package/srv/Name"),
        ("no_such_msgs/srv/Set", None, "a type that is installed"),
        ("driver_msgs/srv/Missing", None, "a type that is installed"),
        ("driver_msgs/srv/Other", None, "its field name"),
        ("std_srvs/srv/Trigger", None, "no field for a mass"),
        ("driver_msgs/srv/Set", [1.0, 0.0], "centre x, y, z"),
        ("driver_msgs/srv/Set", [-1.0, 0.0, 0.0, 0.0], "centre x, y, z"),
    ],
)
def test_what_cannot_be_a_payloads_service_is_refused(kind: str, hand: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PayloadForward(Driver("/x", kind, hand))
