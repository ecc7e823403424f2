"""The licence of an installed package, as SPDX writes it, and whether it fits a package under Apache-2.0."""

from __future__ import annotations

import importlib.metadata
import re
import xml.etree.ElementTree as ElementTree

PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "LLVM-exception",
    "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Public-Domain", "Qhull", "Zlib", "any OSI", "matplotlib",
}  # fmt: skip
#: Licences that ask more, and why that is fine here.
WEAK = {
    "MPL-2.0": "asks that changed files of *theirs* stay open; we change none and ship none",
    "LGPL-3.0-or-later": "`jrl-cmakemodules`: CMake files with which others were built; nothing of it is linked or run",
}
#: Where the package says nothing, or something that is no licence's name: read in its licence file.
READ = {
    "apsw": "any OSI",
    "cmeel-qhull": "Qhull",
    "docutils": "Public-Domain AND BSD-2-Clause",  # its GPL file, for Emacs, is not in the wheel
    "ros-fastcdr": "Apache-2.0",
    "ros-fastrtps": "Apache-2.0",
    "setuptools": "MIT",  # brought by Python itself, in versions whose metadata does not say it
    "viser": "Apache-2.0",  # its metadata says MIT, the licence file in its wheel is Apache 2.0
    "xacro": "BSD-3-Clause",
}
ALIASES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD",  # two clauses or three: the package does not say
    "bsl1.0": "BSL-1.0",
    "isc license": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "public domain": "Public-Domain",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
    "zlib license": "Zlib",
}


class LicenceError(Exception):
    """A licence that cannot be told, or does not fit."""


def atoms(expression: str) -> list[str]:
    """The licences in an expression: `MPL-2.0 AND MIT` has two."""
    return [part.strip("() ") for part in re.split(r"\s+(?:AND|OR|WITH)\s+", expression)]


def fits(expression: str) -> bool:
    """True if every licence named is known to fit."""
    return all(part in PERMISSIVE or part in WEAK for part in atoms(expression))


def licence_of(package: importlib.metadata.Distribution) -> str:
    """The licence of an installed package, from what it says of itself.

    Args:
        package: with its metadata; packages of ROS bring package.xml.

    Returns:
        an expression of SPDX's short names.

    Raises:
        LicenceError: none is given, none that is known, or one that does not fit.
    """
    name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
    said = _said(package)
    known = [text for text in (ALIASES.get(one.lower(), one) for one in said) if fits(text)]
    expression = READ.get(name) or (" AND ".join(dict.fromkeys(known)) if len(known) == len(said) else "")
    if not expression:
        raise LicenceError(f"{name}: licence {said or 'not given'}; expected one that scripts/licences.py knows")
    return expression


def _said(package: importlib.metadata.Distribution) -> list[str]:
    """What the package calls its licence, from the most exact source that it has."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return [expression]
    field = (metadata.get("License") or "").strip()
    if field and "\n" not in field and (fits(field) or field.lower() in ALIASES) and field != "BSD":
        return [field]
    prefix = "License :: OSI Approved :: "
    classified = [text for text in metadata.get_all("Classifier") or () if text.startswith(prefix)]
    if classified:
        return [text.removeprefix(prefix) for text in classified]
    manifests = [file for file in package.files or () if file.name == "package.xml"]
    found = []
    for file in manifests:
        for element in ElementTree.parse(str(package.locate_file(file))).getroot().iter("license"):
            found.append((element.text or "").strip())
    return found or ([field] if field else [])
