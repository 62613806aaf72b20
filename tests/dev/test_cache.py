"""Where caches lie: one rule for Python and the Makefile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaos_dev import cache


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"KAOS_CACHE_DIR": "/a b/c", "XDG_CACHE_HOME": "/x"}, "/a b/c"),
        ({"XDG_CACHE_HOME": "/x y"}, "/x y/kaos"),
        ({"HOME": "/h z"}, "/h z/.cache/kaos"),
    ],
)
def test_the_first_that_is_set_says_where(
    environment: dict[str, str], root: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("KAOS_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache.cache_root() == Path(root)
    command = [sys.executable, "-I", "-S", cache.__file__]
    assert subprocess.check_output(command, text=True, env=os.environ) == f"{root}\n"


@pytest.mark.parametrize(("user", "root"), [(0, "/var/cache/kaos"), (1000, "/x/kaos")])
def test_what_others_must_read_lies_outside_roots_home(
    user: int, root: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.delenv("KAOS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.cache_for_other_users() == Path(root)
    monkeypatch.setenv("KAOS_CACHE_DIR", "/chosen")
    assert cache.cache_for_other_users() == Path("/chosen")
