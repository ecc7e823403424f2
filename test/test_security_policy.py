"""The SROS2 policy: who may say what, and the file is made from the table. What nodes create: test_docs_messages.py."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from safe_sysid.nodes.common.access_policy import ENCLAVES, NODES, OPTIONAL, TRAJECTORIES, full_name, main, policy_text

FILE = Path(__file__).resolve().parent.parent / "config" / "security" / "policy.xml"
PLACES = {
    "publish": ("topics", "topic", "publish"),
    "subscribe": ("topics", "topic", "subscribe"),
    "serve": ("services", "service", "reply"),
    "request": ("services", "service", "request"),
}


def allowed(enclave: ET.Element, place: str) -> set[str]:
    """Names that an enclave of the file may use so."""
    group, item, what = PLACES[place]
    groups = [g for g in enclave.iter(group) if g.get(what) == "ALLOW"]
    return {str(name.text) for g in groups for name in g.iter(item)}


@pytest.mark.parametrize("namespace", ["", "left", "cell/right"])
def test_the_file_says_what_the_table_says(namespace: str) -> None:
    text = policy_text(["", namespace] if namespace else [""])
    enclaves = {str(e.get("path")): e for e in ET.fromstring(text).iter("enclave")}
    assert set(enclaves) == {full_name(name, ns) for name in ENCLAVES for ns in {"", namespace}}
    for name, access in ENCLAVES.items():
        for place in PLACES:
            names = {full_name(item, namespace) for item in getattr(access, place)}
            assert allowed(enclaves[full_name(name, namespace)], place) == names, (name, place)
    if not namespace:
        assert text == FILE.read_text(), "python -m safe_sysid.nodes.common.access_policy > config/security/policy.xml"


@pytest.mark.parametrize("namespace", ['a" node="x', "a b", "a//b", "1a", "a/<b>", "\u00e9"])
def test_what_is_no_namespace_makes_no_file(namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--namespace", namespace])
    told = capsys.readouterr()
    assert not told.out
    assert "expected names" in told.err
    assert main(["--namespace", "/cell/right/"]) == 0
    assert capsys.readouterr().out == policy_text(["cell/right"])


def test_only_the_nodes_of_the_arm_may_move_it_and_lookers_on_say_nothing() -> None:
    """The point of it all, independent of the table's order: who may say what has consequences."""
    said_by = {"plan": "planner", "bounds": "identifier", "joint_states": "plant"}
    said_by |= dict.fromkeys(("effort_command", TRAJECTORIES, "bounds_active"), "controller")
    for topic, sayer in said_by.items():
        assert [name for name, access in ENCLAVES.items() if topic in access.publish] == [sayer]
    quiet = {"/parameter_events", "/rosout"}
    for looker in ("watcher", "viewer"):
        assert set(ENCLAVES[looker].publish) == quiet
        assert not ENCLAVES[looker].serve
    assert not ENCLAVES["watcher"].request
    assert not any("parameters" in name or "state" in name for name in ENCLAVES["viewer"].request)
    for name, access in ENCLAVES.items():
        if name not in ("viewer", "operator"):
            assert not access.request, name
    for access in ENCLAVES.values():
        assert not any("*" in item or "?" in item for place in PLACES for item in getattr(access, place))


def test_the_buttons_of_the_view_are_what_it_may_ask_for() -> None:
    page = pytest.importorskip("safe_sysid.view.page")
    assert {button.service for button in page.BUTTONS} <= set(ENCLAVES["viewer"].request)


def test_what_only_some_modes_have_is_allowed() -> None:
    for name, access in NODES.items():
        assert set(access.subscribe) >= OPTIONAL, name
