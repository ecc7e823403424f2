"""Server of the live view: viser behind access control. One page, one kind of socket, no files or uploads.

viser serves whoever reaches it, so nobody does: its event loop is ours (by asyncio's policy, for as long as it starts)
and opens a Unix socket in a folder of this user instead of a port. At the port is a server of our own, which judges
every request, screens every message of a browser, and hands on what is left.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import http
import io
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import viser
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from safe_sysid.errors import SafeSysIdError
from safe_sysid.view.access_control import AccessAnswer, AccessControl
from safe_sysid.view.screening import MOST_BYTES, BrowserScreen

__all__ = ["ViewServer", "ViewServerError", "open_server"]

_MOST_CLIENTS = 16
_PATIENCE = 20.0  # s: for what this process does itself
#: Stands before viser's page, whose one script makes the script that is the program: it may, once.
_BEFORE = """<!doctype html><title>safe_sysid</title><script nonce="{nonce}">{{
const make = document.createElement, nonce = document.currentScript.nonce;
document.createElement = function (...what) {{
  const element = make.apply(document, what);
  if (element instanceof HTMLScriptElement) {{ element.nonce = nonce; document.createElement = make; }}
  return element;
}};
}}</script>"""
_starting = threading.Lock()


class ViewServerError(SafeSysIdError):
    """The view's server cannot start."""


@dataclass(frozen=True)
class ViewServer:
    """A running server."""

    viser: viser.ViserServer
    address: str
    access: AccessControl
    _ends: contextlib.ExitStack

    def close(self) -> None:
        """Stop it; browsers see that the connection is gone."""
        self._ends.close()


def open_server(
    host: str = "127.0.0.1", port: int = 8080, *, label: str = "", names: Iterable[str] = (), key: bool = True
) -> ViewServer:
    """Start the server.

    Raises ViewServerError: the address or port cannot be had, or viser opens a port of its own.

    Args:
        port: 0 takes any that is free.
        names: by which browsers may call this machine, beside ``localhost`` and addresses.
        key: whether a browser must have been shown the printed address once.
    """
    with contextlib.ExitStack() as ends:
        listening = ends.enter_context(_bind(host, port))
        port = listening.getsockname()[1]
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="safe_sysid_view_"))
        inner, path = ends.enter_context(socket.socket(socket.AF_UNIX)), f"{folder}/viser"
        try:
            inner.bind(path)
        except OSError as error:
            raise ViewServerError(f"{path}: {error}: expected a shorter folder for temporary files (TMPDIR)") from error
        server = _start_viser(_UnixLoop(inner, listening), label)
        ends.callback(_stop, server)
        page = _Page(_in_loop(server, _get_page(path)))
        token = secrets.token_urlsafe(16) if key else None
        access = AccessControl(port, token, frozenset(name.lower() for name in names), page.scripts)
        front = _in_loop(server, _Front(access, page, path).open(listening))
        ends.callback(lambda: _in_loop(server, _closed(front)))
        name = f"[{host}]" if ":" in host else host
        if host in ("0.0.0.0", "::", ""):
            name = socket.gethostname().lower() if access.names else "localhost"
        address = f"http://{name}:{port}/" + (f"?key={token}" if token else "")
        return ViewServer(server, address, access, ends.pop_all())


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket: viser itself would go on to the next port, or wait for ever for an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ViewServerError(
            f"--host {host} --port {port}: {error}: expected an address of this machine and a port that is free "
            "(--port 0 takes any)"
        ) from error
    return listening


