"""A command's way to the storage of the store that the environment names."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from kaos_memory.commands.outcome import ExitCode, end
from kaos_memory.settings import LocalStorage, SettingsError, from_environment
from kaos_memory.storage.protocol import Storage, StorageMisconfigured, StorageUnavailable

_T = TypeVar("_T")


def on_storage(action: Callable[[Storage], Awaitable[_T]]) -> _T:
    """Do something on the open storage. Where that cannot be, the command ends saying why."""
    # The storages and what they need take a second to load: too long to wait for a help text.
    from kaos_memory.assembly import storage_of  # noqa: PLC0415

    try:
        settings = from_environment(os.environ)
        if settings.storage.type == "local":
            _require_directory(settings.storage.local or LocalStorage())
        storage = storage_of(settings)
    except SettingsError as error:
        end(ExitCode.REFUSED, *error.problems)
    try:
        return asyncio.run(_opened(storage, action))
    except StorageMisconfigured as error:
        end(ExitCode.NO_STORAGE, str(error))
    except StorageUnavailable as error:
        end(
            ExitCode.NO_STORAGE,
            f"the storage is unavailable ({error}); check that it runs and that the settings lead "
            "to it, then try again. What was done before stays done",
        )


async def _opened(storage: Storage, action: Callable[[Storage], Awaitable[_T]]) -> _T:
    try:
        await storage.open()
        return await action(storage)
    finally:
        await storage.close()


def _require_directory(local: LocalStorage) -> None:
    """Opening a local storage makes it; a command that looks after one must not."""
    if not Path(local.path).is_dir():
        end(
            ExitCode.NO_STORAGE,
            f"there is no store in {local.path}; correct storage.local.path "
            "(KAOS_MEMORY_LOCAL_PATH)",
        )
