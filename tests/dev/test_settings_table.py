"""The page of settings is what the model and the components' arguments say."""

from typing import Any, NotRequired, get_args, get_origin, is_typeddict

from kaos_dev.conversations import REPOSITORY
from kaos_dev.settings_table import FILLED_IN, table
from kaos_memory.settings import VARIABLES
from pulumi_kaos import MemoryStoreArgs


def test_the_committed_page_is_current():
    assert (REPOSITORY / "docs" / "settings.md").read_text() == table(), (
        "run: python -m kaos_dev.settings_table > docs/settings.md"
    )


def test_the_page_says_of_every_field_that_no_argument_names_what_it_follows_from():
    named = paths(MemoryStoreArgs, ())
    fields = {variable.dotted for variable in VARIABLES.values()}
    others = {field for field in fields - named if not field.startswith("storage.local.")}
    assert others == FILLED_IN.keys()


def test_local_storage_is_shown_as_not_available_in_components():
    rows = table().splitlines()
    [kind] = [row for row in rows if row.startswith("| `storage.type`")]
    assert "| required; `local` is not available in this version |" in kind
    local = [row for row in rows if row.startswith("| `storage.local.")]
    assert len(local) == 3
    assert all("| not available in this version |" in row for row in local)


def test_bounds_of_length_stand_beside_patterns():
    [row] = [row for row in table().splitlines() if row.startswith("| `store.name`")]
    assert r"text like `^\S(.*\S)?$`, of at most 200 characters" in row


def paths(arguments: Any, above: tuple[str, ...]) -> set[str]:
    """The dotted paths of all arguments, groups and leaves."""
    found: set[str] = set()
    for name, annotation in arguments.__annotations__.items():
        kind = get_args(annotation)[0] if get_origin(annotation) is NotRequired else annotation
        found.add(".".join((*above, name)))
        if is_typeddict(kind):
            found |= paths(kind, (*above, name))
    return found
