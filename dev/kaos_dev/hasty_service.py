"""`python -m kaos_dev.hasty_service`: the service, which waits for models seconds, not minutes.

Deadlines and back-off are constants of the product on purpose. Tests of what happens after them
run the same process with smaller ones.
"""

import functools
from unittest.mock import patch

from kaos_memory import assembly
from kaos_memory.api import serve
from kaos_memory.work import workers

CHAT_SECONDS = 2.0
"""The deadline of a chat; of an extraction twice that."""
FIRST_RETRY_SECONDS = 0.1
"""The wait after the first failure; it doubles from there."""


def main() -> None:
    """Serve, impatiently."""
    extractor = functools.partial(
        assembly.Mem0Extractor, chat_seconds=CHAT_SECONDS, seconds=2 * CHAT_SECONDS
    )
    summariser = functools.partial(assembly.ChatSummariser, seconds=CHAT_SECONDS)
    with (
        patch.object(assembly, "Mem0Extractor", extractor),
        patch.object(assembly, "ChatSummariser", summariser),
        patch.object(workers, "_FIRST_RETRY_SECONDS", FIRST_RETRY_SECONDS),
    ):
        serve.main()


if __name__ == "__main__":
    main()
