"""The guards on PostgreSQL: triggers that call functions of their names.

Unique keys need none of them: an INSERT over one fails, does nothing, or is an UPDATE, which is refused.

What is sealed must not grow while another transaction seals it, either: neither would see the other's row. So whoever
inserts into a guarded table is the only one who does, until the transaction ends; ``writing`` is it from its start, and
loses nothing. Whoever comes after waits, and then sees the seal: in a view of the database that is older than it, the
deferred foreign key to the sealing row fails at the commit.

The triggers fire for those too who ask for the ways of a replica (``session_replication_role``), and nobody's temporary
table stands in for the one that seals.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Connection, text

from benchlock.registry.catalogue.guarded import REFUSAL, Guard, row_exists

WRITER = 0x62656E63686C6F63
"""The advisory lock that the only transaction holds which writes: "benchloc"."""

_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = (1 << bit for bit in range(6))
_REFUSE = (
    f"RAISE EXCEPTION '% is {REFUSAL}', TG_TABLE_NAME "
    "USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME;"
)
_PATH = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"
_FOUND = """
SELECT tgname, relname, tgtype, prosrc
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
WHERE relnamespace = current_schema()::regnamespace AND proname = tgname AND tgenabled = 'A' AND tgqual IS NULL
AND tgattr = '' AND proconfig = ARRAY['search_path=' || quote_ident(current_schema()) || ', pg_temp']
"""


@dataclass(frozen=True, slots=True)
class _Trigger:
    """One trigger: when it fires, in SQL and as the database says it, and what its function does."""

    name: str
    table: str
    when: str
    each: str
    kind: int
    body: str

    def statements(self) -> Iterator[tuple[str, str]]:
        function = f"CREATE OR REPLACE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql"
        yield f"{self.name}()", f"{function} SET search_path FROM CURRENT AS $${self.body}$$"
        trigger = f"CREATE TRIGGER {self.name} BEFORE {self.when} ON {self.table} FOR EACH {self.each}"
        yield self.name, f"{trigger} EXECUTE FUNCTION {self.name}()"
        yield f"{self.name} always", f"ALTER TABLE {self.table} ENABLE ALWAYS TRIGGER {self.name}"


def triggers(guard: Guard) -> Mapping[str, str]:
    return {"search path": _PATH} | dict(chain.from_iterable(one.statements() for one in _triggers(guard)))


def leftovers(guard: Guard) -> tuple[str, ...]:
    return tuple(f"DROP FUNCTION {one.name}()" for one in _triggers(guard))


def missing(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    found = {tuple(row) for row in connection.execute(text(_FOUND))}
    expected = chain.from_iterable(_triggers(guard) for guard in wanted)
    return tuple(one.name for one in expected if (one.name, one.table, one.kind, one.body) not in found)


def _triggers(guard: Guard) -> Iterator[_Trigger]:
    def trigger(event: str, when: str, kind: int, body: str) -> _Trigger:
        each = "ROW" if kind & _ROW else "STATEMENT"
        return _Trigger(guard.trigger(event), guard.table, when, each, kind | _BEFORE, f"BEGIN {body} END")

    yield trigger("change", "UPDATE OR DELETE", _ROW | _UPDATE | _DELETE, _REFUSE)
    yield trigger("truncate", "TRUNCATE", _TRUNCATE, _REFUSE)
    yield trigger("alone", "INSERT", _INSERT, f"PERFORM pg_advisory_xact_lock({WRITER}); RETURN NULL;")
    if guard.seal:
        sealed = row_exists(guard.seal.table, guard.seal.columns)
        yield trigger("sealed", "INSERT", _ROW | _INSERT, f"IF {sealed} THEN {_REFUSE} END IF; RETURN NEW;")
