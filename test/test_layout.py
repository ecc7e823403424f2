"""The order of an arm's parameters, against literal numbers: a wrong one would be wrong in prover and checker alike."""

import numpy as np
import pytest

from safe_sysid.core.layout import JOINT_TERMS, ParameterLayout, UnknownsLayout


def test_order_of_two_joints_in_full() -> None:
    layout = ParameterLayout(2)
    ten = ["m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz"]
    names = [f"a.{name}" for name in ten] + [f"b.{name}" for name in ten]
    names += ["a.Fc", "b.Fc", "a.Fv", "b.Fv", "a.Ia", "b.Ia", "a.beta", "b.beta"]
    assert layout.names(("a", "b")) == names
    assert layout.size == 28
    index = np.arange(28)
    for part, expected in (
        (layout.links, range(20)),
        (layout.link(0), range(10)),
        (layout.payload, range(10, 20)),
        (layout.coulomb, (20, 21)),
        (layout.viscous, (22, 23)),
        (layout.rotor_inertia, (24, 25)),
        (layout.offset, (26, 27)),
        (layout.joint_terms, range(20, 28)),
        (layout.never_negative, (0, 10, 20, 21, 22, 23, 24, 25)),
        (layout.drifting, (20, 21, 22, 23, 26, 27)),
        (layout.links_and_rotors(np.array([1])), (*range(20), 25)),
    ):
        assert index[part].tolist() == list(expected)
    assert layout.by_term(index).tolist() == [[20, 21], [22, 23], [24, 25], [26, 27]]


@pytest.mark.parametrize("n", [1, 7, 9])
def test_every_parameter_is_in_one_place_and_is_found_again(n: int) -> None:
    layout = ParameterLayout(n)
    assert ParameterLayout.of_size(layout.size) == layout
    slices = [layout.link(j) for j in range(n)]
    slices += [getattr(layout, term.key) for term in JOINT_TERMS]
    index = np.arange(layout.size)
    assert np.concatenate([index[part] for part in slices]).tolist() == index.tolist()
    joints = tuple("abcdefghi"[:n])
    for p, name in enumerate(layout.names(joints)):
        j, which = layout.locate(p)
        assert index[slices[j] if isinstance(which, int) else getattr(layout, which.key)].tolist().count(p) == 1
        assert name.startswith(joints[j] + ".")
        if not isinstance(which, int):
            assert name.endswith(which.symbol)


def test_unknowns_of_a_log_follow_the_arm() -> None:
    x = UnknownsLayout(ParameterLayout(1), drifts=3)
    assert (x.hand, x.opening, x.drift, x.size) == (slice(14, 24), slice(24, 34), slice(34, 37), 37)
