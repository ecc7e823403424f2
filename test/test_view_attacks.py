"""A page of somebody else's, in the browser of a person who looks at the view with key and all."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("viser", reason="needs the extra `view`")

import viser
from browser_support import Tab, browser, needs_browser

from safe_sysid.view.server import ViewServer, open_server

#: What such a page tries, each to its end; what it was told is left in `told`.
FOREIGN = """<!doctype html><title>foreign</title><iframe id="frame"></iframe><script>
const told = {};
const view = location.hash.slice(1), socket = view.replace("http", "ws");
const later = (name, promise) => promise.then(v => told[name] = "yes: " + v, e => told[name] = "no");
later("read the page", fetch(view, {credentials: "include"}).then(r => r.text()).then(t => t.length));
later("open a socket", new Promise((yes, no) => {
  const s = new WebSocket(socket, ["viser-vVERSION"]);
  s.onopen = () => yes("open"); s.onerror = () => no(); s.onclose = () => no();
}));
const frame = document.getElementById("frame");
frame.onload = () => {
  try { told.frame = frame.contentDocument === null ? "no" : "yes"; } catch { told.frame = "no"; }
};
frame.src = view;
window.told = told;
</script>""".replace("VERSION", viser.__version__)


@pytest.fixture(scope="module")
def open_tab() -> Iterator[Callable[..., Tab]]:
    """One browser; each page has a profile of its own, which the test closes: a hidden one is painted, too."""
    needs_browser()
    with browser() as opened:
        yield opened


@pytest.fixture
def view() -> Iterator[ViewServer]:
    server = open_server(port=0)
    yield server
    server.close()


@pytest.fixture
def foreign_site() -> Iterator[str]:
    """Another site on this machine: for cookies and addresses the nearest that an attacker can be."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_foreign_page_can_neither_read_nor_frame_nor_talk(
    view: ViewServer, foreign_site: str, open_tab: Callable[..., Tab]
) -> None:
    clicked: list[int] = []
    view.viser.gui.add_button("Start").on_click(lambda _: clicked.append(1))
    tab = open_tab(view.address)
    # Our own page works, so that the rest proves something: the socket is open, the button does what it says.
    tab.wait(lambda: view.viser.get_clients(), "the view's own socket")
    tab.page.get_by_role("button", name="Start").click()
    tab.wait(lambda: clicked, "the button")
    tab.page.goto(f"{foreign_site}#http://127.0.0.1:{view.access.port}/")  # same browser, cookie included
    told = tab.wait(
        lambda: (t := tab.page.evaluate("window.told")) and len(t) == 3 and t, "what the foreign page was told"
    )
    assert told == {"read the page": "no", "open a socket": "no", "frame": "no"}
    assert not view.viser.get_clients()
    tab.page.context.close()


@pytest.mark.slow
def test_a_link_cannot_make_our_page_talk_to_another_server(
    view: ViewServer, foreign_site: str, open_tab: Callable[..., Tab]
) -> None:
    elsewhere = foreign_site.replace("http", "ws")
    tab = open_tab(view.address)
    tab.wait(lambda: view.viser.get_clients(), "the view's own socket")
    answer = tab.page.goto(f"http://127.0.0.1:{view.access.port}/?websocket={elsewhere}")
    assert answer is not None
    assert answer.status == 404
    # Nor does the page itself, whatever runs in it:
    tab.page.goto(f"http://127.0.0.1:{view.access.port}/")
    tried = (
        f"new Promise(done => {{ const s = new WebSocket('{elsewhere}'); "
        "s.onopen = () => done('open'); s.onerror = () => done('no'); })"
    )
    assert tab.page.evaluate(tried) == "no"
    assert tab.page.evaluate(f"fetch('{foreign_site}', {{mode: 'no-cors'}}).then(() => 'sent', () => 'no')") == "no"
    tab.page.context.close()


@pytest.mark.slow
def test_html_that_slipped_through_runs_no_script(view: ViewServer, open_tab: Callable[..., Tab]) -> None:
    """Texts are escaped where the panel is made; should one be forgotten one day, the page still runs nothing."""
    view.viser.gui.add_html(
        '<p id="there">there</p><img src="x" onerror="window.pwned=1"><script>window.pwned=2</script>'
        '<svg onload="window.pwned=3"></svg><iframe srcdoc="<script>parent.pwned=4</script>"></iframe>'
        '<a id="link" href="javascript:window.pwned=5">link</a>'
    )
    tab = open_tab(view.address)
    tab.wait(lambda: tab.text("#there") == "there", "the panel")
    tab.page.evaluate("document.getElementById('link').click()")
    tab.page.wait_for_timeout(300)
    assert tab.page.evaluate("window.pwned") is None
    tab.page.context.close()
