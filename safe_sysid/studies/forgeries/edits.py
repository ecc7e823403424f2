"""Ways to forge a run directory: each changes what it claims, with every hash that a forger can compute made right."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from safe_sysid.apps.verify.published import TOLD
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.bounds_file import bounds_of, write_bounds
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.report.identification.result import IdentificationResult, payload_alone, write_result
from safe_sysid.report.identification.urdf import write_urdf
from safe_sysid.studies.forgeries.directory import ForgedRun

__all__ = ["EDITS", "ForgeryScene", "leaves"]

Leaf = tuple[str | int, ...]
#: Nothing rests on these parts of a certificate: who wrote it, what its robot is called, errors (larger ones are as
#: well proved), and how the chain and the arrays are named, which the forger makes right again.
_NO_CLAIM = ("written_by", "errors", "robot.name", "arrays")


@dataclass(frozen=True, eq=False)
class ForgeryScene:
    """What a forger works with."""

    folder: Path
    run: ForgedRun  #: that it is of. other: the run of another arm.
    other: ForgedRun
    rng: np.random.Generator

    def pick(self, things: Any) -> Any:
        """One of some."""
        things = list(things)
        return things[int(self.rng.integers(len(things)))]

    @property
    def certificates(self) -> list[Path]:
        """In order."""
        return sorted(self.folder.glob("certificate_*.json"))


def leaves(content: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """All values that are neither objects nor lists, with their places."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from leaves(value, (*path, i))
    else:
        yield path, content


def pattern_of(path: Leaf) -> str:
    """``("updates", 3, "rows")`` as ``updates[].rows``."""
    text = ""
    for part in path:
        text += "[]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _is_among(path: Leaf, names: Any) -> bool:
    pattern = pattern_of(path)
    return any(pattern == name or pattern.startswith((f"{name}.", f"{name}[")) for name in names)


def _put(content: Any, path: Leaf, value: Any) -> None:
    for part in path[:-1]:
        content = content[part]
    content[path[-1]] = value


def _other_value(scene: ForgeryScene, value: Any, by: float = 1e-6) -> Any:
    """Something else of the same kind, or of another."""
    rng = scene.rng
    if isinstance(value, bool):
        return not value
    if value is None:
        return scene.pick([0.0, "x", True])
    if isinstance(value, int):
        return scene.pick([value + 1, value - 1, -value - 1, 10 * value + 7, str(value)])
    if isinstance(value, float):
        step = by * (1.0 + abs(value)) * 10.0 ** float(rng.uniform(0.0, 6.0))
        return scene.pick([value + step, value - step, -value - step, value + 1e6 * step])
    return scene.pick([value + "x", value[:-1] + "#", "", value[::-1] + "~"])


# -- result.json ------------------------------------------------------------------------------------------------------


def result_field(scene: ForgeryScene) -> str:
    """One field of the result that is claimed, of whatever kind."""
    path = scene.folder / "result.json"
    content = json.loads(path.read_text())
    known = [(leaf, value) for leaf, value in leaves(content) if not _is_among(leaf, TOLD)]
    leaf, value = scene.pick(known)
    bit_by_bit = isinstance(value, float) and leaf[0] != "payload" and scene.rng.random() < 0.3
    new = float(np.nextafter(value, np.inf)) if bit_by_bit else _other_value(scene, value)
    _put(content, leaf, new)
    path.write_text(json.dumps(content, indent=2))
    return f"result.json {pattern_of(leaf)}: {value!r} -> {new!r}"


def result_structure(scene: ForgeryScene) -> str:
    """A key that is gone, new or there twice; an entry of a list that is gone, twice or elsewhere."""
    path = scene.folder / "result.json"
    text = path.read_text()
    content = json.loads(text)
    what = scene.pick(["gone", "new", "twice", "list"])
    key = scene.pick([k for k in content if k not in TOLD])
    if what == "gone":
        del content[key]
    elif what == "new":
        content[f"{key}_"] = content[key]
    elif what == "twice":
        forged = {**content, "guaranteed": True, key: _other_value(scene, "x")}
        text = json.dumps(content)[:-1] + f", {json.dumps(key)}: {json.dumps(forged[key])}}}"
        path.write_text(text)
        return f"result.json: {key} twice"
    else:
        name = scene.pick(["parameters", "updates"])
        entries, i = content[name], int(scene.rng.integers(len(content[name])))
        scene.pick(
            [
                lambda: entries.pop(i),
                lambda: entries.append(copy.deepcopy(entries[i])),
                lambda: entries.reverse() if len(entries) > 1 else entries.pop(),
            ]
        )()
        key = name
    path.write_text(json.dumps(content, indent=2))
    return f"result.json: {key} {what}"


