"""Page of the live view: scene, panel and buttons. It redraws only what has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import viser

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel
from safe_sysid.view import pieces
from safe_sysid.view.arm_shapes import LinkShape
from safe_sysid.view.history import WidthHistory
from safe_sysid.view.scene import ArmScene
from safe_sysid.view.snapshot import Snapshot
from safe_sysid.view.text import escaped, plain

__all__ = ["BUTTONS", "Button", "LivePage"]

Answer = Callable[[bool, str], None]
#: Calls a service and hands on its answer.
Call = Callable[[str, Answer], None]


@dataclass(frozen=True)
class Button:
    """One button."""

    label: str
    service: str  #: relative name of what it calls
    colour: str | None  #: of the page's palette
    question: str  #: asked before; "" for what only makes the arm stop
    hint: str


BUTTONS = (
    Button("Emergency stop", "controller/emergency_stop", "red", "", "Fault at once: the drives brake."),
    Button(
        "Reset emergency stop",
        "controller/reset_emergency_stop",
        "gray",
        "The emergency stop is lifted; nothing moves before Start control. Is its cause gone?",
        "Moves nothing by itself.",
    ),
    Button(
        "Stop",
        "controller/stop",
        "gray",
        "",
        "Brake along the certified tail, then hold: no plan is taken before Start control.",
    ),
    Button(
        "Start control",
        "controller/start",
        "gray",
        "The controller takes the arm over: it holds it, and moves it as soon as a plan comes. It also takes "
        "back a stop, but no emergency stop. Is everybody out of reach?",
        "From idle or fault, at rest; after a stop.",
    ),
    Button(
        "Start planner",
        "planner/start",
        "gray",
        "Exciting trajectories begin: the arm moves. Is everybody out of reach?",
        "Exciting trajectories.",
    ),
    Button(
        "Reset bounds",
        "controller/reset_bounds",
        "gray",
        "All that is known of the payload is forgotten: a new epoch begins with the prior. Has the payload changed?",
        "Another payload; while holding, idle or in fault.",
    ),
)


class LivePage:
    """Draws into a viser server; not thread safe but for the buttons, which call ``call`` in threads of their own."""

    def __init__(
        self, server: viser.ViserServer, model: RobotModel, shapes: Sequence[LinkShape], where: str, call: Call | None
    ) -> None:
        """Build the page.

        ``server``: where it is shown; ``shapes``: what it looks like; ``call``: calls a service; None: no buttons.
        """
        self._server, self._model, self._where, self._call = server, model, where, call
        self._told: dict[str, str] = {}
        self.payload_mass: tuple[float, float] | None = None  # of the box in force, kg
        self._history = WidthHistory()
        server.gui.configure_theme(
            control_width="large", dark_mode=False, show_logo=False, show_share_button=False, brand_color=(37, 99, 235)
        )
        server.gui.set_panel_label("safe_sysid")
        server.gui.main_panel.dock_right()
        server.gui.main_panel.set_width(420)
        self.scene = ArmScene(server, model, shapes)
        gui = server.gui
        gui.add_html(pieces.STYLE)
        self._html: dict[str, Any] = {"header": gui.add_html("")}
        self._html["notices"] = gui.add_html("", visible=False)
        if call is not None:
            self._add_buttons()
        for name in ("nodes", "intervals"):
            self._html[name] = gui.add_html("")
        self._plot = self._history.add_to(gui)
        for name in ("torques", "margins"):
            self._html[name] = gui.add_html("")
        self.show(Snapshot())

    def pose(self, q: FloatArray) -> None:
        """Where the joints are, (n,) rad."""
        self.scene.pose(q)

    def show(self, snapshot: Snapshot) -> None:
        """Change what has changed on the panel."""
        name = self._model.name
        self._write("header", pieces.header(name, self._where, snapshot, self.payload_mass))
        about = tuple(filter(None, [self._model.drive_note]))
        self._write("notices", pieces.notices(replace(snapshot, warnings=(*about, *snapshot.warnings))))
        self._write("nodes", pieces.node_cards(snapshot.nodes))
        self._write("intervals", pieces.intervals(snapshot))
        self._write("torques", pieces.torques(snapshot, self._model.limits.torque, self._model.torque_units))
        self._write("margins", pieces.margins(snapshot))
        if self._history.add(snapshot):
            self._history.draw(self._plot)

    def _write(self, name: str, content: str) -> None:
        if self._told.get(name) != content:
            self._told[name] = content
            handle = self._html[name]
            handle.content = content
            if handle.visible != bool(content):
                handle.visible = bool(content)

    # -- buttons ------------------------------------------------------------------------------------------------

    def _add_buttons(self) -> None:
        """What stops is always there; what moves the arm is one more click away."""
        gui = self._server.gui
        for button in BUTTONS:
            if not button.question:
                if button.colour == "red":
                    gui.add_html(pieces.STOP)
                self._add_button(button)
        with gui.add_folder("Start, plan, reset", expand_by_default=False):
            for button in BUTTONS:
                if button.question:
                    self._add_button(button)

    def _add_button(self, button: Button) -> None:
        handle = self._server.gui.add_button(button.label, color=button.colour, hint=button.hint)  # type: ignore[arg-type]
        handle.on_click(self._asker(button))

    def _asker(self, button: Button) -> Callable[[viser.GuiEvent[Any]], None]:
        def clicked(event: viser.GuiEvent[Any]) -> None:
            client = event.client
            if client is None:
                return
            if not button.question:
                self._do(button, client)
                return
            with client.gui.add_modal(button.label) as modal:
                client.gui.add_html(
                    f'<div class="ss"><b>{escaped(self._model.name, 40)}</b> '
                    f'<span class="ss-dim">{escaped(self._where, 120)}</span><br>{escaped(button.question)}</div>'
                )
                yes = client.gui.add_button(f"Yes: {button.label.lower()}", color=button.colour)  # type: ignore[arg-type]
                no = client.gui.add_button("No", color="gray")

            def agreed(_: Any) -> None:
                modal.close()
                self._do(button, client)

            yes.on_click(agreed)
            no.on_click(lambda _: modal.close())

        return clicked

    def _do(self, button: Button, client: viser.ClientHandle) -> None:
        if self._call is None:
            return

        def answered(success: bool, message: str) -> None:
            # What failed stays until somebody has read it.
            client.add_notification(
                button.label,
                plain(message),
                color="green" if success else "red",
                auto_close_seconds=12.0 if success else None,
            )

        self._call(button.service, answered)
