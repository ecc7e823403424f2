"""Payload services of the plant: the simulated hand grips and releases, and a record says what it held when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.simulation import Plant, payload_in_hand
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, check_inside_prior, theta_e_with_payload

__all__ = ["PayloadServices"]


class PayloadServices:
    """``~/attach`` and ``~/release``. Reset bounds of the payload before using them (docs/use/nodes.md)."""

    def __init__(self, node: BaseNode, plant: Plant, now: Callable[[], int]) -> None:
        self._node, self._plant, self._now = node, plant, now
        node.parameters.check("payload_to_attach", self._of_text)
        node.parameters.on_change("payload_to_attach", self._take_up_next)
        self._take_up_next(node.parameters.values()["payload_to_attach"])
        self._last = node.model.layout.payload
        held = theta_e_with_payload(node.model, np.zeros(10), plant.payload)
        self._hand = plant.theta_true[self._last] - held
        self._stamps, self._thetas = [0], [plant.theta_true]
        node.serve("attach", self._attach)
        node.serve("release", self._release)

    def _take_up_next(self, text: str) -> None:
        self._other = self._of_text(text)

    def _of_text(self, text: str) -> Payload:
        return payload_in_hand(self._node.model, text)

    def _attach(self) -> str | None:
        held = self._plant.payload
        if np.any(held.theta):
            return f"the hand holds {held.name}: expected it empty (~/release)"
        self._exchange(self._other)
        return None

    def _release(self) -> str | None:
        if not np.any(self._plant.payload.theta):
            return "the hand is empty: expected a payload in it"
        self._exchange(NO_PAYLOAD)
        return None

    def _exchange(self, payload: Payload) -> None:
        """Raises what makes the payload impossible; the service answers with it."""
        theta = self._plant.theta_true.copy()
        theta[self._last] = theta_e_with_payload(self._node.model, self._hand, payload)
        check_inside_prior(self._node.model, theta[self._last], payload)
        self._plant.exchange(theta, payload)
        self._stamps.append(self._now())
        self._thetas.append(self._plant.theta_true)

    def record(self) -> dict[str, Any]:
        """For ``plant.npz``: true parameters (k, 14 n), and the stamps (k,) in ns from which they held."""
        return {"theta_history": np.array(self._thetas), "theta_since": np.array(self._stamps)}
