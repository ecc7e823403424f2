"""Oracles for tests of geometry that share no code with the package, and obstacles of all kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls

from safe_sysid.robot import SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope
from safe_sysid.robot.scenes.obstacles import Obstacle


def hull_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Distance of the convex hulls of two point sets, by non-negative least squares (good to about 1e-9 here)."""
    weight = 1e3
    ones = np.zeros((2, len(a) + len(b)))
    ones[0, : len(a)] = ones[1, len(a) :] = weight
    x, _ = nnls(np.vstack([np.hstack([a.T, -b.T]), ones]), np.array([0, 0, 0, weight, weight]))
    left, right = x[: len(a)], x[len(a) :]
    return float(np.linalg.norm(left @ a / left.sum() - right @ b / right.sum()))


def one_sided_slopes(
    f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Smaller and larger of the difference quotients to both sides, each (values, variables)."""
    here = f(x)[:, None]
    ahead, behind = (np.array([f(x + sign * step * along) for along in np.eye(x.size)]).T for sign in (1.0, -1.0))
    forward, backward = (ahead - here) / step, (here - behind) / step
    return np.minimum(forward, backward), np.maximum(forward, backward)


def write_obj(path: str, vertices: np.ndarray, triangles: np.ndarray) -> None:
    """A mesh as an OBJ file."""
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
    lines += [f"f {a} {b} {c}" for a, b, c in (triangles + 1).tolist()]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def write_stl(path: str, vertices: np.ndarray, triangles: np.ndarray) -> None:
    """A mesh as a binary STL file."""
    record = np.zeros(len(triangles), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    record["corners"] = vertices[triangles]
    with open(path, "wb") as file:
        file.write(b"\0" * 80 + np.uint32(len(triangles)).tobytes() + record.tobytes())


def random_obstacles(rng: np.random.Generator) -> tuple[Obstacle, ...]:
    """One of each kind, turned and placed at random."""
    place = iter(rng.uniform(-1.0, 1.0, (9, 3)))
    turn = iter(rng.uniform(-3.0, 3.0, (9, 3)))
    return (
        SceneBox("box", next(place), next(turn), rng.uniform(0.02, 0.5, 3)),
        SceneSphere("sphere", next(place), 0.1),
        SceneCapsule("capsule", next(place), 0.05, next(turn), float(rng.choice([0.0, 0.3]))),
        SceneMesh("mesh", next(place), next(turn), rng.normal(scale=0.1, size=(int(rng.integers(1, 90)), 3))),
        SceneZonotope("zonotope", next(place), rng.normal(scale=0.1, size=(int(rng.integers(1, 7)), 3))),
    )
