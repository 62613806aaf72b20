"""One fact by its id, in PostgreSQL."""

from dataclasses import fields
from uuid import UUID

from kaos_memory.storage.postgres.database import OnDatabase, where
from kaos_memory.tiers.memory import Fact
from kaos_memory.tiers.provenance import Provenance
from kaos_memory.tiers.reach import Owners

_IN_FACT = [field.name for field in fields(Fact) if field.name != "score"]
_IN_SOURCE = [field.name for field in fields(Provenance)]
_ONE = f"""
    SELECT {", ".join(f"f.{column}" for column in _IN_FACT + _IN_SOURCE)}
    FROM facts f WHERE f.id = $1 AND {{condition}}
"""


class FactRecords(OnDatabase):
    """Looking a fact up."""

    async def fact(self, owners: Owners, fact_id: UUID) -> tuple[Fact, Provenance] | None:
        """A fact of these owners and where it comes from, or None."""
        condition, arguments = where(owners, "f", first=2)
        async with self._db.read(owners) as connection:
            row = await connection.fetchrow(
                _ONE.replace("{condition}", condition), fact_id, *arguments
            )
        if row is None:
            return None
        return (
            Fact(**{column: row[column] for column in _IN_FACT}),
            Provenance(**{column: row[column] for column in _IN_SOURCE}),
        )
