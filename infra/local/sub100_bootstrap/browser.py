"""A headless Chromium for the browser tests, out of one npm package, without npm, root or system libraries.

``@sparticuz/chromium`` (MIT; Chromium: BSD) packs a headless build with the shared libraries and a font that
bare machines lack. Its archives are brotli; the node that comes inside Playwright's wheel unpacks them.
Everything is pinned by digest and lies in the user's cache directory, once for all checkouts.
"""

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from . import checks
from .exclusion import exclusive
from .failure import Failure

VERSION: Final = "153.0.0"
VARIABLE: Final = "SUB100_BROWSER"
"""The directory that ``ensure`` made, or the user's own: an executable, or ``none`` to leave the tests
out."""

_REGISTRY: Final = "https://registry.npmjs.org"
_REGISTRY_VARIABLE: Final = "npm_config_registry"
_INTEGRITY: Final = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
_ARCHIVES: Final = ("chromium", "al2023.tar", "fonts.tar")
_REVISION: Final = 1
_MARKER: Final = ".complete"
_TIMEOUT_S: Final = 300.0
_UNPACK: Final = (
    "const z=require('zlib'),f=require('fs');require('stream').pipeline(f.createReadStream(process.argv[1]),"
    "z.createBrotliDecompress(),f.createWriteStream(process.argv[2]),e=>{if(e)throw e})"
)
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{directory}/fonts</dir><cachedir>{directory}/font-cache</cachedir></fontconfig>
"""
"""The package's own names directories of another system: Chromium stops at the first form field without a
font."""

Say = Callable[[str], None]


def ensure(cache: Path, control: Path, say: Say) -> Path:
    """The browser's directory, made if it is not there yet; ``control`` is the environment with Playwright.

    Raises Failure.
    """
    if platform.machine() != "x86_64":
        raise Failure(
            f"browser: there is none for {platform.machine()}: set {VARIABLE} to a Chromium, or to none"
        )
    directory = cache / f"browser-{VERSION}-{_REVISION}"
    if (directory / _MARKER).exists():
        return directory
    with exclusive(cache / f"{directory.name}.lock", lambda: say("browser: another run is installing it")):
        if not (directory / _MARKER).exists():
            checks.disk(cache, 0.5)
            _install(directory, control, say)
    return directory


def _install(directory: Path, control: Path, say: Say) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    say(f"browser: Chromium {VERSION} into {directory} (67 MB)")
    package = directory / "package.tgz"
    _download(f"{_registry()}/@sparticuz/chromium/-/chromium-{VERSION}.tgz", package)
    with tarfile.open(package) as archive:
        for name in _ARCHIVES:
            member = archive.extractfile(f"package/bin/{name}.br")
            assert member is not None
            with (directory / f"{name}.br").open("wb") as packed:
                shutil.copyfileobj(member, packed)
            _unpack(directory / f"{name}.br", directory / name, control)
    for name in _ARCHIVES[1:]:
        with tarfile.open(directory / name) as archive:
            archive.extractall(directory)  # what the digest vouches for
        (directory / name).unlink()
    (directory / "fonts.conf").write_text(_FONTS.format(directory=escape(str(directory))))
    (directory / "chromium").chmod(0o755)
    package.unlink()
    (directory / _MARKER).touch()


def _registry() -> str:
    """npm's own variable, for those who mirror it: the digest holds wherever the bytes come from."""
    return os.environ.get(_REGISTRY_VARIABLE, _REGISTRY).rstrip("/")


def _download(url: str, to: Path) -> None:
    digest = hashlib.sha512()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, to.open("wb") as file:
            while piece := answer.read(1 << 20):
                digest.update(piece)
                file.write(piece)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise Failure(
            f"browser: {url} cannot be had ({reason}): set {VARIABLE} to a Chromium, or to none"
        ) from error
    if base64.b64encode(digest.digest()).decode() != _INTEGRITY:
        raise Failure(f"browser: {url} is not what it was: its digest differs")


def _unpack(packed: Path, to: Path, control: Path) -> None:
    node = next(control.glob("lib/python*/site-packages/playwright/driver/node"), None)
    if node is None:
        raise Failure("browser: the control environment has no Playwright")
    done = subprocess.run(
        [str(node), "-e", _UNPACK, str(packed), str(to)], capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise Failure(
            f"browser: {packed.name} cannot be unpacked: {done.stderr.decode(errors='replace')[-200:]}"
        )
    packed.unlink()
