"""Managed nodes: configure, activate, deactivate, cleanup (ROS 2 lifecycle), each done or refused with reasons.

A refused transition leaves the node in the state that it had; an unexpected error takes it back to ``unconfigured``.
``ros2 lifecycle set`` only says that a transition failed: the reason is in the log, in /diagnostics and, latched, on
``~/transition_reason``. See docs/use/lifecycle.md.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from std_msgs.msg import String

from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.online.configuration import configuration_text
from safe_sysid.nodes.common.base import ERROR, LATCHED, OK, WARN, BaseNode
from safe_sysid.nodes.common.digest import configuration_digest, difference
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["ManagedNode"]

#: How often a node with ``autostart`` tries to become active, s.
_AGAIN = 0.5
UNCONFIGURED, INACTIVE, ACTIVE, FINALIZED = "unconfigured", "inactive", "active", "finalized"


_SHUTDOWNS = (
    Transition.TRANSITION_UNCONFIGURED_SHUTDOWN,
    Transition.TRANSITION_INACTIVE_SHUTDOWN,
    Transition.TRANSITION_ACTIVE_SHUTDOWN,
)


def _is_shutdown(request: ChangeState.Request) -> bool:
    asked = request.transition
    return asked.label.endswith("shutdown") or asked.id in _SHUTDOWNS


def _nothing() -> None:
    pass


class ManagedNode(LifecycleNodeMixin, BaseNode):
    """Subclasses build in :meth:`configure` what :meth:`cleanup` takes away; topics of theirs vanish by themselves.

    Attributes:
        interruptible: context of what may take minutes.
        work_begins, work_ends: called when the node has been configured, and before it is cleaned up
            (:mod:`safe_sysid.nodes.common.process` prepares the process for real time there).
    """

    has_scene = False  #: whether proofs of the node rest on a scene
    digest: str  #: of what proofs rest on (:mod:`safe_sysid.nodes.common.digest`)
    scene: Scene  #: that the node was configured with, where it has one

    def __init__(self, name: str) -> None:
        self._lifecycle = UNCONFIGURED
        self.interruptible: Callable[[], AbstractContextManager[object]] = nullcontext
        self.work_begins: Callable[[], None] = _nothing
        self.work_ends: Callable[[], None] = _nothing
        self._foreign: dict[str, str] = {}  # by node: what differs from its configuration
        self._refused = self._failed = ""  # why the last transition was not done
        self._configuration: Any = None
        self._tried, self._by_itself = -1e9, False
        BaseNode.__init__(self, name)
        self._reasons = self.create_publisher(String, "~/transition_reason", LATCHED)
        LifecycleNodeMixin.__init__(self)
        self._survive_requests()
        self.rate_limiter.limit_inherited()
        self._always = self._entities()
        self.add_post_set_parameters_callback(self._tell_configuration)

    def _prepare(self) -> None:
        self.autostart: bool = self.parameters["autostart"]

    def _load(self) -> None:
        super()._load()
        law = self.values.get("controller.law")
        if law:  # in force, so part of what is compared and told
            controller = self.model.settings.controller.model_copy(update={"law": law})
            settings = self.model.settings.model_copy(update={"controller": controller})
            self.model = replace(self.model, settings=settings)
        scene = self.options.load_scene(self.model) if self.has_scene else None
        if scene is not None:
            self.scene = scene
        self.digest = configuration_digest(self.model, self.options.lockstep, scene)
        self.parameters.declare_settings(self.model)
        self._configuration = self.create_publisher(String, "~/configuration", LATCHED)
        self._tell_configuration()

    def _tell_configuration(self, *_: Any) -> None:
        """Publish the configuration, again after each change of a live parameter."""
        if self._configuration is None:
            return
        text = configuration_text(
            self.full_name,
            self.parameters.kind,
            self.model,
            robot=self.options.robot,
            lockstep=self.options.lockstep,
            parameters=self.parameters.values(),
            files=self.files(),
        )
        self._configuration.publish(String(data=text))

    # -- for subclasses -----------------------------------------------------------------------------------------

    def configure(self) -> None:
        """Build everything, compiled code included: ``options`` and ``model`` are there. May raise."""

    def files(self) -> Mapping[str, Path | None]:
        """What :meth:`configure` reads besides the robot, by parameter."""
        return {}

    def examine(self) -> list[str]:
        """Reasons why the node must not become active, if it takes long to find out; without the lock."""
        return []

    def activate(self) -> list[str]:
        """Begin to work; reasons why not, none if it works. The lock is held."""
        return []

    def deactivate(self) -> list[str]:
        """Stop working; reasons why not yet. The lock is held."""
        return []

    def cleanup(self) -> None:
        """Take away what :meth:`configure` built, if that was half of it; logs are written. Also called at the end."""

    def why_not_shutdown(self) -> str:
        """Why the process must not end now; "" if it may."""
        return ""

    def activated(self) -> None:
        """The node is active now. The lock is held."""

    def deactivated(self) -> None:
        """The node is inactive again. The lock is held."""

    @property
    def lifecycle(self) -> str:
        """``unconfigured``, ``inactive``, ``active`` or ``finalized``."""
        return self._lifecycle

    @lifecycle.setter
    def lifecycle(self, state: str) -> None:
        self._lifecycle = self.parameters.state = state

    @property
    def active(self) -> bool:
        """Whether the node may work."""
        return self.lifecycle == ACTIVE

    @property
    def finalized(self) -> bool:
        """Whether the process is to end."""
        return self.lifecycle == FINALIZED

    def serve(self, name: str, action: Callable[[], str | None]) -> None:
        """As of every node, refused while this one is not active."""

        def act() -> str | None:
            return action() if self.active else f"the node is {self.lifecycle}: expected it to be active"

        super().serve(name, act)

    def serve_later(self, name: str, action: Callable[[Callable[[bool, str], None]], None]) -> None:
        """As of every node, refused while this one is not active."""

        def act(answer: Callable[[bool, str], None]) -> None:
            if self.active:
                action(answer)
            else:
                answer(False, f"the node is {self.lifecycle}: expected it to be active")

        super().serve_later(name, act)

    # -- transitions --------------------------------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Build the node; unusable input is a reason for refusal, not an error."""
        return self._go("configure", INACTIVE, self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin to work."""
        return self._go("activate", ACTIVE, self.activate, self.activated, self.examine)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working."""
        return self._go("deactivate", INACTIVE, self.deactivate, self.deactivated)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget everything."""
        return self._go("cleanup", UNCONFIGURED, self._release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up and end the process."""
        return self._go("shutdown", FINALIZED, self._release)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an unexpected error: return to unconfigured, or end if that fails, too."""
        try:
            self._release()
            return TransitionCallbackReturn.SUCCESS
        except Exception:
            self._tell_reason(f"error: {traceback.format_exc(limit=-4)}", ERROR)
            self.lifecycle = FINALIZED
            return TransitionCallbackReturn.FAILURE

    def _go(
        self,
        name: str,
        goal: str,
        action: Callable[[], list[str]],
        then: Callable[[], None] | None = None,
        before: Callable[[], list[str]] | None = None,
    ) -> TransitionCallbackReturn:
        """Perform one transition; ``then`` runs with the lock held, so that nothing comes before the new state."""
        began = time.monotonic()
        try:
            reasons = [] if before is None else before()
            with self.lock if then is not None else nullcontext():
                reasons = reasons or action()
                if not reasons and then is not None:
                    self.lifecycle = goal
                    then()
        except Exception as error:
            self._failed, self._refused = f"{name} failed: {type(error).__name__}: {error}", ""
            self._tell_reason(f"{self._failed}\n{traceback.format_exc(limit=-6)}", ERROR)
            return TransitionCallbackReturn.ERROR
        self._failed = ""
        if reasons:
            self._refuse_transition(f"{name} refused: {'; '.join(reasons)}")
            return TransitionCallbackReturn.FAILURE
        self._refused, self.lifecycle = "", goal
        self._tell_reason(f"{name}: done in {time.monotonic() - began:.2f} s, now {goal}")
        return TransitionCallbackReturn.SUCCESS

    def _refuse_transition(self, text: str) -> None:
        """Report a refused transition; repeated attempts of autostart are reported only if the reasons change."""
        if text != self._refused or not self._by_itself:
            self._refused = text
            self._tell_reason(text, WARN)

    def _configure(self) -> list[str]:
        try:
            with self.interruptible():
                self._load()
                self.configure()
            self.work_begins()
        except SafeSysIdError as error:
            self._release()
            return [str(error)]
        return []

    def _release(self) -> list[str]:
        """Undo :meth:`configure`, however far it came."""
        self._configuration = None
        self._foreign = {}  # who comes next may have another configuration, and so may they
        self.lifecycle = INACTIVE  # whatever else fails, nothing works any more
        self._stop()
        self.rate_limiter.forget()
        self.exclusive_publishers.forget()
        for entity in self._entities() - self._always:
            self._destroy(entity)
        self.parameters.undeclare_settings()
        self.lifecycle = UNCONFIGURED
        return []

    def _stop(self) -> None:
        self.work_ends()
        if self.loop is not None:
            self.loop.stop()  # without the lock: its thread may wait for that
            self.loop = None
        try:
            with self.lock:
                self.cleanup()
        except Exception:  # a log that cannot be written holds nothing back
            self.refuse("cleanup", "failed", traceback.format_exc(limit=-4))

    # -- entities -----------------------------------------------------------------------------------------------

    def _entities(self) -> set[Any]:
        return {*self.publishers, *self.subscriptions, *self.clients, *self.services, *self.timers}

    def _destroy(self, entity: Any) -> None:
        for known, destroy in (
            (self.publishers, self.destroy_publisher),
            (self.subscriptions, self.destroy_subscription),
            (self.clients, self.destroy_client),
            (self.services, self.destroy_service),
            (self.timers, self.destroy_timer),
        ):
            if entity in known:
                destroy(entity)
                return

    def _survive_requests(self) -> None:
        """Refuse impossible transitions. rclpy would raise, which ends the executor.

        Nor can a shutdown be refused by its callback: whatever that returns, the node is finalized.
        """
        service = next(service for service in self.services if service.srv_name.endswith("/change_state"))
        handle = service.callback

        def answer(request: ChangeState.Request, response: ChangeState.Response) -> ChangeState.Response:
            try:
                if _is_shutdown(request) and (reason := self.why_not_shutdown()):
                    self._refuse_transition(f"shutdown refused: {reason}")
                    response.success = False
                    return response
                return handle(request, response)
            except Exception as error:
                asked = request.transition.label or request.transition.id
                self._tell_reason(f"transition {asked} refused: the node is {self.lifecycle} ({error})", WARN)
            except BaseException:  # a signal, in the middle of a transition: the process ends, and knows it
                pass
            response.success = False
            return response

        service.callback = answer

    # -- the others' configuration ------------------------------------------------------------------------------

    def check_digest(self, who: str, theirs: str) -> None:
        """Whether a message comes from the same configuration.

        Raises MessageRefusedError: it does not; until one comes that does the node is in error.
        """
        differs = difference(theirs, self.digest)
        if not differs:
            self._foreign.pop(who, None)
            return
        mode = "lock-step" if self.options.lockstep else "real time"
        self._foreign[who] = (
            f"{who} works with another configuration than this node's ({self.options.robot}, {mode}): {differs}: "
            "expected the same robot file, overrides, scene and mode for all nodes"
        )
        self._changed = True
        raise MessageRefusedError("other configuration", self._foreign[who])

    @property
    def foreign(self) -> list[str]:
        """Reasons why the node must not work with the other nodes; empty if it may."""
        return list(self._foreign.values())

    # -- telling ------------------------------------------------------------------------------------------------

    def _tell_reason(self, text: str, level: bytes = OK) -> None:
        self._reasons.publish(String(data=text))
        self._tell(level, text)
        self._changed = True

    def overview(self) -> tuple[bytes, str, dict[str, Any]]:
        """Overview of the node's state, with the reason of the last refusal."""
        level, text = OK, self.lifecycle
        values: dict[str, Any] = {}
        if self.lifecycle in (INACTIVE, ACTIVE):
            level, text, values = self.status()
            text = text if self.active else f"inactive; {text}"
        if self._foreign:
            level, text = ERROR, "; ".join([*self._foreign.values(), text])
        if self._refused or self._failed:
            level = max(level, ERROR if self._failed else WARN)
            text = f"{self._failed or self._refused}; {text}"
        return level, text, {"lifecycle": self.lifecycle, **values}

    # -- by itself ----------------------------------------------------------------------------------------------

    def go_on(self) -> bool:
        """With ``autostart``: one more try, if it is time; returns whether nothing is left to do.

        Raises SafeSysIdError: the node cannot be configured: another try would end the same way.
        """
        if not self.autostart or self.lifecycle in (ACTIVE, FINALIZED):
            return True
        self._by_itself = True
        try:
            if self.lifecycle == UNCONFIGURED:
                self.trigger_configure()
                if self.lifecycle == UNCONFIGURED:
                    raise SafeSysIdError(self._failed or self._refused.removeprefix("configure refused: "))
            if time.monotonic() - self._tried >= _AGAIN:
                self._tried = time.monotonic()
                self.trigger_activate()
        finally:
            self._by_itself = False
        return self.active

    def retry_autostart(self) -> None:
        """Let ``autostart`` try again at once."""
        self._tried = -1e9

    def close(self) -> None:
        """The process ends."""
        if self.lifecycle in (INACTIVE, ACTIVE):
            self.lifecycle = FINALIZED
            self._stop()
