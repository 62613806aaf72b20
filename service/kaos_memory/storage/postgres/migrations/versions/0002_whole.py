"""Idle sessions, fair claims, hybrid recall, idempotent writes, receipts that can be replayed.

Everything is added with a default, so that a service of the version before can go on writing.
"""

from alembic import context, op
from sqlalchemy import text

from kaos_memory.tiers import lexical

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_WORDS = text("""
    UPDATE facts SET terms = :terms, words = :words, cues = :cues, said_at = created_at
    WHERE principal = :principal AND id = :id
""")

_TENANT_TABLES = ("sessions", "turns", "work", "facts")


def upgrade() -> None:
    """Add columns, tables and indexes."""
    attributes = context.config.attributes
    request: str = attributes["request_role"]
    worker: str = attributes["worker_role"]
    # Not even the owner is above the policies; it looks after these rows in this transaction.
    for table in _TENANT_TABLES:
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    _conversations()
    _work()
    _facts()
    for table in _TENANT_TABLES:
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    _records()
    _grants(request, worker)


def _conversations() -> None:
    op.execute("ALTER TABLE turns ADD COLUMN said_at timestamptz NOT NULL DEFAULT now()")
    op.execute("UPDATE turns SET said_at = created_at")
    op.execute("ALTER TABLE sessions ADD COLUMN closed_through integer NOT NULL DEFAULT 0")
    op.execute("CREATE INDEX digests_age ON digests (created_at)")
    op.execute("ALTER TABLE sessions ADD CHECK (closed_through <= last_position)")
    # When a session began decides whether the replay of an erasure covers it. Of those that are
    # there already nobody knows: they are older than everything.
    op.execute("ALTER TABLE sessions ADD COLUMN began_at timestamptz NOT NULL DEFAULT '-infinity'")
    # Not when its transaction began: that may have waited for an erasure since.
    op.execute("ALTER TABLE sessions ALTER COLUMN began_at SET DEFAULT clock_timestamp()")


def _work() -> None:
    op.execute("ALTER TABLE work ADD COLUMN waiting boolean NOT NULL DEFAULT false")
    # An agent that acts for nobody queues under its own name.
    op.execute("""
        ALTER TABLE work ADD COLUMN claimant text NOT NULL
            GENERATED ALWAYS AS (CASE principal WHEN '' THEN agent ELSE principal END) STORED
    """)
    op.execute("DROP INDEX work_due")
    op.execute("CREATE INDEX work_due ON work (claimant, run_after) WHERE NOT dead AND NOT waiting")
    for kind in ("fold", "extract"):
        op.execute(
            f"CREATE INDEX work_due_{kind} ON work (claimant, run_after) "
            f"WHERE NOT dead AND NOT waiting AND kind = '{kind}'"
        )
    op.execute("CREATE INDEX work_waiting ON work (run_after) WHERE waiting")


def _facts() -> None:
    op.execute("""
        ALTER TABLE facts
            ADD COLUMN speaker text NOT NULL DEFAULT '',
            ADD COLUMN said_at timestamptz NOT NULL DEFAULT now(),
            ADD COLUMN terms bytea NOT NULL DEFAULT '',
            ADD COLUMN words integer NOT NULL DEFAULT 0,
            ADD COLUMN cues smallint NOT NULL DEFAULT 0
    """)
    connection = op.get_bind()
    facts = connection.execute(text("SELECT principal, id, text FROM facts")).all()
    for principal, identity, said in facts:
        connection.execute(
            _WORDS,
            {
                "principal": principal,
                "id": identity,
                "terms": lexical.terms(said),
                "words": lexical.words(said),
                "cues": int(lexical.cues(said)),
            },
        )
    # Retention goes by age, whoever the owner is.
    op.execute("CREATE INDEX facts_age ON facts (updated_at)")


def _records() -> None:
    """Records that name nobody: keys are keyed hashes."""
    op.execute("""
        CREATE TABLE idempotency (
            key bytea PRIMARY KEY,
            body bytea NOT NULL,
            scheduled boolean NOT NULL DEFAULT false,
            stored_at timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("CREATE INDEX idempotency_age ON idempotency (stored_at)")
    op.execute("ALTER TABLE erasures ADD COLUMN erased_by bytea, ADD COLUMN fact bytea")
    op.execute("CREATE INDEX erasures_fact ON erasures (fact) WHERE fact IS NOT NULL")
    op.execute("CREATE TABLE token_usage (day date PRIMARY KEY, tokens bigint NOT NULL)")


def _grants(request: str, worker: str) -> None:
    op.execute(f"GRANT SELECT, INSERT, UPDATE ON idempotency TO {request}")
    op.execute(f"GRANT SELECT, DELETE ON idempotency, erasures TO {worker}")
    op.execute(f"GRANT SELECT, INSERT, UPDATE ON token_usage TO {worker}")
    op.execute(f"GRANT DELETE ON facts TO {worker}")
    # Retention locks what it deletes, which needs the right to update.
    op.execute(f"GRANT UPDATE ON digests TO {worker}")


def downgrade() -> None:
    """Refused: turns would lose their dates, and facts their words."""
    raise RuntimeError("restore a backup of the version before instead")