# -- bounds.yaml ------------------------------------------------------------------------------------------------------


def bounds_field(scene: ForgeryScene) -> str:
    """One field of the bounds file, a key that is gone or new, or a comment."""
    path = scene.folder / "bounds.yaml"
    text = path.read_text()
    remarks = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    content = yaml.safe_load(text)
    what = scene.pick(["field"] * 6 + ["gone", "new", "remark", "twice"])
    leaf, value = scene.pick(leaves(content))
    if what == "field":
        bit_by_bit = isinstance(value, float) and scene.rng.random() < 0.3
        new = float(np.nextafter(value, np.inf)) if bit_by_bit else _other_value(scene, value)
        _put(content, leaf, new)
    elif what == "gone":
        leaf = (scene.pick(content),)
        if leaf[0] == "assumed":
            leaf = ("assumed", scene.pick(content["assumed"]))
            del content["assumed"][leaf[1]]
        else:
            del content[leaf[0]]
    elif what == "new":
        leaf = ("assumed", "more")
        content["assumed"]["more"] = 1.0
    elif what == "remark":
        text = re.sub(r"frame of (\S+)\.", r"frame of \1_.", text)
        path.write_text(text)
        return "bounds.yaml: comment"
    else:
        key = scene.pick(["epoch", "seq", "guaranteed", "robot"])
        path.write_text(text + f"{key}: {json.dumps(content[key])}\n")
        return f"bounds.yaml: {key} twice"
    path.write_text(f"{remarks}\n{yaml.safe_dump(content, sort_keys=False)}")
    return f"bounds.yaml {what} {pattern_of(leaf)}"


# -- payload.urdf -----------------------------------------------------------------------------------------------------


def urdf_text(scene: ForgeryScene) -> str:
    """A number, a word or a line of the payload's URDF."""
    path = scene.folder / "payload.urdf"
    lines = path.read_text().splitlines()
    what = scene.pick(["number", "number", "number", "word", "gone", "twice"])
    i = int(scene.rng.integers(1, len(lines)))
    if what == "number":
        numbered = [k for k, line in enumerate(lines) if re.search(r"\d\.\d", line) and k]
        i = scene.pick(numbered)
        found = scene.pick(re.finditer(r"-?\d+\.\d+(?:e-?\d+)?", lines[i]))
        value = float(found.group())
        new = value + (1e-6 + 10.0 ** float(scene.rng.uniform(-6, 0)) * abs(value)) * scene.pick([-1.0, 1.0])
        lines[i] = lines[i][: found.start()] + repr(new) + lines[i][found.end() :]
    elif what == "word":
        found = scene.pick(re.finditer(r"[A-Za-z]+", lines[i] if re.search("[A-Za-z]", lines[i]) else lines[0]))
        i = i if re.search("[A-Za-z]", lines[i]) else 0
        lines[i] = lines[i][: found.start()] + found.group() + "x" + lines[i][found.end() :]
    elif what == "gone":
        del lines[i]
    else:
        lines.insert(i, lines[i])
    path.write_text("\n".join(lines) + "\n")
    return f"payload.urdf: {what} in line {i + 1}"


# -- certificates -----------------------------------------------------------------------------------------------------


def _rewritten(
    scene: ForgeryScene, changed: Path, header: Callable[[Any], None], arrays: Callable[[Any], None]
) -> None:
    """Change one certificate and make all hashes right: that of its arrays, and those that later ones name."""
    before: str | None = None
    for path in scene.certificates:
        head = json.loads(path.read_text())
        if path == changed:
            data = path.with_suffix(".npz")
            with np.load(data, allow_pickle=False) as file:
                content = {name: file[name].copy() for name in file.files}
            arrays(content)
            np.savez(data, **content)
            head["arrays"]["sha256"] = hashlib.sha256(data.read_bytes()).hexdigest()
            header(head)
        if path >= changed and before is not None:
            head["previous_sha256"] = before
        if path >= changed:
            path.write_text(json.dumps(head))
        before = hashlib.sha256(path.read_bytes()).hexdigest()


