"""One fact by its id, in SQLite."""

from uuid import UUID

from kaos_memory.storage.local.database import OnDatabase, moment, one, where
from kaos_memory.tiers.memory import Fact
from kaos_memory.tiers.provenance import Provenance
from kaos_memory.tiers.reach import Owners

_ONE = "SELECT * FROM facts f WHERE f.id = :id AND {condition}"


class FactRecords(OnDatabase):
    """Looking a fact up."""

    async def fact(self, owners: Owners, fact_id: UUID) -> tuple[Fact, Provenance] | None:
        """A fact of these owners and where it comes from, or None."""
        condition, named = where(owners, "f")
        query = _ONE.replace("{condition}", condition)
        row = await self._db.read(
            lambda connection: one(connection, query, {**named, "id": fact_id.bytes})
        )
        if row is None:
            return None
        return (
            Fact(
                id=fact_id,
                principal=row["principal"],
                agent=row["agent"],
                session=row["session"],
                text=row["text"],
                hash=row["hash"],
                created_at=moment(row["created_at"]),
                updated_at=moment(row["updated_at"]),
            ),
            Provenance(
                first_position=row["first_position"],
                last_position=row["last_position"],
                said_at=moment(row["said_at"]),
                model=row["model"],
                prompt_hash=row["prompt_hash"],
            ),
        )
