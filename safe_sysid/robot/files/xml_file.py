"""Reader of XML files without document types or entities, and with a limit on elements.

Nothing else of us parses XML. Programs that get a description from us (Pinocchio, ROS) get the tree that was checked
here, written again: never the file, which may say something else to another parser, or a moment later.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from safe_sysid.errors import ModelError, short
from safe_sysid.input_limits import MAX_XML_BYTES, read_regular

__all__ = ["parse_xml", "read_xml"]

_MAX_DEPTH = 64  # of elements in each other
_MAX_ELEMENTS = 200_000
_MAX_ATTRIBUTES = 64  # of one element
_MAX_TEXT = 4096  # characters of a name or an attribute
_ENCODINGS = ("utf-8", "us-ascii", "ascii", "iso-8859-1", "utf-16")
_DECLARED = re.compile(rb"""(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\sencoding\s*=\s*["']([^"'>]*)""")


class _RefusedError(ValueError):
    """The tree is not one that we want to have in memory."""


class _Builder(ET.TreeBuilder):
    """Builds a tree that is neither deep nor huge."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self._left, self._depth = elements, 0

    def start(self, tag: Any, attrs: Any) -> ET.Element:
        self._left -= 1
        self._depth += 1
        if self._left < 0:
            raise _RefusedError("too many elements")
        if self._depth > _MAX_DEPTH:
            raise _RefusedError(f"more than {_MAX_DEPTH} elements in each other")
        if len(attrs) > _MAX_ATTRIBUTES:
            raise _RefusedError(f"<{tag[:60]}> has {len(attrs)} attributes, at most {_MAX_ATTRIBUTES} are read")
        if len(tag) > _MAX_TEXT or any(len(key) + len(value) > _MAX_TEXT for key, value in attrs.items()):
            raise _RefusedError(f"<{tag[:60]}> has a name or attribute of more than {_MAX_TEXT} characters")
        return super().start(tag, attrs)

    def end(self, tag: Any) -> ET.Element:
        self._depth -= 1
        return super().end(tag)


def read_xml(path: str | Path, expected: str) -> ET.Element:
    """Read a file.

    Raises:
        ModelError: it cannot be read, or as :func:`parse_xml`.
    """
    try:
        content = read_regular(path, MAX_XML_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{path}: cannot be read ({reason}): expected {expected}", str(path), expected) from error
    return parse_xml(content, str(path), expected)


def parse_xml(content: bytes, file: str, expected: str, elements: int = _MAX_ELEMENTS) -> ET.Element:
    """Parse the bytes of a file. ``expected``: as in :func:`read_xml`; ``elements``: that it may have.

    Raises:
        ModelError: broken, with a document type, deep, huge, or in an encoding that other parsers may read otherwise.
    """
    try:
        # UTF-8 and what the first bytes or the declaration say, of those that every parser knows.
        declared = _DECLARED.match(content)
        if declared and declared[1].decode("latin-1").lower() not in _ENCODINGS:
            raise _RefusedError(f"its encoding is none of {', '.join(_ENCODINGS)}")
        parser = DefusedXMLParser(target=_Builder(elements), forbid_dtd=True)
        parser.feed(content)
        root: ET.Element = parser.close()
    except DefusedXmlException:
        raise ModelError(
            f"{file}: has a document type or entities: expected {expected} without", file, expected
        ) from None
    except (ET.ParseError, ValueError, LookupError, RecursionError) as error:
        # ValueError, LookupError: an encoding that is unknown or wrong.
        raise ModelError(
            f"{file}: broken XML ({short(str(error), 200)[1:-1]}): expected {expected}", file, expected
        ) from error
    return root
