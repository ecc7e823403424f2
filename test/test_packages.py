"""Files named as package://NAME/PATH: found where packages lie, and never outside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot import load_robot
from safe_sysid.robot.files.meshes import mesh_path
from safe_sysid.robot.files.packages import is_package_uri, package_directories, package_file

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has installed must not answer."""
    for variable in ("AMENT_PREFIX_PATH", "ROS_PACKAGE_PATH"):
        monkeypatch.delenv(variable, raising=False)


def put(folder: Path, text: str = "x") -> Path:
    path = folder / "meshes" / "a b.stl"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def declare(folder: Path) -> None:
    """Say that a folder is a package."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.xml").write_text("<package/>", encoding="utf-8")


URI = "package://an_arm/meshes/a%20b.stl"


def test_every_place_where_packages_lie_is_looked_at_the_most_specific_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, ament, ros, above, prefix, wheel = (
        tmp_path / name for name in ("given", "ament", "ros", "above", "prefix", "wheel")
    )
    beside = above / "an_arm" / "urdf" / "a.urdf"
    declare(above / "an_arm")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "path", ["", str(wheel)])
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'nothing'}:{ament}")
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(ros))
    places = [
        put(given / "an_arm"),
        put(ament / "share" / "an_arm"),
        put(ros / "an_arm"),
        put(above / "an_arm"),
        put(prefix / "share" / "an_arm"),
        put(wheel / "cmeel.prefix" / "share" / "an_arm"),
    ]
    for path in places:
        assert package_file(URI, beside, [given]) == path
        path.unlink()
    with pytest.raises(ModelError) as refused:
        package_file(URI, beside, [given])
    assert all(str(path.parent.parent) in str(refused.value) for path in places)


def test_a_folder_that_is_the_package_itself_is_one(tmp_path: Path) -> None:
    path = put(tmp_path / "an_arm")
    assert package_file(URI, tmp_path / "x.yaml", [tmp_path / "an_arm"]) == path
    assert package_directories("an_arm", path) == [], "nobody said that it is a package"
    declare(tmp_path / "an_arm")
    assert package_directories("an_arm", path) == [tmp_path / "an_arm"]


@pytest.mark.parametrize("uri", ["package://etc/passwd", "package://secret/key", "package://home/a.stl"])
def test_a_folder_above_that_is_no_package_is_not_searched(tmp_path: Path, uri: str) -> None:
    beside = tmp_path / "home" / "user" / "robots" / "arm.yaml"
    for file in (tmp_path / "secret" / "key", tmp_path / "home" / "a.stl", beside.parent / "secret" / "key"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x", encoding="utf-8")
    with pytest.raises(ModelError, match="no package"):
        package_file(uri, beside)


def test_a_link_inside_a_package_is_followed(tmp_path: Path) -> None:
    real = put(tmp_path / "source")
    linked = tmp_path / "install" / "an_arm" / "meshes"
    linked.mkdir(parents=True)
    (linked / "a b.stl").symlink_to(real)
    assert package_file(URI, tmp_path, [tmp_path / "install"]).samefile(real)


@pytest.mark.parametrize(
    "uri",
    [
        "package://an_arm/../secret", "package://an_arm/meshes/../../secret", "package://an_arm/%2e%2e/secret",
        "package://an_arm/%2E./secret", "package://an_arm//etc/passwd", "package://an_arm/%2Fetc/passwd",
        "package://../secret", "package://./secret", "package://%2e%2e/secret", "package:////etc/passwd",
        "package://user@an_arm/secret", "package://an_arm", "package://an_arm/", "package://an_arm/.",
        "package://an_arm/a\0b", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_a_name_that_points_out_of_its_package_is_refused(tmp_path: Path, uri: str) -> None:
    put(tmp_path / "an_arm")
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (tmp_path / "an_arm" / "secret").write_text("not this", encoding="utf-8")
    with pytest.raises(ModelError, match=r"without `\.\.`"):
        package_file(uri, tmp_path / "robot.yaml", [tmp_path])


_PIECES = ["..", ".", "%2e%2e", "%2e", "/", "%2f", "meshes", "secret", "a%20b.stl", "an_arm", "%00", "\\"]


@given(st.lists(st.sampled_from(_PIECES), max_size=8))
def test_whatever_the_name_is_the_file_lies_inside_the_package(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "packages"
    if not folder.exists():
        put(folder / "an_arm")
        (folder / "secret").write_text("s", encoding="utf-8")
    try:
        found = package_file("package://an_arm/" + "/".join(pieces), folder / "x", [folder])
    except ModelError:
        return
    assert (folder / "an_arm").resolve() in found.resolve().parents


def test_a_third_slash_names_the_same_file_and_no_other(tmp_path: Path) -> None:
    file = put(tmp_path / "an_arm")
    assert package_file(URI.replace("//", "///"), tmp_path, [tmp_path]) == file
    with pytest.raises(ModelError, match="no package etc"):
        package_file("package:///etc/passwd", tmp_path / "robot.yaml")


def test_a_package_that_is_nowhere_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no package no_such_arm.*AMENT_PREFIX_PATH") as refused:
        package_file("package://no_such_arm/a.stl", tmp_path / "robot.yaml")
    assert refused.value.value == "package://no_such_arm/a.stl"
    assert "robot.yaml" in str(refused.value)


def test_meshes_and_urdfs_are_named_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "an_arm")
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path))
    assert mesh_path(URI, "/x/y.urdf") == path
    assert is_package_uri("Package://an_arm/a")
    assert not is_package_uri("meshes/a.stl")
    urdf = tmp_path / "an_arm" / "urdf" / "three_joint.urdf"
    urdf.parent.mkdir()
    urdf.write_bytes((ROOT / "urdf" / "three_joint.urdf").read_bytes())
    named = load_robot("three_joint", urdf="package://an_arm/urdf/three_joint.urdf")
    assert named.joint_names == load_robot("three_joint").joint_names
    with pytest.raises(ConfigError) as refused:
        load_robot("three_joint", urdf="package://an_arm/../three_joint.urdf")
    assert refused.value.key == "urdf"
    assert "without `..`" in refused.value.expected
