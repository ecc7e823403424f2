"""The arms of [PSDM Table 1], and the two-link arm of its examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PER_LINK, ParameterLayout
from safe_sysid.dynamics.generated.chain import dh_kinematics, inertia_transfer
from safe_sysid.robot.model import Kinematics

__all__ = ["PSDM_ARMS", "PaperArm"]


_H = np.pi / 2.0


@dataclass(frozen=True)
class PaperArm:
    """A table of the paper."""

    title: str
    table: tuple[tuple[float, float, float, float], ...]  #: (n, 4) theta, d, a, alpha: rad and m
    sliding: tuple[bool, ...]  #: (n,) joints that slide
    #: (n, 10) mass, centre of mass (m) in the link's frame, and Ixx, Iyy, Izz, Ixy, Ixz, Iyz about it
    inertia: tuple[tuple[float, ...], ...]
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)  #: (3,) in frame 0, m/s^2
    #: (10 n,) parameters that the paper takes for zero, about the joints' frames; none if None
    zero: BoolArray | None = None

    def kinematics(self, joints: int | None = None) -> Kinematics:
        """The arm, or its first joints."""
        return dh_kinematics(np.array(self.table)[:joints], np.array(self.sliding)[:joints], np.array(self.gravity))[0]

    def parameters(self, joints: int | None = None) -> FloatArray:
        """(14 n,) of the layout, without friction and rotors."""
        ends = dh_kinematics(np.array(self.table)[:joints], np.array(self.sliding)[:joints], np.array(self.gravity))[1]
        theta = np.zeros(ParameterLayout(len(ends)).size)
        for j, (end, (m, x, y, z, xx, yy, zz, xy, xz, yz)) in enumerate(zip(ends, self.inertia, strict=False)):
            centre = np.eye(4)
            centre[:3, 3] = x, y, z
            about_centre = np.array([m, 0.0, 0.0, 0.0, xx, xy, yy, xz, yz, zz])
            theta[PER_LINK * j : PER_LINK * (j + 1)] = inertia_transfer(end @ centre) @ about_centre
        return theta


def _links(*rows: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """Centres of mass in mm, as the paper prints them."""
    return tuple((row[0], *(1e-3 * x for x in row[1:4]), *row[4:]) for row in rows)


_HAND = (3.00, -2.0, -19.0, 67.0, 0.0045, 0.0050, 0.0060, 0.0001, -0.0003, 0.0004)
_ALONG_X = np.tile(~np.isin(np.arange(PER_LINK), (0, 1, 9)), 2)

PSDM_ARMS = {
    "kr6": PaperArm(
        "KUKA Agilus KR6 R700",
        (
            (0, 0.183, 0.025, -_H),
            (0, 0, -0.315, 0),
            (0, 0, -0.035, _H),
            (0, 0.365, 0, -_H),
            (0, 0, 0, _H),
            (0, 0.08, 0, 0),
        ),
        (False,) * 6,
        _links(
            (7.60, -37.6, 43.5, -7.6, 0.0430, 0.0449, 0.0490, 0.0125, 0.0022, -0.0024),
            (2.80, 155.4, -6.2, 114.8, 0.0060, 0.0393, 0.0415, -0.0004, -0.0012, 0.0001),
            (7.00, 45.0, -7.0, 4.0, 0.0278, 0.0375, 0.0309, 0.0010, 0.0005, -0.0002),
            (2.90, -1.0, 102.1, -2.8, 0.0138, 0.0058, 0.0123, -0.0010, 0.0002, 0.0002),
            (0.94, 0.1, -30.0, 10.6, 0.0009, 0.0010, 0.0006, 0.0001, 0.0010, 0.0001),
            _HAND,
        ),
    ),
    "lbr7": PaperArm(
        "KUKA LBR7",
        (
            (0, 0.34, 0, -_H),
            (0, 0, 0, _H),
            (0, 0.4, 0, _H),
            (0, 0, 0, -_H),
            (0, 0.4, 0, -_H),
            (0, 0, 0, _H),
            (0, 0.126, 0, 0),
        ),
        (False,) * 7,
        _links(
            (3.95, -3.5, 1.6, -31.4, 0.0046, 0.0045, 0.0003, 0.0000, 0.0000, 0.0000),
            (4.50, -7.7, 166.8, -3.6, 0.0003, 0.0001, 0.0004, 0.0000, 0.0000, 0.0000),
            (2.45, -2.2, -34.9, -26.5, 0.0022, 0.0022, 0.0007, -0.0001, 0.0001, 0.0001),
            (2.61, 0.2, -52.7, 38.2, 0.0384, 0.0114, 0.0499, 0.0009, -0.0011, -0.0011),
            (3.41, 0.1, -2.4, -211.3, 0.0028, 0.0028, 0.0001, 0.0000, 0.0000, 0.0000),
            (3.39, 0.5, 20.2, -27.5, 0.0005, 0.0028, 0.0023, -0.0001, 0.0000, 0.0000),
            _HAND,
        ),
    ),
    "sr6ia": PaperArm(
        "Fanuc SR-6iA",
        ((0, 0.16, 0.35, 0), (0, 0, 0.3, np.pi), (0, 0, 0, 0), (0, 0, 0, 0)),
        (False, False, True, False),
        _links(
            (6.25, 209.6, 0, 44.7, 0.0104, 0.1355, 0.1413, 0.0000, 0.0056, 0.0000),
            (9.49, -166.2, 0, -146.4, 0.0494, 0.1553, 0.1336, 0.0000, -0.0129, 0.0000),
            (0.40, 0, 0, -175.1, 0.0069, 0.0069, 0.0000, 0.0000, 0.0000, 0.0000),
            (1.10, 4.1, -12.4, -16.8, 0.0023, 0.0003, 0.0025, 0.0000, 0.0000, 0.0001),
        ),
    ),
    # Figure 1: links along x, gravity against y; numbers of our own, the paper gives none but the lengths.
    "two_link": PaperArm(
        "two-link arm of the examples",
        ((0, 0, 1.2, 0), (0, 0, 1.1, 0)),
        (False, False),
        ((2.0, -0.5, 0, 0, 0, 0, 0.2, 0, 0, 0), (1.5, -0.4, 0, 0, 0, 0, 0.1, 0, 0, 0)),
        (0.0, -9.81, 0.0),
        _ALONG_X,
    ),
}