class _UnixLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers are at a Unix socket, whatever address they ask for; but for one, at ours."""

    def __init__(self, inner: socket.socket, outer: socket.socket) -> None:
        super().__init__()
        self._inner, self._outer = inner, outer

    async def create_server(self, protocol_factory: Any, *where: Any, **options: Any) -> asyncio.Server:
        """A server that listens."""
        if options.get("sock") is self._outer:
            return await super().create_server(protocol_factory, *where, **options)
        return await self.create_unix_server(protocol_factory, sock=self._inner)


def _start_viser(loop: _UnixLoop, label: str) -> viser.ViserServer:
    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return loop

    with _starting, contextlib.redirect_stdout(io.StringIO()):  # viser's own lines name an address that is none
        before = asyncio.get_event_loop_policy()
        asyncio.set_event_loop_policy(Policy())
        try:
            server = viser.ViserServer(host="127.0.0.1", port=0, label=label or None, verbose=False)
        finally:
            asyncio.set_event_loop_policy(before)
    if server.get_event_loop() is not loop:
        loop.close()
        _stop(server)
        raise ViewServerError(
            f"viser {viser.__version__} does not start its server as expected: it would be open to every page; "
            "expected a version that setup.py names"
        )
    return server


def _stop(server: viser.ViserServer) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


async def _closed(front: Server) -> None:
    front.close()
    await front.wait_closed()


def _in_loop(server: viser.ViserServer, what: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(what, server.get_event_loop()).result(_PATIENCE)


async def _get_page(path: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise ViewServerError(f"viser {viser.__version__} has no page: {head[:80]!r}")
    return body.decode("utf-8")


class _Page(HTMLParser):
    """viser's page: its own scripts run, by their hashes, and no others."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text, self._parts = text, [""]
        self._inside = False
        self.feed(text)
        digests = (hashlib.sha256(part.encode()).digest() for part in self._parts[1:])
        self.scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """A script begins, or something else."""
        self._inside = tag == "script"
        self._parts += [""] * self._inside

    def handle_data(self, data: str) -> None:
        """Text: of a script, or not."""
        if self._inside:
            self._parts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """A script ends, or something else."""
        self._inside = False

    def response(self, verdict: AccessAnswer, asked: Headers) -> Response:
        """The answer to a request for anything but the socket."""
        body, headers = verdict.text.encode() + b"\n", Headers(list(verdict.headers))
        if verdict.status == 200:
            body = (_BEFORE.format(nonce=verdict.nonce) + self._text).encode()
            headers["Content-Type"] = "text/html; charset=utf-8"
            if any("gzip" in value for value in asked.get_all("Accept-Encoding")):
                body = gzip.compress(body, 1)
                headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        headers["Connection"] = "close"
        return Response(verdict.status, http.HTTPStatus(verdict.status).phrase, headers, body)


class _Front:
    """What browsers reach."""

    def __init__(self, access: AccessControl, page: _Page, path: str) -> None:
        self._access, self._page, self._path = access, page, path
        self._browsers = 0

    async def open(self, listening: socket.socket) -> Server:
        """Begin to serve."""
        return await serve(
            self._hand_on,
            sock=listening,
            process_request=self._answer,
            max_size=MOST_BYTES,
            max_queue=16,
            open_timeout=5.0,
            close_timeout=1.0,
            server_header=None,
            compression=None,
            select_subprotocol=lambda _, offered: next((name for name in offered if name.startswith("viser-v")), None),
        )

    def _answer(self, _: ServerConnection, request: Request) -> Response | None:
        verdict = self._access.judge(request.path, request.headers)
        if verdict.status == 101:
            if self._browsers < _MOST_CLIENTS:
                return None
            verdict = AccessAnswer(503, f"{_MOST_CLIENTS} browsers look already")
        return self._page.response(verdict, request.headers)

    async def _hand_on(self, browser: ServerConnection) -> None:
        spoken = [] if browser.subprotocol is None else [browser.subprotocol]
        self._browsers += 1
        try:
            async with unix_connect(self._path, subprotocols=spoken, compression=None, max_size=None) as inside:
                answers = asyncio.create_task(_all_of(inside, browser))
                try:
                    await _screened(browser, inside)
                finally:
                    answers.cancel()
        except ConnectionClosed:
            pass
        finally:
            self._browsers -= 1


async def _all_of(inside: ClientConnection, browser: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for message in inside:
            await browser.send(message)
    await browser.close()


async def _screened(browser: ServerConnection, inside: ClientConnection) -> None:
    """What is let through; a client that sends much else is shown out."""
    screen = BrowserScreen()
    async for raw in browser:
        if screen.lets_through(raw):
            await inside.send(raw)
        elif screen.lost_patience:
            await browser.close(1008, "not what this server is for")
