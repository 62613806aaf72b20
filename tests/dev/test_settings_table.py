"""The page of settings is what the model says."""

from kaos_dev.conversations import REPOSITORY
from kaos_dev.settings_table import table


def test_the_committed_page_is_current():
    assert (REPOSITORY / "docs" / "settings.md").read_text() == table(), (
        "run: python -m kaos_dev.settings_table > docs/settings.md"
    )
