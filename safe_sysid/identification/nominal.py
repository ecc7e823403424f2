"""Old place of the nominal estimate; :mod:`safe_sysid.identification.estimates` has it."""

from __future__ import annotations

from safe_sysid.identification.estimates import NominalEstimate, make_consistent

__all__ = ["NominalEstimate", "make_consistent"]
