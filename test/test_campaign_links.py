"""The attack on links that are fixed to links: it finds nothing, and notices rules that leave too much unchecked."""

from __future__ import annotations

import pytest

from safe_sysid.robot import loading
from safe_sysid.studies.campaign.reachability.links import attack_links
from safe_sysid.studies.campaign.reachability.record import AttackRecord

honest = loading.allowed_pairs


def broken(trials: int) -> bool:
    """Whether anything is violated in one of so many trials."""
    for index in range(trials):
        record = AttackRecord()
        attack_links(31, index, record)
        if record.broken:
            return True
    return False


def neighbours(bodies, kinematics, joined, extra, file):
    """What once was: all pairs of links on neighbouring joints."""
    more = {
        frozenset((a.name, b.name))
        for a in bodies
        for b in bodies
        if a.joint == b.joint + 1 and {a.kind, b.kind} <= {"arm", "base"}
    }
    return honest(bodies, kinematics, joined, extra, file) | more


def whole_links(bodies, kinematics, joined, extra, file):
    """Both links of a joint, whether they always overlap or not."""
    pairs = set(joined)
    more = {frozenset((a.name, b.name)) for a in bodies for b in bodies if (a.link, b.link) in pairs}
    return honest(bodies, kinematics, joined, extra, file) | more


def test_distances_of_the_urdf_keep_what_is_enclosed():
    assert not broken(15)


@pytest.mark.parametrize("rule", [neighbours, whole_links])
def test_a_rule_that_leaves_too_much_unchecked_is_noticed(monkeypatch, rule):
    monkeypatch.setattr(loading, "allowed_pairs", rule)
    assert broken(20)


def test_a_shape_that_is_covered_too_thinly_is_noticed(monkeypatch):
    real = loading.build_bodies

    def thin(*arguments):
        bodies = real(*arguments)
        for body in bodies:
            body.points.setflags(write=True)
            body.points[:] = body.points.mean(axis=0) + 0.7 * (body.points - body.points.mean(axis=0))
        return bodies

    monkeypatch.setattr(loading, "build_bodies", thin)
    assert broken(20)
