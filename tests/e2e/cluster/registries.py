"""Let a build reach the package registries the way this machine does, and leave no trace of it.

What differs between machines (a certificate authority, an index, a proxy's address) is mounted into
the build and is part of neither the image nor the repository. Proxy variables are passed by buildah
itself. Downloads are kept between builds in a mounted cache folder.
"""

import configparser
import json
import os
import ssl
from pathlib import Path

from tests.e2e.cluster.paths import image_cache

_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
"""Where Debian's Python, pip and uv look for certificate authorities."""
_PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


def mounts() -> list[tuple[Path, str, str]]:
    """Return the mounts of a build: (path here, path in the build, `ro` or `rw`)."""
    folder = image_cache() / "registries"
    downloads = image_cache() / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    downloads.mkdir(parents=True, exist_ok=True)
    options = _pip_options()
    pip, uv = folder / "pip.conf", folder / "uv.toml"
    pip.write_text(_pip_configuration(options))
    uv.write_text(_uv_configuration(options))
    found = [
        (pip, "/etc/pip.conf", "ro"),
        (uv, "/etc/uv/uv.toml", "ro"),
        (downloads, "/root/.cache", "rw"),
    ]
    authorities = _authorities()
    return [*found, (authorities, _AUTHORITIES, "ro")] if authorities else found


def _authorities() -> Path | None:
    named = (os.environ.get(name) for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
    for candidate in (*named, _AUTHORITIES, ssl.get_default_verify_paths().cafile):
        if candidate and Path(candidate).is_file():
            return Path(candidate).resolve()
    return None


def _pip_options() -> dict[str, str]:
    """Return this machine's pip options that matter to a build; the environment comes last."""
    files = [
        Path("/etc/pip.conf"),
        Path.home() / ".pip/pip.conf",
        Path.home() / ".config/pip/pip.conf",
        Path(os.environ.get("PIP_CONFIG_FILE", os.devnull)),
    ]
    parser = configparser.RawConfigParser()
    parser.read(files)
    options: dict[str, str] = {}
    for option in _PIP_OPTIONS:
        variable = "PIP_" + option.upper().replace("-", "_")
        value = os.environ.get(variable) or parser.get("global", option, fallback="")
        if value:
            options[option] = value
    return options


def _pip_configuration(options: dict[str, str]) -> str:
    lines = ["[global]", f"cert = {_AUTHORITIES}", "disable-pip-version-check = true"]
    indented = {name: value.replace("\n", "\n    ") for name, value in options.items()}
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in indented.items()), ""])


def _uv_configuration(options: dict[str, str]) -> str:
    lines = ["native-tls = true"]
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    index = index or options.get("index-url")
    if index:  # a JSON string is a TOML string
        lines += ["[[index]]", f"url = {json.dumps(index)}", "default = true"]
    return "\n".join([*lines, ""])
