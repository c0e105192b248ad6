"""What every router is handed: the registry, who is let in, and where work is done."""

import asyncio
from dataclasses import dataclass, field

from benchlock.api.http.grace import Grace
from benchlock.api.http.guards import Authority
from benchlock.api.http.kept import Kept
from benchlock.api.http.send_window import SendMemory
from benchlock.api.http.settings import Settings
from benchlock.api.http.tally import Tally
from benchlock.api.http.work import Work
from benchlock.api.wiring import Registry
from benchlock.artifacts.space import DiskReserve
from benchlock.artifacts.uploads import Uploads


@dataclass(frozen=True, slots=True)
class Service:
    """One running service. ``ending`` is set when it is told to end: whoever lets clients wait looks at it.

    ``prompt`` is for what somebody's measurement hangs on and is done in no time: that a run goes on, or begins, and
    who it is that says so. ``ends`` is for their ends, whose figures are recomputed, and which may wait for the store;
    ``compare`` for verdicts, comparisons and reads of single runs that recompute figures, too. ``ask`` is for what has
    to be searched for, ``decode`` for long bodies, ``inspect`` for publications that are long or whose files a child
    process reads, ``long`` for what reads all that there is, ``lists`` for pages of what is recorded, ``send`` for the
    pieces of blobs on their way out, which have the memory of ``windows``; other large answers have that of
    ``whole_answers``. Whatever else is asked for is ``work``.
    """

    registry: Registry
    authority: Authority
    settings: Settings
    work: Work
    prompt: Work
    ends: Work
    ask: Work
    decode: Work
    inspect: Work
    long: Work
    lists: Work
    compare: Work
    send: Work
    windows: SendMemory
    whole_answers: SendMemory
    kept: Kept[bytes]
    grace: Grace
    reserve: DiskReserve
    uploads: Uploads
    tally: Tally = field(default_factory=Tally)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def works(self) -> tuple[Work, ...]:
        """All threads."""
        return (
            *(self.work, self.prompt, self.ends, self.compare),
            *(self.ask, self.decode, self.inspect, self.long, self.lists, self.send),
        )
