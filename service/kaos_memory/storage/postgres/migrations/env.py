"""Alembic's entry: runs the migrations on the connection that it is given."""

from alembic import context

_config = context.config
context.configure(
    connection=_config.attributes["connection"],
    version_table_schema=_config.attributes["schema"],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
