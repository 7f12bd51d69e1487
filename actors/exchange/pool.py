"""A verifier's port to remote drafters: N of them, changing, any of them slow, dead or wrong.

Sessions are spread by bounded-load rendezvous and opened again elsewhere, with a higher epoch and
from the request's own tokens and features, whenever a drafter is lost, isolated or withdrawn. The
engine's thread and the links' receiving threads share one lock, held for microseconds.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors.contracts import Commit, Gathered, OpenSession, PortCommit, SessionKey, SessionView
from actors.exchange.bell import Bell
from actors.exchange.compat import Compat
from actors.exchange.contain import contained, contained_gather
from actors.exchange.form import FeatureForm
from actors.exchange.gathering import Gathering, Patience
from actors.exchange.guard import CONFIDENCE, confides
from actors.exchange.home import Home, PortSession
from actors.exchange.law_codec import law_from_pb
from actors.exchange.limits import MAX_BLOCK
from actors.exchange.link import Endpoint, Link
from actors.exchange.status import LinkRecord, Reason
from actors.exchange.wire_error import WireError, check
from actors.sampling.law import TokenLaw
from pilotfish.v1 import exchange_pb2 as pb
from policies import breaker as brk
from policies import routing
from policies.choice import Arm
from policies.retry import pause_s

_OVERLOADED_S = 1.0
_COLD_S = 1.0
_OWN_FAULTS = frozenset({pb.FAULT_INTERNAL, pb.FAULT_INVALID})


@dataclass(frozen=True, slots=True)
class PortOptions:
    """high_water_bytes: features that may wait for one drafter; above it the coldest sessions lose
    theirs and run without drafts until they are seeded again. tails: a block that came late may be
    used for what of it still fits; not where that would look at drafts before they are decided."""

    high_water_bytes: int = 1 << 30
    tails: bool = True
    patience: Patience = field(default_factory=Patience)
    keepalive_ms: int = 10_000


class RemotePort:
    """Implements `actors.contracts.DraftPort`; `set_endpoints` and `status` may be called from any
    thread. verifier: unique among those that share drafters. compat: what drafters must agree with;
    its taps are the port's."""

    def __init__(
        self,
        verifier: str,
        *,
        compat: Compat | None = None,
        vocab_size: int = 0,
        options: PortOptions | None = None,
        form: FeatureForm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verifier = verifier
        self._form = form or FeatureForm()
        self._compat = replace(compat or Compat(), projection=self._form.digest)
        self._vocab_size = vocab_size
        self._options = options or PortOptions()
        self._clock = clock
        self._boot_epoch = time.time_ns()
        self._homes: dict[str, Home] = {}
        self._sessions: dict[str, PortSession] = {}
        self._shadowed: dict[str, int] = {}  # asked for as evidence that is still to come
        self._epoch = 0
        self._lock = threading.Lock()
        self._bell = Bell()
        self._down = False
        self.missing: Counter[str] = Counter()

    @property
    def taps(self) -> tuple[int, ...]:
        return self._compat.taps

    @property
    def arms(self) -> tuple[Arm, ...]:
        with self._lock:
            arm = self._arm()
        return () if arm is None else (arm,)

    def _arm(self) -> Arm | None:
        now_s = self._clock()
        up = [home for home in self._homes.values() if home.up(now_s)]
        if not up:
            return None
        timings = next((home.timings for home in up if home.timings), ())
        return Arm(up[0].mechanism, True, max(home.max_block for home in up), timings)

    # -- drafters ---------------------------------------------------------------------------

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """The drafters there are now. Sessions of those that are gone move with their next
        commits; the rest stay where they are."""
        wanted = {e.name: e for e in endpoints}
        with self._lock:
            if self._down:
                return
            for name, home in list(self._homes.items()):
                endpoint = wanted.get(name)
                if endpoint is None or endpoint.address != home.link.endpoint.address:
                    del self._homes[name]
                    self._abandon(home, "no-drafter")
                    home.link.close()
            for name, endpoint in wanted.items():
                if name not in self._homes:
                    self._homes[name] = Home(self._link(endpoint))
                    self._homes[name].link.start()
                self._homes[name].draining = endpoint.draining

    def _link(self, endpoint: Endpoint) -> Link:
        return Link(
            endpoint,
            verifier=self._verifier,
            boot_epoch=self._boot_epoch,
            compat=self._compat,
            listener=self,
            keepalive_ms=self._options.keepalive_ms,
            form=self._form,
        )

    def status(self) -> list[LinkRecord]:
        with self._lock:
            return [home.record() for _, home in sorted(self._homes.items())]

    # -- the engine's thread ----------------------------------------------------------------

    @contained
    def open(self, view: SessionView) -> None:
        with self._lock:
            self._close(view.request_id, "opened again")
            session = PortSession(view, tails=self._options.tails)
            self._sessions[view.request_id] = session
            self._place(session, len(view.tokens))

    @contained
    def prefilled(self, request_id: str, rows: int) -> None:
        self._seed(request_id, rows)

    @contained
    def commit(self, commits: Sequence[PortCommit]) -> None:
        with self._lock:
            now_s = self._clock()
            by_home: dict[Home, list[Commit]] = {}
            for commit in commits:
                session = self._sessions.get(commit.request_id)
                sent = None if session is None else self._commit(session, commit, now_s)
                if sent is not None and session is not None and session.home is not None:
                    by_home.setdefault(session.home, []).append(sent)
            for home, sent_there in by_home.items():
                home.link.commit(sent_there)
        for commit in commits:
            self._seed(commit.request_id, commit.from_len - 1)
        with self._lock:
            self._shed()

    @contained_gather
    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        if not wanted and not self._shadowed:
            return Gathered()
        with self._lock:
            gathering = Gathering(
                self._lock,
                self._bell,
                self._clock,
                self._options.patience,
                wanted,
                worth_s,
                self._sessions,
                self._vocab_size,
                self._shadowed,
                self._arm(),
            )
            gathered = gathering.run()
            self.missing.update(gathered.missing.values())
            self._judge([*wanted, *self._shadowed])
        return gathered

    @contained
    def close(self, request_id: str, reason: str) -> None:
        with self._lock:
            self._close(request_id, reason)

    @contained
    def shutdown(self) -> None:
        with self._lock:
            self._down = True
            homes = list(self._homes.values())
            self._homes.clear()
            self._sessions.clear()
        for home in homes:
            home.link.close()
        deadline_s = time.monotonic() + 2.0
        for home in homes:
            home.link.join(max(0.0, deadline_s - time.monotonic()))

    # -- sessions (under the lock) ----------------------------------------------------------

    def _commit(self, session: PortSession, commit: PortCommit, now_s: float) -> Commit | None:
        """What to send to the session's drafter; None when it has none."""
        if session.home is not None and session.length != commit.from_len:
            self._leave(session, "cold")
        if session.home is not None and session.home.draining:
            self._move(session, commit.from_len, now_s)
        if session.home is None:
            self._place(session, commit.from_len)
        home, key = session.home, session.key
        if home is None or key is None:
            return None
        features = session.view.features(*commit.rows) if home.needs_features else None
        if home.needs_features and features is None:
            self._leave(session, "cold")
            session.retry_s = now_s + _COLD_S
            return None
        session.length += len(commit.tokens)
        session.forget_used()
        depth = commit.depth or commit.evidence
        if commit.evidence:
            self._shadowed[commit.request_id] = depth
        elif not depth and session.answered < session.asked:
            # A commit that asks for nothing would take the place of one that waits to be sent.
            depth = self._shadowed.get(commit.request_id, 0)
        if depth > 0:
            session.ask(commit.round, now_s)
        return Commit(key, commit.round, commit.from_len, commit.tokens, features, depth)

    def _place(self, session: PortSession, length: int) -> None:
        """Find a drafter and open the session there with its first `length` tokens."""
        now_s, view = self._clock(), session.view
        if now_s < session.retry_s:
            return
        candidates, session.reason = self._candidates(length, now_s)
        name = routing.choose(f"{self._verifier}/{view.request_id}", candidates)
        if name is None:
            return
        home = self._homes[name]
        self._epoch += 1
        key = SessionKey(self._verifier, view.request_id, self._epoch)
        session.settle(home, key, length)
        tokens, prompt_len = tuple(view.tokens[:length]), min(view.prompt_len, length)
        home.link.open(
            OpenSession(key, tokens, view.sampling, view.tenant, prompt_len=prompt_len),
            follow=home.needs_features,
            trace=view.trace,
        )

    def _move(self, session: PortSession, length: int, now_s: float) -> None:
        """Off a drafter that is to go, if another takes the session."""
        candidates, _ = self._candidates(length, now_s)
        if now_s >= session.retry_s and routing.choose("", candidates) is not None:
            self._leave(session, "no-drafter")

    def _candidates(self, length: int, now_s: float) -> tuple[list[routing.Candidate], Reason]:
        """Drafters that take a session of this length, and the reason when none does."""
        candidates: list[routing.Candidate] = []
        reason: Reason = "no-drafter"
        for name, home in self._homes.items():
            refusal = self._refusal(home, length, now_s)
            if refusal is None:
                load, most = len(home.sessions), home.link.max_sessions
                candidates.append(routing.Candidate(name, load, most))
                refusal = "overloaded"
            reason = refusal if reason == "no-drafter" else reason
        return candidates, reason

    def _refusal(self, home: Home, length: int, now_s: float) -> Reason | None:
        if not home.link.up or home.draining:
            return "no-drafter"
        admission = brk.admission(home.breaker, now_s)
        if admission == "none" or (admission == "one" and home.sessions):
            return "isolated"
        if now_s < home.full_until_s:
            return "overloaded"
        if home.max_context and length >= home.max_context:
            return "context"
        if home.needs_features and home.link.feature_bytes > self._options.high_water_bytes // 2:
            return "cold"
        return None

    def _seed(self, request_id: str, stop: int) -> None:
        """Send what of rows 0 … stop-1 has not been sent over the bulk lane, until all that the
        Open promised are on their way. Copied without the lock: a long prompt's take milliseconds,
        and other sessions' blocks arrive meanwhile."""
        session = self._sessions.get(request_id)
        key = session.key if session is not None and session.unseeded else None
        if session is None or key is None:
            return
        start, promised = session.seeded, session.promised
        stop = min(stop, promised)
        rows = session.view.features(start, stop) if start < stop else None
        with self._lock:
            if session.home is None or session.key != key:
                return  # lost meanwhile
            session.unseeded = stop < promised
            if rows is not None:
                session.home.link.features(key, rows, start)
                session.seeded = stop
            elif start < stop:
                self._leave(session, "cold")
                session.retry_s = self._clock() + _COLD_S

    def _shed(self) -> None:
        """Bound the features that wait for a slow drafter: the coldest sessions go without."""
        for home in self._homes.values():
            while home.needs_features and home.link.feature_bytes > self._options.high_water_bytes:
                key = home.link.coldest()
                session = self._sessions.get(key.request) if key is not None else None
                if key is None:
                    break
                home.link.close_session(key, "cold")
                if session is not None and session.key == key:
                    now_s = self._clock()
                    session.leave("cold", now_s)
                    session.retry_s = now_s + _COLD_S

    def _leave(self, session: PortSession, reason: Reason) -> None:
        if session.home is not None and session.key is not None:
            session.home.link.close_session(session.key, reason)
        session.leave(reason, self._clock())

    def _abandon(self, home: Home, reason: Reason) -> None:
        for request_id in list(home.sessions):
            self._leave(self._sessions[request_id], reason)

    def _close(self, request_id: str, reason: str) -> None:
        self._shadowed.pop(request_id, None)
        session = self._sessions.pop(request_id, None)
        if session is not None and session.home is not None and session.key is not None:
            session.home.link.close_session(session.key, reason)
            session.leave("no-drafter", self._clock())

    def _judge(self, wanted: Iterable[str]) -> None:
        """Rest the drafters that are silent; open lost sessions again with their next commit."""
        now_s = self._clock()
        for home in self._homes.values():
            if brk.admission(home.breaker, now_s) == "none":
                self._abandon(home, "isolated")
        for request_id in wanted:
            session = self._sessions.get(request_id)
            if session is not None and brk.session_lost(session.silence):
                self._leave(session, "late")
                session.silence = brk.Silence()

    # -- the links' threads -----------------------------------------------------------------

    def on_up(self, link: Link) -> None:
        """Sessions come with their next commits."""

    def on_frame(self, link: Link, frame: pb.DrafterFrame) -> None:
        with self._lock:
            home = self._homes.get(link.endpoint.name)
            if home is None or home.link is not link:
                return
            now_s = self._clock()
            for fault in frame.faults:
                self._fault(home, fault, now_s)
            self._blocks(home, frame.blocks, now_s)
            if frame.blocks:
                home.breaker = brk.answer(home.breaker, now_s)
            elif any(fault.code in _OWN_FAULTS for fault in frame.faults):
                home.breaker = brk.fail(home.breaker, now_s)
            self._bell.ring()

    def _blocks(self, home: Home, blocks: Sequence[pb.Block], now_s: float) -> None:
        slowest: float | None = None
        for block in blocks:
            session = self._sessions.get(block.key.request)
            if session is None:
                continue  # finished while the block was on its way
            current = session.home is home and session.key is not None
            if not current or session.key is None or session.key.epoch != block.key.epoch:
                home.counts.stale += 1
                continue
            if len(block.tokens) > MAX_BLOCK:
                home.counts.faults["FAULT_INVALID"] += 1
                continue
            try:
                sound = not block.confidence or confides(block.confidence, len(block.tokens))
                check(sound, "confidence", f"is not {CONFIDENCE}")
                law = self._law(home, block, session)
            except WireError:
                self._break(home, session, now_s)
                continue
            seconds = session.answer(block, now_s, law)
            if seconds is None:
                continue
            home.counts.came(block.draft_us / 1e6, seconds)
            if slowest is None or seconds > slowest:
                slowest = seconds
        if slowest is not None:
            home.arrived(slowest)

    def _law(
        self, home: Home, block: pb.Block, session: PortSession
    ) -> tuple[TokenLaw, ...] | None:
        """Raises WireError: what was drafted from an unknown law must not be accepted by one."""
        if block.HasField("law"):
            return law_from_pb(block.law, block.tokens, self._vocab_size)
        owed = home.gives_law and len(block.tokens) > 0 and not session.view.sampling.greedy
        check(not owed, "law", "none came")
        return None

    def _break(self, home: Home, session: PortSession, now_s: float) -> None:
        """The drafter broke its word on this session: it rests, and is opened again later."""
        home.counts.faults["FAULT_INVALID"] += 1
        self._leave(session, "fault")
        session.faults += 1
        session.retry_s = now_s + pause_s(session.faults)

    def _fault(self, home: Home, fault: pb.Fault, now_s: float) -> None:
        home.counts.faults[_code_name(fault.code)] += 1
        session = self._sessions.get(fault.key.request)
        if session is None or session.key is None or session.home is not home:
            return
        if session.key.epoch != fault.key.epoch:
            return
        overloaded = fault.code == pb.FAULT_OVERLOADED
        session.leave("overloaded" if overloaded else "fault", now_s)
        if overloaded:
            home.full_until_s = now_s + _OVERLOADED_S
        elif fault.code in _OWN_FAULTS:
            session.faults += 1
            session.retry_s = now_s + pause_s(session.faults)

    def on_down(self, link: Link) -> None:
        with self._lock:
            home = self._homes.get(link.endpoint.name)
            if home is not None and home.link is link:
                self._abandon(home, "no-drafter")
                home.breaker = brk.interrupted(home.breaker)
                self._bell.ring()


def _code_name(code: int) -> str:
    """A closed set, whatever a peer sends."""
    known = code in pb.FaultCode.values()
    return pb.FaultCode.Name(pb.FaultCode.ValueType(code)) if known else "FAULT_UNSPECIFIED"
