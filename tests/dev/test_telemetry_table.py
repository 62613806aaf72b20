"""The page of metrics and spans is what the service's catalogue says."""

import re

from kaos_dev.conversations import REPOSITORY
from kaos_dev.telemetry_table import table
from kaos_memory.telemetry.catalogue import METRICS


def test_the_committed_page_is_current():
    assert (REPOSITORY / "docs" / "telemetry.md").read_text() == table(), (
        "run: python -m kaos_dev.telemetry_table > docs/telemetry.md"
    )


def test_alerts_name_metrics_that_there_are():
    families = {metric.family for metric in METRICS}
    named = {
        name.removesuffix("_count")
        for name in re.findall(r"kaos_memory_\w+(?=[\[{ ])", table().partition("Worth an")[2])
    }
    assert len(named) > 3
    assert named <= families
