"""Access control of the live view: judges a request by its headers before anything is served. No network.

A page in somebody's browser can ask any address on this machine, and a name of the attacker's can be made to point at
127.0.0.1 (DNS rebinding). So three things are asked of a request: ``Host`` names this machine as people name it, the
``Origin`` of a socket is that very page, and the cookie holds the key that was printed where the view was started.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

__all__ = ["AccessAnswer", "AccessControl", "RequestHeaders"]

_LOOPBACK_NAMES = frozenset({"localhost"})
#: What a browser may do with the page: load nothing from elsewhere, talk to nobody else, stand in no frame.
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}' {scripts} 'wasm-unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:; connect-src ws://{host} data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class RequestHeaders(Protocol):
    """What is needed of a request's headers: all values of a name, in any case."""

    def get_all(self, key: str) -> Sequence[str]:
        """Values in the order in which they came; empty if there is none."""


@dataclass(frozen=True)
class AccessAnswer:
    """What to answer."""

    status: int  #: 101 go on with the socket, 200 serve the page, 303 take the cookie and come again, else refused
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    nonce: str = ""  #: of the script that stands before the page's; empty but for 200


_ALWAYS = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


@dataclass(frozen=True)
class AccessControl:
    """Judges requests."""

    port: int  #: of the server; makes the cookie's name one of its own, for cookies do not know ports
    key: str | None = None  #: that a browser has to show once; None: nobody is asked for one
    #: by which this machine may be asked, beside ``localhost`` and its addresses. Addresses cannot be rebound.
    names: frozenset[str] = field(default_factory=frozenset)
    scripts: str = ""  #: hashes of the page's own, as a Content-Security-Policy has them

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds the key."""
        return f"safe_sysid_view_{self.port}"

    def judge(self, target: str, headers: RequestHeaders) -> AccessAnswer:
        """What to answer to a GET. ``target``: path and query, as it stands in the request line."""
        host = _only(headers, "Host")
        if host is None or not self._names_us(host):
            return _refusal(403, "Host: expected localhost, an address, or a name given with --allow-host")
        try:
            parts = urlsplit(target)
        except ValueError:
            return _refusal(404, "there is nothing here but /")
        if headers.get_all("Upgrade"):
            if _only(headers, "Origin") != f"http://{host}":
                return _refusal(403, "Origin: expected the page of this server itself")
            if not self._shows_key(headers):
                return _refusal(403, "key: expected the cookie that the printed address gives")
            return AccessAnswer(101)
        # The page takes further words from its address, the server to talk to among them: it gets none.
        if parts.path != "/" or set(parse_qs(parts.query, keep_blank_values=True)) - {"key"}:
            return _refusal(404, "there is nothing here but /")
        if parts.query:
            shown = parse_qs(parts.query).get("key", [""])
            if self.key is not None and not (len(shown) == 1 and _same(shown[0], self.key)):
                return _refusal(403, "key: not that of this run; open the address that was printed last")
            crumb = () if self.key is None else (("Set-Cookie", self._crumb()),)
            return AccessAnswer(303, "", (*_ALWAYS, ("Location", "/"), *crumb))  # so that no key stays in the address
        if not self._shows_key(headers):
            return _refusal(403, "key: open the address that was printed where the view was started")
        nonce = secrets.token_urlsafe(16)
        policy = _POLICY.format(nonce=nonce, host=host, scripts=self.scripts)
        return AccessAnswer(200, "", (*_ALWAYS, ("Content-Security-Policy", policy)), nonce)

    def _names_us(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname, parts.port
        except ValueError:
            return False
        # The text goes into a header of the answer: nothing but a name and a port may stand in it.
        if not name or parts.netloc != host or "@" in host or not host.isascii() or set(host) & set(" ;,'\"/\\?#"):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in _LOOPBACK_NAMES or name in self.names
        return True

    def _crumb(self) -> str:
        # Lax: a link in a mail or a chat must lead here; sockets that other sites open do not carry it.
        return f"{self.cookie}={self.key}; HttpOnly; SameSite=Lax; Path=/"

    def _shows_key(self, headers: RequestHeaders) -> bool:
        if self.key is None:
            return True
        for line in headers.get_all("Cookie"):
            try:
                morsel = SimpleCookie(line).get(self.cookie)
            except CookieError:
                continue
            if morsel is not None and _same(morsel.value, self.key):
                return True
        return False


def _only(headers: RequestHeaders, name: str) -> str | None:
    values = headers.get_all(name)
    return values[0] if len(values) == 1 else None


def _same(one: str, other: str) -> bool:
    # Bytes of a request line that are no text come as surrogates.
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode())


def _refusal(status: int, text: str) -> AccessAnswer:
    return AccessAnswer(status, text, (*_ALWAYS, ("Content-Type", "text/plain; charset=utf-8")))
