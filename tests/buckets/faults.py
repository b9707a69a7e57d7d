"""Which requests fail, and how: drawn from a seed, so that a run can be had again."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.buckets.calls import Request

KINDS: tuple[int | str, ...] = (503, 429, 408, "reset", "reset-after", "slow", "truncated", "cut")
_IN_A_ROW = 3


@dataclass(frozen=True)
class Fault:
    """What befalls one request.

    Attributes:
        kind: one of KINDS.
        retry_after: seconds that a 503 or 429 asks the client to wait, if it says so.
        trickled: the slowness is in the bytes of the answer, not before it.
    """

    kind: int | str
    retry_after: int | None = None
    trickled: bool = False


class Faults:
    """Draws a fault for a share of requests, by a hash of seed, kind, object and how often it was asked.

    So the draw does not hang on the order in which threads come. No object fails more than three times
    in a row.

    Args:
        rate: share of requests, from 0 to 1.
        seed: another seed, other requests.
        kinds: of KINDS: 503, 429 and 408 are answered before anything happens (parts of a batch too);
            "reset" closes the connection before the request is handled, "reset-after" once it is,
            unanswered; "slow" holds or trickles the answer; "truncated" cuts media short of its
            Content-Length; "cut" sends the first half of a listing's JSON, with the Content-Length of that
            half.
        slow_seconds: how long "slow" takes.
    """

    def __init__(
        self,
        rate: float = 0.05,
        seed: int = 0,
        kinds: Sequence[int | str] = KINDS,
        slow_seconds: float = 1.0,
    ) -> None:
        if unknown := set(kinds) - set(KINDS):
            raise ValueError(f"kinds has {sorted(map(str, unknown))}; it may be of {KINDS}")
        self.rate = rate
        self.slow_seconds = slow_seconds
        self.injected: Counter[int | str] = Counter()
        self._seed = seed
        self._kinds = tuple(kinds)
        self._asked: Counter[tuple[str, str, str]] = Counter()
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def draw(self, request: Request) -> Fault | None:
        """The fault of a request, counted; or none."""
        possible = [kind for kind in self._kinds if _possible(kind, request)]
        target = (request.bucket, request.name)
        with self._lock:
            asked = (request.kind, *target)
            self._asked[asked] += 1
            digest = hashlib.sha256(repr((self._seed, asked, self._asked[asked])).encode()).digest()
            hit = int.from_bytes(digest[:8], "big") < self.rate * 2**64
            if not hit or not possible or self._in_a_row[target] >= _IN_A_ROW:
                self._in_a_row[target] = 0
                return None
            self._in_a_row[target] += 1
            kind = possible[int.from_bytes(digest[8:12], "big") % len(possible)]
            self.injected[kind] += 1
        coin = digest[12] % 2 == 1
        return Fault(kind, 1 if coin and kind in (503, 429) else None, coin and kind == "slow")


def _possible(kind: int | str, request: Request) -> bool:
    if kind == "truncated":
        return request.kind == "get-media"
    if kind == "cut":
        return request.kind == "list" and not request.in_batch
    return isinstance(kind, int) or not request.in_batch
