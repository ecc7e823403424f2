"""Exceptions of the package: one root, messages that name the field, the value and what was expected."""

from __future__ import annotations

__all__ = ["ConfigError", "MessageError", "ModelError", "ParameterError", "PlanError", "SafeSysIdError", "short"]

_LONGEST = 500  # characters of a value in a message: it may come from a stranger's file


def short(value: object, most: int = _LONGEST) -> str:
    """``repr`` of any value, cut off where it gets long. ``most``: characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python does not write whole numbers of more than 4300 digits
        text = f"({type(value).__name__} too long to be written)"
    return text if len(text) <= most else f"{text[: most - 3]}..."


class SafeSysIdError(Exception):
    """Root of every error that this package raises on purpose."""


class ConfigError(SafeSysIdError):
    """A configuration file, or one value in it, cannot be used."""

    def __init__(self, file: str, key: str, value: object, expected: str) -> None:
        """Compose the message from its four parts; they stay available as attributes."""
        self.file, self.key, self.value, self.expected = str(file), key, value, expected
        super().__init__(f"{file}: {key} = {short(value)}: expected {expected}")


class ModelError(SafeSysIdError):
    """A robot description is not a serial arm, or a shape no obstacle, that this package can handle."""

    def __init__(self, message: str, value: object = None, expected: str = "") -> None:
        """Keep the message; the value and the expectation in it too, where a caller can name the key better."""
        self.value, self.expected = value, expected
        super().__init__(message)


class ParameterError(SafeSysIdError):
    """Inertial parameters, or a box of them, are malformed or physically impossible."""


class PlanError(SafeSysIdError):
    """A trajectory or plan is malformed, does not connect, or is not certified for what is asked."""


class MessageError(SafeSysIdError):
    """A ROS message does not carry what its topic promises."""
