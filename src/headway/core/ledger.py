"""Who was promised what: one entry per attempt, opened at dispatch and settled exactly once.

The ledger is the part of the truth that is never late. An `Account` sums the entries of one replica in whole tokens
(integers, so that sums return to zero exactly). `Account.since` tells what changed after a moment, so that a report
requested then can be compared with what the ledger held then. Late or doubled news (a second settlement, progress of
an unknown attempt) changes nothing and is counted in `Ledger.ignored`.
"""

from collections import deque

from headway.core.constants import LedgerConfig
from headway.core.entries import Since
from headway.core.entry import Entry, Share
from headway.core.ids import AttemptId, ReplicaId
from headway.core.memory import Curve


class Account:
    """Sums over the open entries of one replica.

    `context`: tokens held by started entries (prompt and generated); `hits`: cached part of those prompts;
    `prefill`: uncached tokens of the others (P); `reserved`: output expected and not generated yet; `decoding`:
    entries whose content was seen; `generated`, `dispatched` and `prefilled` (uncached tokens) only grow. `ticked`:
    generated in the tick of progress that is being told.
    """

    __slots__ = (
        "_area",
        "_area_at",
        "_log",
        "context",
        "curve",
        "decoding",
        "dispatched",
        "entries",
        "generated",
        "hits",
        "in_flight",
        "prefill",
        "prefilled",
        "reserved",
        "started",
        "ticked",
    )

    def __init__(self, config: LedgerConfig | None = None) -> None:
        self.entries: dict[AttemptId, Entry] = {}
        self.curve = Curve()
        self.in_flight = 0
        self.started = 0
        self.decoding = 0
        self.context = 0
        self.hits = 0
        self.prefill = 0
        self.prefilled = 0
        self.reserved = 0
        self.generated = 0
        self.dispatched = 0
        self.ticked = 0
        self._area = 0.0
        self._area_at = 0.0
        self._log: deque[tuple[float, int, int, int, int, int]] = deque(maxlen=(config or LedgerConfig()).log_entries)

    def open(self, entry: Entry, at: float) -> None:
        """An attempt was sent."""
        uncached = entry.prompt - entry.hit
        self.entries[entry.attempt_id] = entry
        self.in_flight += 1
        self.prefill += uncached
        self.reserved += entry.reserve
        self.dispatched += uncached
        entry.ahead = self.prefill
        self.curve.add(entry.share)
        self._log.append((at, 0, 1, 0, uncached, uncached))

    def start(self, entry: Entry, at: float) -> None:
        """Its prefill is done: what was promised is now held."""
        uncached = entry.prompt - entry.hit
        held = entry.prompt + entry.generated
        entry.started = True
        self.started += 1
        self.prefill -= uncached
        self.prefilled += uncached
        self.context += held
        self.hits += entry.hit
        self._log.append((at, held, 0, 1, -uncached, 0))

    def hear(self, entry: Entry, at: float) -> None:
        """Its first content was seen."""
        entry.first_token_at = at
        self.advance(at)
        self.decoding += 1

    def grow(self, entry: Entry, tokens: int) -> None:
        """It generated more. A tick of those seen decoding is logged once (`grown`), not here."""
        left = entry.reserve - entry.generated
        if left > 0:
            self.reserved -= tokens if tokens < left else left
        entry.generated += tokens
        self.context += tokens

    def grown(self, at: float) -> None:
        """A tick is over: remember by how much entries seen decoding grew in all."""
        self.generated += self.ticked
        self._log.append((at, self.ticked, 0, 0, 0, 0))
        self.ticked = 0

    def revise(self, entry: Entry, reserve: int, part: Share) -> None:
        """The forecast of a running attempt changed. The curve is not touched: a rebuild follows."""
        generated = entry.generated
        before, after = entry.reserve - generated, reserve - generated
        entry.reserve = reserve
        entry.share = part
        self.reserved += (after if after > 0 else 0) - (before if before > 0 else 0)

    def close(self, entry: Entry, at: float) -> None:
        """Take everything back."""
        del self.entries[entry.attempt_id]
        self.in_flight -= 1
        generated, reserve = entry.generated, entry.reserve
        if reserve > generated:
            self.reserved -= reserve - generated
        if entry.started:
            held = entry.prompt + generated
            self.started -= 1
            self.context -= held
            self.hits -= entry.hit
            self._log.append((at, -held, -1, -1, 0, 0))
        else:
            uncached = entry.prompt - entry.hit
            self.prefill -= uncached
            self._log.append((at, 0, -1, 0, -uncached, 0))
        if entry.first_token_at is not None:
            self.advance(at)
            self.decoding -= 1
        if self.in_flight:
            self.curve.subtract(entry.share)
        else:
            self.curve.reset()

    def advance(self, at: float) -> float:
        """Request-seconds of decoding so far (the time integral of `decoding`)."""
        self._area += self.decoding * (at - self._area_at)
        self._area_at = at
        return self._area

    def since(self, moment: float) -> Since:
        """Changes at or after `moment`. Older ones are forgotten: reports come in order."""
        log = self._log
        while log and log[0][0] < moment:
            log.popleft()
        context = in_flight = started = prefill = dispatched = 0
        for _, c, i, s, p, d in log:
            context += c
            in_flight += i
            started += s
            prefill += p
            dispatched += d
        return Since(context, in_flight, started, prefill, dispatched)


