"""Fetching the browser: from a registry on this machine, by digest, all or nothing."""

import base64
import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sub100_bootstrap import browser
from sub100_bootstrap.failure import Failure

NODE = "lib/python3.11/site-packages/playwright/driver/node"
PLAIN_NODE = """#!/bin/sh
exec cp "$3" "$4"
"""
"""Stands in for Playwright's: called as ``node -e SCRIPT FROM TO``, and these archives are not packed."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """The tests' output stays clean."""


def tar(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKAGE = tar(
    {
        "package/bin/chromium.br": b"#!/bin/sh\necho chromium\n",
        "package/bin/al2023.tar.br": tar({"lib/libnss3.so": b"nss"}),
        "package/bin/fonts.tar.br": tar({"fonts/a.ttf": b"font", "fonts.conf": b"of another system"}),
    },
    "w:gz",
)


@pytest.fixture
def control(tmp_path: Path) -> Path:
    node = tmp_path / "control" / NODE
    node.parent.mkdir(parents=True)
    node.write_text(PLAIN_NODE)
    node.chmod(0o755)
    return tmp_path / "control"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tarball, served as a registry would; returns its file."""
    root = tmp_path / "registry"
    file = root / f"@sparticuz/chromium/-/chromium-{browser.VERSION}.tgz"
    file.parent.mkdir(parents=True)
    file.write_bytes(PACKAGE)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    digest = base64.b64encode(hashlib.sha512(PACKAGE).digest()).decode()
    monkeypatch.setattr(browser, "_INTEGRITY", digest)
    yield file
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("registry")
def test_browser_is_fetched_once_with_its_libraries_and_a_font_it_finds(
    tmp_path: Path, control: Path
) -> None:
    said: list[str] = []
    made = browser.ensure(tmp_path / "cache", control, said.append)
    assert (made / "chromium").stat().st_mode & 0o111
    assert (made / "lib/libnss3.so").read_bytes() == b"nss"
    assert f"<dir>{made}/fonts</dir>" in (made / "fonts.conf").read_text()
    assert not list(made.glob("*.br")) + list(made.glob("*.tar")) + list(made.glob("*.tgz"))
    assert len(said) == 1
    assert browser.ensure(tmp_path / "cache", control, said.append) == made
    assert len(said) == 1


def test_browser_whose_digest_differs_is_not_used(tmp_path: Path, control: Path, registry: Path) -> None:
    registry.write_bytes(PACKAGE + b"x")
    for _ in range(2):
        with pytest.raises(Failure, match="its digest differs"):
            browser.ensure(tmp_path / "cache", control, lambda _: None)
    registry.write_bytes(PACKAGE)
    assert (browser.ensure(tmp_path / "cache", control, lambda _: None) / "chromium").exists()


def test_registry_out_of_reach_is_one_line_with_the_way_out(
    tmp_path: Path, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    with pytest.raises(Failure, match=r"cannot be had .*: set SUB100_BROWSER to a") as caught:
        browser.ensure(tmp_path / "cache", control, lambda _: None)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("registry")
def test_environment_without_playwright_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="the control environment has no Playwright"):
        browser.ensure(tmp_path / "cache", tmp_path / "empty", lambda _: None)
