"""Server of the live view: viser behind access control. One page, one kind of socket, no files or uploads.

viser has no place for checks of its own, but builds on :func:`websockets.asyncio.server.serve`, which has: while its
server starts, that function is ours. That a foreign page is really refused is tried before the address is told to
anyone, so a viser that starts otherwise one day means no view, not an open one.
"""

from __future__ import annotations

import contextlib
import gzip
import http
import http.client
import io
import re
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import viser
import websockets.asyncio.server as sockets
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from safe_sysid.errors import SafeSysIdError
from safe_sysid.view.access_control import AccessAnswer, AccessControl
from safe_sysid.view.screening import MOST_BYTES, BrowserScreen

__all__ = ["ViewServer", "ViewServerError", "open_server"]

_MOST_CLIENTS = 16
_PAGE = Path(viser.__file__).parent / "client" / "build" / "index.html"
#: The page's scripts: one that unpacks, and the one that it makes. Both must be ours, nobody else's.
_UNPACKS, _MAKES = "<script data-p=", 'document.createElement("script");e.type="module";'
_starting = threading.Lock()


class ViewServerError(SafeSysIdError):
    """The view's server cannot start."""


@dataclass(frozen=True)
class ViewServer:
    """A running server."""

    viser: viser.ViserServer
    address: str
    access: AccessControl

    def close(self) -> None:
        """Stop it; browsers see that the connection is gone."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.viser.stop()


def open_server(
    host: str = "127.0.0.1", port: int = 8080, *, label: str = "", names: Iterable[str] = (), key: bool = True
) -> ViewServer:
    """Start the server.

    Raises ViewServerError: the address or port cannot be had, or access is not refused where it must be.

    Args:
        port: 0 takes any that is free.
        names: by which browsers may call this machine, beside ``localhost`` and addresses.
        key: whether a browser must have been shown the printed address once.
    """
    listening = _bind(host, port)
    port = listening.getsockname()[1]
    access = AccessControl(port, secrets.token_urlsafe(16) if key else None, frozenset(name.lower() for name in names))
    with _starting, contextlib.redirect_stdout(io.StringIO()):  # viser's own lines name an address without the key
        with _controlled(access, listening) as engaged:
            server = viser.ViserServer(host=host, port=port, label=label or None, verbose=False)
        if not engaged:
            server.stop()
    if not engaged:
        listening.close()
        raise ViewServerError(
            f"viser {viser.__version__} does not start its server as expected: it would be open to every page; "
            "expected a version that setup.py names"
        )
    name = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::", ""):
        name = socket.gethostname().lower() if access.names else "localhost"
    running = ViewServer(server, f"http://{name}:{port}/" + (f"?key={access.key}" if access.key else ""), access)
    try:
        _try_access(listening)
    except (OSError, http.client.HTTPException, ViewServerError) as error:
        running.close()
        raise ViewServerError(f"the view's server does not refuse what it must: {error}") from error
    return running


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


@contextlib.contextmanager
def _controlled(access: AccessControl, listening: socket.socket) -> Iterator[list[bool]]:
    """While a server starts: what viser calls to open its socket is ours."""
    engaged: list[bool] = []
    page = _Page()
    original = sockets.serve

    def serve(handler: Callable[[Any], Awaitable[None]], *_: Any, **options: Any) -> Any:
        engaged.append(True)
        clients: set[Any] = set()

        def answer(connection: sockets.ServerConnection, request: Request) -> Response | None:
            verdict = access.judge(request.path, request.headers)
            if verdict.status == 101:
                if len(clients) < _MOST_CLIENTS:
                    return None
                verdict = AccessAnswer(503, f"{_MOST_CLIENTS} browsers look already")
            return page.response(verdict, request.headers)

        async def handle(connection: Any) -> None:
            clients.add(connection)
            try:
                await handler(connection)
            finally:
                clients.discard(connection)

        return original(
            handle,
            sock=listening,
            process_request=answer,
            create_connection=_Screened,
            max_size=MOST_BYTES,
            max_queue=16,
            open_timeout=5.0,
            close_timeout=1.0,
            server_header=None,
            compression=options.get("compression"),
            subprotocols=options.get("subprotocols"),
            select_subprotocol=options.get("select_subprotocol"),
        )

    sockets.serve = serve  # type: ignore[assignment, misc]
    try:
        yield engaged
    finally:
        sockets.serve = original  # type: ignore[misc]


class _Screened(sockets.ServerConnection):
    """A socket whose messages have been looked at."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._screen = BrowserScreen()

    async def recv(self, decode: bool | None = None) -> Any:
        """The next message that is let through; a client that sends much else is shown out."""
        while True:
            raw = await super().recv(decode)
            if self._screen.lets_through(raw):
                return raw
            if self._screen.lost_patience:
                await self.close(1008, "not what this server is for")


class _Page:
    """viser's page, with the marks that let its own scripts run and no others."""

    def __init__(self) -> None:
        text = _PAGE.read_text(encoding="utf-8")
        for mark in (_UNPACKS, _MAKES):
            if text.count(mark) != 1:
                raise ViewServerError(
                    f"{_PAGE}: {mark!r} stands there {text.count(mark)} times: expected once; this viser "
                    f"({viser.__version__}) is not one that setup.py names"
                )
        self._text = re.sub("<title>.*?</title>", "<title>safe_sysid</title>", text, count=1)

    def response(self, verdict: AccessAnswer, asked: Headers) -> Response:
        """The answer to a request for anything but the socket."""
        body, headers = verdict.text.encode() + b"\n", Headers(list(verdict.headers))
        if verdict.status == 200:
            marked = self._text.replace(_UNPACKS, f'<script nonce="{verdict.nonce}" data-p=', 1)
            body = marked.replace(_MAKES, f'{_MAKES}e.nonce="{verdict.nonce}";', 1).encode()
            headers["Content-Type"] = "text/html; charset=utf-8"
            if any("gzip" in value for value in asked.get_all("Accept-Encoding")):
                body = gzip.compress(body, 1)
                headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        headers["Connection"] = "close"
        return Response(verdict.status, http.HTTPStatus(verdict.status).phrase, headers, body)


def _try_access(listening: socket.socket) -> None:
    """Ask as a page of somebody else's would: through a name of theirs, and from their origin."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    socket_request = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "c2FmZV9zeXNpZF9nYXRlXw==",
    }
    literal = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    for headers in (
        {"Host": "attacker.example"},
        {**socket_request, "Host": "attacker.example", "Origin": "http://attacker.example"},
        {**socket_request, "Host": literal, "Origin": "http://attacker.example"},
        {**socket_request, "Host": literal},
    ):
        asking = http.client.HTTPConnection(host, port, timeout=10.0)
        try:
            asking.request("GET", "/", headers=headers)
            status = asking.getresponse().status
        finally:
            asking.close()
        if status != 403:
            raise ViewServerError(f"{headers} was answered with {status}: expected 403")
