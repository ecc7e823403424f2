"""The view's server as an attacker meets it: other origins, other names, other paths, other messages."""

from __future__ import annotations

import asyncio
import http.client
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("viser", reason="needs the extra `view`")

import viser
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from safe_sysid.view.access_control import AccessControl
from safe_sysid.view.screening import MOST_BYTES, BrowserScreen
from safe_sysid.view.server import ViewServer, ViewServerError, open_server

CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": [1, 0, 0, 0], "position": [1.0, 2.0, 3.0], "look_at": [0, 0, 0],
    "up_direction": [0, 0, 1], "fov": 0.8, "near": 0.1, "far": 100, "image_height": 600, "image_width": 800,
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ViewServer]:
    running = open_server(port=0, label="test")
    yield running
    running.close()


def ask(server: ViewServer, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    asking = http.client.HTTPConnection("127.0.0.1", server.access.port, timeout=20)
    asking.request("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    response = asking.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    return response


def cookie(server: ViewServer) -> str:
    return f"{server.access.cookie}={server.access.key}"


def browser(server: ViewServer, **changes: str | None) -> ClientConnection:
    """A socket as our page opens it, with changed headers."""
    origin = changes.pop("Origin", f"http://127.0.0.1:{server.access.port}")
    headers = {key: value for key, value in {"Cookie": cookie(server), **changes}.items() if value is not None}
    return connect(
        f"ws://127.0.0.1:{server.access.port}",
        origin=origin,  # type: ignore[arg-type]
        additional_headers=headers,
        subprotocols=[f"viser-v{viser.__version__}"],  # type: ignore[list-item]
        open_timeout=20,
        close_timeout=2,
        proxy=None,
    )


def send(socket: ClientConnection, **message: Any) -> None:
    socket.send(msgspec.msgpack.encode(message))


def talk(socket: ClientConnection, frames: list[bytes]) -> None:
    for frame in frames:
        socket.send(frame)
    while True:
        socket.recv(timeout=20)


def until(condition: Any, patience: float = 20.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def test_the_printed_address_gives_a_cookie_and_then_the_page(server: ViewServer) -> None:
    first = ask(server, server.address.partition(str(server.access.port))[2])
    assert first.status == 303
    assert first.getheader("Location") == "/"
    crumb = first.getheader("Set-Cookie")
    assert crumb.startswith(cookie(server))
    assert {"HttpOnly", "SameSite=Lax"} <= set(crumb.split("; "))
    page = ask(server, Cookie=cookie(server))
    assert page.status == 200
    policy = page.getheader("Content-Security-Policy")
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert page.body.count(nonce.encode()) == 1  # the script that stands before viser's
    assert policy.count("'sha256-") == 1  # viser's
    assert "unsafe-inline'; style" not in policy
    assert f"connect-src ws://127.0.0.1:{server.access.port} data: blob:" in policy
    assert nonce not in ask(server, Cookie=cookie(server)).getheader("Content-Security-Policy")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/index.html", 404),
        ("/../../../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/..%5c..%5c..%5cetc/passwd", 404),
        ("//etc/passwd", 404),
        ("/__init__.py", 404),
        ("/?websocket=ws://attacker.example", 404),  # viser's page would talk to that server
        ("/?key=&websocket=ws://attacker.example", 404),
        ("/?key=wrong", 403),
        ("/?key=wrong&key=wrong", 403),
        ("/?playbackPath=http://attacker.example", 404),
    ],
)
def test_there_is_one_page_and_no_file(server: ViewServer, path: str, status: int) -> None:
    response = ask(server, path, Cookie=cookie(server))
    assert response.status == status
    assert len(response.body) < 200
    assert b"root:" not in response.body


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:80", "127.0.0.1.attacker.example", "localhost.attacker.example", ""]
)
def test_a_rebound_name_is_refused(server: ViewServer, host: str) -> None:
    assert ask(server, Host=host, Cookie=cookie(server)).status in (400, 403)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("Origin", site) for site in ("http://attacker.example", "http://localhost:3000", "null", None)),
        *(("Cookie", crumb) for crumb in (None, "safe_sysid_view_1=x", "=")),
    ],
)
def test_a_socket_of_another_page_or_without_the_key_is_refused(
    server: ViewServer, header: str, value: str | None
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        browser(server, **{header: value})
    assert refused.value.response.status_code == 403


def test_our_page_may_move_its_camera_and_press_a_button(server: ViewServer) -> None:
    pressed: list[int] = []
    button = server.viser.gui.add_button("press")
    button.on_click(lambda _: pressed.append(1))
    with browser(server) as socket:
        send(socket, **CAMERA)
        until(server.viser.get_clients)
        send(socket, type="GuiUpdateMessage", uuid=button._impl.uuid, updates={"value": True})
        until(lambda: pressed)
    button.remove()


def test_what_viser_would_do_for_anyone_is_dropped(server: ViewServer) -> None:
    gui = server.viser.gui
    html, text = gui.add_html("<b>true</b>"), gui.add_text("name", "before")
    with browser(server) as socket:
        send(socket, **CAMERA)
        send(socket, type="ShareUrlRequest")
        send(socket, type="FileTransferStartUpload", source_component_uuid="x", transfer_uuid="y", filename="f",
             mime_type="text/plain", part_count=10**9, size_bytes=10**12)  # fmt: skip
        send(socket, type="RunJavascriptMessage", source="alert(1)")
        send(socket, type="GuiFormDirtyMessage", uuid="x")
        send(socket, type="GuiUpdateMessage", uuid=html._impl.uuid, updates={"content": "<b>false</b>"})
        send(socket, type="GuiUpdateMessage", uuid=text._impl.uuid, updates={"removed": True, "value": "x"})
        send(socket, type="GuiUpdateMessage", uuid=text._impl.uuid, updates={"value": "after"})
        until(lambda: text.value == "after")
    assert html.content == "<b>true</b>"
    assert not text._impl.removed
    assert not gui._current_file_upload_states
    assert server.viser._share_tunnel is None
    html.remove()
    text.remove()


def test_large_frames_and_rubbish_end_the_connection_not_the_server(server: ViewServer) -> None:
    for frames in ([b"x" * (MOST_BYTES + 1)], [b"\xc1"] * 20_000):
        with browser(server) as socket, pytest.raises(ConnectionClosed):
            talk(socket, frames)
    assert ask(server, Cookie=cookie(server)).status == 200


def test_a_crowd_is_refused_and_leaves_room_when_it_goes(server: ViewServer) -> None:
    crowd: list[ClientConnection] = []
    with pytest.raises(InvalidStatus) as refused:
        crowd.extend(browser(server) for _ in range(40))
    assert refused.value.response.status_code == 503
    assert 4 <= len(crowd) <= 16
    for socket in crowd:
        socket.close()
    until(lambda: _comes_in(server))


def _comes_in(server: ViewServer) -> bool:
    try:
        browser(server).close()
    except InvalidStatus:
        return False
    return True


def test_two_servers_one_port(server: ViewServer) -> None:
    with pytest.raises(ViewServerError, match=f"--port {server.access.port}"):
        open_server(port=server.access.port)
    with pytest.raises(ViewServerError, match=r"--host 203\.0\.113\.7"):
        open_server("203.0.113.7", 0)


def test_a_viser_that_starts_its_server_otherwise_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viser that does not ask asyncio for its event loop has a port of its own, open to anybody: it is stopped."""
    monkeypatch.setattr(asyncio, "new_event_loop", asyncio.SelectorEventLoop)
    with pytest.raises(ViewServerError, match="open to every page"):
        open_server(port=0)


def test_viser_itself_is_at_no_port_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _listening()
    running = open_server(port=0)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert len(_listening() - before) == 1
    running.close()
    assert not list(tmp_path.iterdir())
    assert _listening() == before
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    Path(tempfile.gettempdir()).mkdir()
    with pytest.raises(ViewServerError, match="TMPDIR"):
        open_server(port=0)


def _listening() -> set[tuple[str, int]]:
    """TCP addresses where this process listens."""
    inodes = {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    tables = (Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table]
    return {(line[1], int(line[9])) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes}


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(("Host", "Origin", "Cookie", "Upgrade", "X")),
        st.one_of(
            st.sampled_from(("localhost", "127.0.0.1:8080", "[::1]:8080", "http://127.0.0.1:8080", "websocket",
                             "safe_sysid_view_8080=secret", "attacker.example", "http://attacker.example")),
            st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=30),
        ),
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(target=st.one_of(st.just("/"), st.just("/?key=secret"), st.text(max_size=40)), headers=HEADERS)
@example(target="//[", headers=[("Host", "localhost")])
@example(target="/?key=\udcff", headers=[("Host", "localhost")])
def test_whatever_is_asked_is_answered_and_only_the_key_opens(target: str, headers: list[tuple[str, str]]) -> None:
    given_headers = Headers(headers)
    verdict = AccessControl(8080, "secret").judge(target, given_headers)  # a target that is no URL, too
    assert verdict.status in (101, 200, 303, 403, 404)
    if verdict.status in (101, 200):
        assert any("safe_sysid_view_8080=secret" in value for value in given_headers.get_all("Cookie"))
        assert "attacker" not in given_headers.get_all("Host")[0]
    if verdict.status == 101:
        assert given_headers.get_all("Origin") == [f"http://{given_headers.get_all('Host')[0]}"]
    for name, value in verdict.headers:
        assert not set(name + value) & {"\r", "\n"}, "a header that makes headers"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=300) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=250, deadline=None)
@given(raw=st.one_of(st.binary(max_size=300), VALUES.map(msgspec.msgpack.encode)))
def test_rubbish_is_dropped(raw: bytes) -> None:
    assert not BrowserScreen().lets_through(raw)


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from([*CAMERA, "else"]), value=VALUES)
def test_a_camera_with_one_field_changed_is_dropped_or_is_one(key: str, value: Any) -> None:
    changed = msgspec.msgpack.encode({**CAMERA, key: value})
    if BrowserScreen().lets_through(changed):
        assert key != "else"
        decoded = msgspec.msgpack.decode(changed)[key]
        assert decoded == CAMERA[key] or isinstance(decoded, (int, float, list))
        assert len(changed) <= MOST_BYTES


def test_too_much_of_the_right_thing_is_dropped() -> None:
    screen, message = BrowserScreen(), msgspec.msgpack.encode(CAMERA)
    let_through = sum(screen.lets_through(message) for _ in range(5000))
    assert 240 <= let_through < 1000
    assert screen.lost_patience


def test_deeply_nested_messages_are_dropped() -> None:
    assert not BrowserScreen().lets_through(b"\x91" * (MOST_BYTES - 1) + b"\xc0")