def certificate_field(scene: ForgeryScene) -> str:
    """One field of a certificate's header, later certificates naming the forged one."""
    path = scene.pick(scene.certificates)
    known = [
        (leaf, value)
        for leaf, value in leaves(json.loads(path.read_text()))
        if not _is_among(leaf, _NO_CLAIM) and leaf != ("previous_sha256",)
    ]
    leaf, value = scene.pick(known)
    new = _other_value(scene, value)
    _rewritten(scene, path, lambda head: _put(head, leaf, new), lambda arrays: None)
    return f"{path.name} {pattern_of(leaf)}: {value!r} -> {new!r}"


def narrower_everywhere(scene: ForgeryScene) -> str:
    """A bound that is better than the proved one, in every file, as the package itself would write them."""
    last, rng = scene.certificates[-1], scene.rng
    k, side = int(rng.integers(10)), scene.pick(["lower", "upper"])
    with np.load(last.with_suffix(".npz"), allow_pickle=False) as file:
        ends = {name: file[name].copy() for name in ("lower", "upper")}
    low, high = (float(end[k]) for end in scene.run.proved)
    step = (high - low) * 10.0 ** float(rng.uniform(-9.0, -0.01))
    if rng.random() < 0.2:  # by the last bit
        step = 0.0
    ends[side][k] = np.nextafter(low + step, np.inf) if side == "lower" else np.nextafter(high - step, -np.inf)
    if not ends["lower"][k] <= ends["upper"][k]:
        ends[side][k] = ends["upper" if side == "lower" else "lower"][k]

    def header(head: Any) -> None:
        head["bounds"][k][side] = float(ends[side][k])

    def arrays(content: Any) -> None:
        content[side][k] = ends[side][k]

    _rewritten(scene, last, header, arrays)
    _publish(scene, ends)
    return f"{side} bound of parameter {k} better by {step:.3g} in every file"


def _publish(scene: ForgeryScene, ends: dict[str, Any]) -> None:
    """Write all three files for other bounds, consistently."""
    folder, model = scene.folder, scene.run.model
    result = IdentificationResult.model_validate_json((folder / "result.json").read_text())
    nominal = np.clip([p.nominal for p in result.parameters], ends["lower"], ends["upper"])
    parameters = [
        p.model_copy(update={"lower": float(low), "nominal": float(value), "upper": float(high)})
        for p, low, value, high in zip(result.parameters, ends["lower"], nominal, ends["upper"], strict=True)
    ]
    updates = list(result.updates)
    numbers = {"lower": ends["lower"].tolist(), "nominal": nominal.tolist(), "upper": ends["upper"].tolist()}
    updates[-1] = updates[-1].model_copy(update=numbers)
    alone = payload_alone(model, ends["lower"], nominal, ends["upper"])
    result = result.model_copy(update={"parameters": parameters, "updates": updates, "payload": alone})
    write_result(folder / "result.json", result)
    write_urdf(folder / "payload.urdf", alone, model.name, True)
    old = yaml.safe_load((folder / "bounds.yaml").read_text())
    values = (ends["lower"], nominal, ends["upper"])
    bounds = bounds_of(model, values, (old["epoch"], old["seq"]), result.method, True, old["certificate"])
    write_bounds(folder / "bounds.yaml", bounds)


# -- files ------------------------------------------------------------------------------------------------------------


def file_gone(scene: ForgeryScene) -> str:
    """A file is missing."""
    path = scene.pick(sorted(scene.folder.iterdir()))
    path.unlink()
    return f"{path.name} gone"


def file_of_another(scene: ForgeryScene) -> str:
    """A file of another arm's run in the place of this one's."""
    names = [p.name for p in sorted(scene.other.folder.iterdir()) if (scene.folder / p.name).is_file()]
    name = scene.pick(names)
    shutil.copy(scene.other.folder / name, scene.folder / name)
    return f"{name} of another run"


