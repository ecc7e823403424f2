"""The picture that moves on README's first page: a real run, its arm and the interval of the payload's mass.

    python benchmarks/animation.py runs/<that run>        # writes docs/images/run.gif

The arm stands as the plant's record says; beside it every interval of the mass that was published, and the truth.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial.transform import Rotation

from safe_sysid.report.run.facts import read_facts
from safe_sysid.report.run.robot import robot_of_run
from safe_sysid.robot.model import RobotModel
from safe_sysid.view.arm_shapes import LinkShape, arm_shapes

mpl.use("Agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LARGEST = 1_500_000


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="of a demo that was judged")
    parser.add_argument("--out", type=Path, default=IMAGES / "run.gif")
    parser.add_argument("--frames", type=int, default=48)
    options = parser.parse_args()
    facts = read_facts(options.run_dir)
    model = robot_of_run(facts)
    if model is None or facts.summary is None:
        raise SystemExit(f"{options.run_dir}: expected the run of a packaged robot, judged")
    with np.load(options.run_dir / "plant.npz") as plant:
        stamps, q = plant["t"], plant["q"]
    shapes = arm_shapes(model, facts.robot)
    row = facts.rows[0]
    updates = [(u.time, float(u.lower[0]), float(u.upper[0])) for u in facts.updates]

    figure = plt.figure(figsize=(8.4, 4.2), dpi=80)
    arm = figure.add_axes((0.0, 0.0, 0.52, 1.0), projection="3d")
    mass = figure.add_axes((0.62, 0.16, 0.36, 0.66))

    def draw(frame: int) -> None:
        now = stamps[0] + (stamps[-1] - stamps[0]) * frame / (options.frames - 1)
        pose = q[min(int(np.searchsorted(stamps, now)), len(q) - 1)]
        _draw_arm(arm, model, shapes, pose)
        mass.clear()
        known = [(0.0, row.prior_lower, row.prior_upper), *(u for u in updates if u[0] <= now)]
        times = [t for t, _, _ in known] + [now]
        mass.fill_between(
            times, [a for _, a, _ in known] + [known[-1][1]], [b for _, _, b in known] + [known[-1][2]],
            step="post", color="#2f7de1", alpha=0.45,
        )  # fmt: skip
        mass.axhline(row.truth, color="#c2314a", lw=1.2)
        mass.set(xlim=(0.0, stamps[-1]), ylim=(row.prior_lower, row.prior_upper), xlabel="s")
        mass.set_title(
            f"{now:.1f} s: last link, hand, payload {known[-1][1]:.2f} to {known[-1][2]:.2f} kg", fontsize=10
        )
        mass.text(0.1, row.truth, "truth", color="#c2314a", va="bottom", fontsize=8)

    FuncAnimation(figure, draw, frames=options.frames).save(options.out, PillowWriter(fps=8))
    size = options.out.stat().st_size
    print(f"{options.out}: {size} bytes")
    if size > LARGEST:
        raise SystemExit(f"{options.out}: {size} bytes: expected at most {LARGEST}")


def _draw_arm(axes: Any, model: RobotModel, shapes: tuple[LinkShape, ...], pose: np.ndarray) -> None:
    """All shapes at a pose, lit from above."""
    axes.clear()
    kin, turn, position, placed = model.kinematics, np.eye(3), np.zeros(3), []
    for j, value in enumerate(pose):  # no arm with a joint that slides is packaged
        position = position + turn @ kin.translation[j]
        turn = turn @ kin.rotation[j] @ Rotation.from_rotvec(kin.axis[j] * value).as_matrix()
        placed.append((turn, position))
    light = np.array([0.3, -0.5, 0.81])
    for shape in shapes:
        points = np.asarray(shape.vertices)
        if shape.joint >= 0:
            points = points @ placed[shape.joint][0].T + placed[shape.joint][1]
        triangles = points[np.asarray(shape.faces)]
        normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        shade = 0.55 + 0.45 * np.abs(normals / np.where(lengths > 0.0, lengths, 1.0) @ light)
        colours = np.clip(shade[:, None] * np.asarray(shape.colour)[None] / 255.0, 0.0, 1.0)
        axes.add_collection3d(Poly3DCollection(triangles, facecolors=colours, edgecolors="none"))
    axes.set(xlim=(-0.7, 0.7), ylim=(-0.7, 0.7), zlim=(0.0, 1.1), xlabel="")
    axes.set_box_aspect((1.4, 1.4, 1.1), zoom=1.9)
    axes.view_init(18.0, -60.0)
    axes.set_axis_off()


if __name__ == "__main__":
    main()
