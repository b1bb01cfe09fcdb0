"""One node's engine: builds every part, starts them, follows leadership, and stops them in the written order.

Start: lock → state.db → log (replay) → control socket → leadership → founding, default channel → listeners, releaser.
Stop: listeners → releases in flight confirmed → control socket → log → last boundary → state.db → lock.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Sequence
from typing import Any

import structlog

from engine.clock import Clock, SystemClock, wait_until
from engine.commands import CreateChannel, Found, PutNode, Rejected, encode
from engine.config import EngineConfig
from engine.control import ControlServer
from engine.errors import SchedulerError, StorageError
from engine.metrics import Metrics
from engine.model import Channel, Cluster
from engine.model import Node as Member
from engine.operations import Operations
from engine.preflight import default_channel
from engine.pubsub.connection import Connections
from engine.raft.log import Role
from engine.raft.single import SingleMemberLog
from engine.relay import Relay
from engine.releaser import Releaser
from engine.state.flusher import Flusher
from engine.state.state import State
from engine.storage import Storage
from engine.version import VERSION
from engine.views import Views

log = structlog.get_logger(__name__)


class Node:
    """The engine of one node; everything else reaches it through the control socket."""

    def __init__(self, config: EngineConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._default = default_channel(config)
        self.metrics = Metrics()
        self._storage = Storage(config.storage_path, config.limits.state)
        self._changed = threading.Condition()
        self.fatal: BaseException | None = None
        """Why the engine died; None while it lives."""
        self._stamp_lock = threading.Lock()
        self._last_stamp_ms = 0
        self._relay: Relay | None = None
        self._stopping = False
        self._leadership: threading.Thread | None = None

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open everything and answer on the control socket; ConfigError and DamagedError leave all files alone."""
        limits = self._config.limits
        self._storage.open()
        try:
            self._open()
        except BaseException:
            self._storage.close()
            raise
        self._log.start()
        self._flusher.start()
        operations = Operations(
            self._config,
            self._state,
            self._views,
            submit=self._log.submit,
            barrier=self._log.barrier,
            stamp=self.stamp,
            flush=self._flusher,
            clock=self._clock,
        )
        self._control = ControlServer(self._storage.path, operations.table(), limits.control)
        self._control.start()
        log.info(
            "The engine is up.",
            action="engine_started",
            node=self._config.node_addr,
            applied_index=self._state.applied_index,
        )

    def _open(self) -> None:
        limits = self._config.limits
        self._state = State.open(self._storage.state_path, limits.state, synced_index=self._synced_index)
        self._state.observer = self
        try:
            self._log = SingleMemberLog(
                self._storage.log_directory,
                self._state.apply,
                applied_index=self._state.stored_index,
                applied_term=self._state.stored_term,
                limits=limits.journal,
                clock=self._clock,
                node_addr=self._config.node_addr,
                advance=self._state.advance,
                on_leadership=self._on_leadership,
                on_fatal=self._die,
                on_sync=self.metrics.sync_seconds.observe,
            )
        except BaseException:
            self._state.close()
            raise
        self._flusher = Flusher(self._state, self._clock, limits.state, on_stored=self._log.compact, on_fatal=self._die)
        self._connections = Connections(
            self._config.emulator_host, self._config.key_files_dir, limits.pubsub, self._clock
        )
        self._views = Views(
            self._state,
            self._log,
            lambda: self._relay,
            clock=self._clock,
            metrics=self.metrics,
            storage=self._storage,
            node_addr=self._config.node_addr,
            wait_gone=self._wait_gone,
        )

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the engine has died; False when the time is up first."""
        with self._changed:
            if timeout_s is None:
                self._changed.wait_for(lambda: self.fatal is not None)
                return True
            return wait_until(self._clock, self._changed, lambda: self.fatal is not None, timeout_s)

    def stop(self, grace_s: float) -> None:
        """Stop in order within about `grace_s`; what is not confirmed by then may be released again after a start."""
        deadline_s = self._clock.elapsed_s() + grace_s
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._leadership is not None:
            self._leadership.join()
        if self._relay is not None:
            self._relay.stop(grace_s * 0.7)
        self._control.stop()
        self._log.close(max(1.0, deadline_s - self._clock.elapsed_s()))
        self._flusher.stop()
        if self.fatal is None:
            self._store_last()
        self._state.close()
        self._connections.close()
        self._storage.close()
        log.info("The engine is down.", action="engine_stopped", node=self._config.node_addr)

    def _store_last(self) -> None:
        """What cannot be written now, on a full disk for instance, is in the log, which is read again at the start."""
        try:
            self._state.boundary()
        except StorageError as error:
            log.warning("The state was not stored while stopping.", action="last_boundary_failed", reason=str(error))

    # ---- time --------------------------------------------------------------------------------------------------------

    def stamp(self) -> int:
        """A command's time: the release clock, and never below an earlier stamp of the log."""
        with self._stamp_lock:
            self._last_stamp_ms = max(self._last_stamp_ms, self._state.last_stamp_ms, self._clock.now_ms())
            return self._last_stamp_ms

    # ---- leadership --------------------------------------------------------------------------------------------------

    def _on_leadership(self, leads: bool, term: int) -> None:
        """From a thread of the log. Everything that only the leader does begins and ends here."""
        if leads:
            with self._changed:  # A stop that begins now either finds a thread that runs, or none ever comes.
                if self._stopping:
                    return
                self._leadership = threading.Thread(target=self._lead, args=(term,), name="leadership", daemon=True)
                self._leadership.start()
        elif not self._stopping:
            log.warning("Leadership is lost.", action="leadership_lost", term=term)

    def _lead(self, term: int) -> None:
        try:
            self._found()
            self._create_default()
            relay = self._build_relay()
            with self._changed:
                if self._stopping:
                    return
                self._relay = relay
            relay.start()
            log.info("Leads: channels are served.", action="leadership_gained", term=term)
        except SchedulerError as error:
            if not self._stopping:
                log.exception("Taking up leadership failed.", action="leadership_failed")
                self._die(error)
        except BaseException as error:
            log.exception("Taking up leadership failed.", action="leadership_failed")
            self._die(error)

    def _found(self) -> None:
        """The first leadership of all makes the cluster; each one says where this node is."""
        if self._state.cluster() is None:
            cluster = Cluster(
                cluster_id=secrets.token_hex(6), secret_key=secrets.token_urlsafe(48), founded_ms=self._clock.now_ms()
            )
            self._propose(Found(stamp_ms=self.stamp(), cluster=cluster))
            log.info("A cluster is founded.", action="cluster_founded", cluster=cluster.cluster_id)
        address = self._config.node_addr
        member = Member(name=address, addr=address, api_addr=self._config.api_addr, version=VERSION)
        if member not in self._state.nodes():
            self._propose(PutNode(stamp_ms=self.stamp(), node=member))

    def _create_default(self) -> None:
        """The channel of the environment, once in the cluster's life."""
        default = self._default
        if default is None or default.id is None or self._state.was_ever(default.id):
            return
        command = CreateChannel(
            stamp_ms=self.stamp(),
            actor="environment",
            id=default.id,
            name=default.name or default.id,
            source=default.source,
            destination=default.destination,
            policy=default.policy,
            initial=True,
        )
        answer = self._propose(command)
        if isinstance(answer, Rejected):
            log.warning(
                "The channel of the environment was not created.",
                action="default_channel_rejected",
                channel=default.id,
                reason=answer.detail,
            )

    def _propose(self, command: Any) -> Any:
        return self._log.submit(encode(command)).result(self._config.limits.control.request_timeout_s)

    def _build_relay(self) -> Relay:
        limits = self._config.limits
        cluster = self._state.cluster()
        assert cluster is not None
        rng = random.Random(secrets.randbits(64))  # noqa: S311 - for jitter only
        releaser = Releaser(
            self._state,
            submit=self._log.submit,
            stamp=self.stamp,
            cluster=cluster,
            may_release=self._may_release,
            clock=self._clock,
            flow=limits.flow,
            pubsub=limits.pubsub,
            metrics=self.metrics,
            rng=rng,
            on_fatal=self._die,
        )
        return Relay(
            self._state,
            releaser,
            self._connections,
            submit=self._log.submit,
            stamp=self.stamp,
            clock=self._clock,
            limits=limits,
            metrics=self.metrics,
            rng=rng,
            crowded=self._crowded,
            on_fatal=self._die,
        )

    def _crowded(self) -> bool:
        """Nothing more is to be accepted now: the file is behind, or the disk has only its reserve left."""
        return self._state.pressure() or self._storage.room().short

    def _may_release(self) -> bool:
        """Alone, this node leads as long as its log works."""
        return self._log.status().role is Role.LEADER

    # ---- what the state tells, in the log's thread -------------------------------------------------------------------

    def on_pending(self, channel_uid: int, seqs: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Newly pending messages."""
        relay = self._relay
        if relay is not None:
            relay.offer(channel_uid, seqs, dues_ms)

    def on_channel(self, channel_uid: int, channel: Channel | None) -> None:
        """A channel was created, changed or dropped."""
        relay = self._relay
        if relay is not None:
            relay.look_at(channel_uid)
        if channel is None:
            with self._changed:
                self._changed.notify_all()

    def _wait_gone(self, uid: int, timeout_s: float) -> bool:
        with self._changed:
            return wait_until(self._clock, self._changed, lambda: self._state.channel_by_uid(uid) is None, timeout_s)

    # ---- failing -----------------------------------------------------------------------------------------------------

    def _synced_index(self) -> int:
        return self._log.status().synced_index

    def _die(self, error: BaseException) -> None:
        """Nothing can be trusted from here on: the process must end."""
        with self._changed:
            if self.fatal is None:
                self.fatal = error
            self._changed.notify_all()
        log.critical("The engine has failed.", action="engine_fatal", reason=repr(error))