def file_cut(scene: ForgeryScene) -> str:
    """A file ends early."""
    path = scene.pick(sorted(scene.folder.iterdir()))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * float(scene.rng.uniform(0.0, 0.95)))])
    return f"{path.name} cut off"


def certificates_swapped(scene: ForgeryScene) -> str:
    """Two certificates change names; or one is there twice."""
    paths = scene.certificates
    if len(paths) > 1 and scene.rng.random() < 0.5:
        a, b = paths[0], paths[-1]
        for suffix in (".json", ".npz"):
            one, two = a.with_suffix(suffix), b.with_suffix(suffix)
            first = one.read_bytes()
            one.write_bytes(two.read_bytes())
            two.write_bytes(first)
        return "certificates swapped"
    path = scene.pick(paths)
    for suffix in (".json", ".npz"):
        shutil.copy(path.with_suffix(suffix), scene.folder / f"certificate_0_00099{suffix}")
    return f"{path.name} twice"


def log_goes_on(scene: ForgeryScene) -> str:
    """The log has more samples than the certificates cover; the result is made to say so."""
    m, rng = scene.run.log.measurements, scene.rng
    count = int(rng.integers(40, 120))
    stamps = m.stamps[-1] + (m.stamps[1] - m.stamps[0]) * np.arange(1, count + 1)
    tail = m[len(m) - count :]
    effort = tail.effort * float(rng.uniform(1.5, 3.0)) + float(rng.uniform(-20.0, 20.0))
    longer = Measurements.concatenate([m, Measurements(stamps, tail.q[::-1], -tail.qd[::-1], effort)])
    names = scene.run.model.joint_names
    write_log(scene.folder / "log.npz", names, longer, scene.run.log.origin_ns)
    path = scene.folder / "result.json"
    content = json.loads(path.read_text())
    content["log"] |= {"samples": len(longer), "end_s": float(longer.stamps[-1]), "sha256": log_digest(names, longer)}
    path.write_text(json.dumps(content, indent=2))
    return f"{count} samples more"


def log_changed(scene: ForgeryScene) -> str:
    """One number of the log."""
    m = scene.run.log.measurements
    arrays = {name: np.array(getattr(m, name)) for name in ("stamps", "q", "qd", "effort")}
    name = scene.pick(arrays)
    flat = arrays[name].reshape(-1)
    i = int(scene.rng.integers(flat.size))
    flat[i] = np.nextafter(flat[i], np.inf) if scene.rng.random() < 0.5 else flat[i] + 1e-3
    changed = replace(m, **arrays)
    write_log(scene.folder / "log.npz", scene.run.model.joint_names, changed, scene.run.log.origin_ns)
    return f"log.npz: one number of {name}"


def status_refuted(scene: ForgeryScene) -> str:
    """The run itself says beside its certificates that it was refuted."""
    what = scene.pick(["withdrawn", "identifier"])
    if what == "withdrawn":
        content: dict[str, Any] = {"epoch": 0, "reason": "no parameters agree with all measurements"}
        (scene.folder / "withdrawn_0.json").write_text(json.dumps(content))
    else:
        content = {"updates": [{"status": "OK"}, {"status": "EMPTY_SET", "identity": "0:1", "message": "empty"}]}
        (scene.folder / "identifier.json").write_text(json.dumps(content))
    return what


#: Ways to forge, and how often each is taken.
EDITS: dict[str, tuple[Callable[[ForgeryScene], str], float]] = {
    "field of result.json": (result_field, 0.26),
    "structure of result.json": (result_structure, 0.05),
    "bounds.yaml": (bounds_field, 0.16),
    "payload.urdf": (urdf_text, 0.10),
    "field of a certificate": (certificate_field, 0.14),
    "narrower everywhere": (narrower_everywhere, 0.12),
    "file gone": (file_gone, 0.03),
    "file of another run": (file_of_another, 0.03),
    "file cut off": (file_cut, 0.03),
    "certificates swapped": (certificates_swapped, 0.02),
    "log goes on": (log_goes_on, 0.03),
    "log changed": (log_changed, 0.01),
    "refuted": (status_refuted, 0.02),
}
