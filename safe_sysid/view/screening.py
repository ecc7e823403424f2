"""Filter of browser messages: only camera poses and new values of controls pass.

The library behind the view believes its clients: they may upload files, ask for a tunnel to the outside, and set *any*
attribute of a control, other people's pictures included. None of that is ours to offer.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from safe_sysid.input_limits import TokenBucket

__all__ = ["MOST_BYTES", "BrowserScreen"]

#: Of one message; a camera is below 500.
MOST_BYTES = 4096
_PER_SECOND, _BURST = 120.0, 240  # a camera that is turned says so with every picture
_MOST_REFUSED = 1000

_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Pixels = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
_Three = tuple[float, float, float]


class _Camera(msgspec.Struct, tag="ViewerCameraMessage", tag_field="type", forbid_unknown_fields=True):
    wxyz: tuple[float, float, float, float]
    position: _Three
    fov: float
    near: float
    far: float
    image_height: _Pixels
    image_width: _Pixels
    look_at: _Three
    up_direction: _Three

    def sound(self) -> bool:
        numbers = (*self.wxyz, *self.position, self.fov, self.near, self.far, *self.look_at, *self.up_direction)
        return all(map(math.isfinite, numbers))


class _ControlValue(msgspec.Struct, forbid_unknown_fields=True):
    value: bool | float | _Text


class _ControlUpdate(msgspec.Struct, tag="GuiUpdateMessage", tag_field="type", forbid_unknown_fields=True):
    uuid: _Text
    updates: _ControlValue

    def sound(self) -> bool:
        value = self.updates.value
        return not isinstance(value, float) or math.isfinite(value)


_DECODER = msgspec.msgpack.Decoder(_Camera | _ControlUpdate)


class BrowserScreen:
    """Of one connection."""

    def __init__(self) -> None:
        self.refused = 0
        self._rate = TokenBucket(_PER_SECOND, _BURST)

    def lets_through(self, raw: object) -> bool:
        """Whether a message, as it came, is one that the view is for, and not too much of it."""
        if not isinstance(raw, bytes) or len(raw) > MOST_BYTES or not self._rate.take() or not _known(raw):
            self.refused += 1
            return False
        return True

    @property
    def lost_patience(self) -> bool:
        """So much was refused that this is no browser with our page."""
        return self.refused > _MOST_REFUSED


def _known(raw: bytes) -> bool:
    try:
        return bool(_DECODER.decode(raw).sound())
    except (msgspec.MsgspecError, RecursionError, ValueError):  # ValueError: text that is no UTF-8
        return False
