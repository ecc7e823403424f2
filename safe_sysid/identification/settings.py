"""Settings of identification and tares in a robot's file."""

from __future__ import annotations

from typing import Final

from safe_sysid.schema import Section, setting
from safe_sysid.schema.fields import Name, PerJointNumbers

__all__ = ["METHODS", "DriftSettings", "IdentificationSettings", "TareSettings"]


#: Methods that prove bounds.
METHODS: Final = ("lp", "sdp")


class IdentificationSettings(Section):
    """Momentum windows and the declared bound on acceleration."""

    method: str = setting(
        "lp: linear programs; sdp: besides, that the payload is a real body", default="sdp", choices=METHODS
    )
    window_s: float = setting("length of one momentum equation", "s", "(0, inf)", default=0.1)
    update_s: float = setting("data between two updates of the bounds", "s", "(0, inf)", default=1.5)
    take_after_s: float = setting(
        "simulated time that an update takes in lock-step; in real time it takes what it takes",
        "s",
        "(0, inf)",
        default=0.5,
    )
    acceleration_bound: PerJointNumbers = setting(
        "the arm never accelerates more; the controller refuses gains that allow for more",
        "rad/s^2 or m/s^2",
        "(0, inf)",
    )


class DriftSettings(Section):
    """How much the friction of a joint may change between a tare and a later run."""

    coulomb: float = setting(
        "of Coulomb friction, as a fraction of the prior's larger bound", range="[0, inf)", default=0.02
    )
    viscous: float = setting(
        "of viscous friction, as a fraction of the prior's larger bound", range="[0, inf)", default=0.02
    )
    offset: float = setting("of the offset", "N m or N", "[0, inf)", default=0.005)


class TareSettings(Section):
    """Motion with the empty hand, kept as constraints on the arm, and when it is too old (docs/use/tare.md)."""

    file: Name | None = setting("what safe-sysid tare wrote; null: none", default=None)
    max_age_h: float = setting("an older tare is refused", "h", "(0, inf)", default=24.0)
    max_temperature_difference: float | None = setting(
        "between tare and run, judged where both are given; null: not judged", "K", "(0, inf)", default=10.0
    )
    drift: DriftSettings = DriftSettings()