class Ledger:
    """All entries and accounts. Every method that is told about an attempt returns None if it is not open."""

    def __init__(self, config: LedgerConfig | None = None) -> None:
        self._config = config or LedgerConfig()
        self.entries: dict[AttemptId, Entry] = {}
        self.accounts: dict[ReplicaId, Account] = {}
        self.ignored = 0

    def account(self, replica_id: ReplicaId) -> Account:
        """The account of a replica, made at first use."""
        found = self.accounts.get(replica_id)
        if found is None:
            found = self.accounts[replica_id] = Account(self._config)
        return found

    def drop(self, replica_id: ReplicaId) -> None:
        """Forget the account of a replica that has nothing in flight."""
        if replica_id in self.accounts and not self.accounts[replica_id].in_flight:
            del self.accounts[replica_id]

    def open(self, entry: Entry, at: float) -> None:
        """An attempt was sent. Its id must be new."""
        if entry.attempt_id in self.entries:
            raise ValueError(f"attempt {entry.attempt_id} is already open")
        self.entries[entry.attempt_id] = entry
        self.accounts[entry.replica_id].open(entry, at)

    def first_token(self, attempt_id: AttemptId, at: float) -> Entry | None:
        """Content arrived: P becomes U. Said twice, the second is ignored."""
        entry = self.entries.get(attempt_id)
        if entry is None or entry.first_token_at is not None:
            self.ignored += 1
            return None
        account = self.accounts[entry.replica_id]
        if not entry.started:
            account.start(entry, at)
        account.hear(entry, at)
        entry.heard_at = at
        return entry

    def progress(self, counts: list[tuple[AttemptId, int]], at: float) -> list[ReplicaId]:
        """Tokens generated so far, per attempt. Returns the replicas that advanced, in order of first mention."""
        entries, accounts = self.entries, self.accounts
        advanced: list[ReplicaId] = []
        replica_id = ReplicaId("")
        account: Account | None = None
        for attempt_id, count in counts:
            entry = entries.get(attempt_id)
            if entry is None:
                self.ignored += 1
                continue
            if entry.first_token_at is None:
                self.first_token(attempt_id, at)
            entry.heard_at = at
            tokens = count - entry.generated
            if tokens <= 0:
                continue
            if account is None or entry.replica_id is not replica_id:  # those of a replica mostly come together
                replica_id = entry.replica_id
                account = accounts[replica_id]
                if not account.ticked:
                    advanced.append(replica_id)
            account.grow(entry, tokens)
            account.ticked += tokens
        for replica_id in advanced:
            accounts[replica_id].grown(at)
        return advanced

    def settle(self, attempt_id: AttemptId, at: float) -> Entry | None:
        """The end of an attempt. Said twice, the second is ignored."""
        entry = self.entries.pop(attempt_id, None)
        if entry is None:
            self.ignored += 1
            return None
        self.accounts[entry.replica_id].close(entry, at)
        return entry
