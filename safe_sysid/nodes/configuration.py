"""What a node publishes latched on ``~/configuration``; the text is of :mod:`safe_sysid.logs.configuration`."""

from __future__ import annotations

from safe_sysid.logs.configuration import configuration_text, proof_digest

__all__ = ["configuration_text", "proof_digest"]
