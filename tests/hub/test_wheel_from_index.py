"""The plain index client against a real server on 127.0.0.1."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from package_index import WHEEL, WHEEL_NAME, PackageIndex, entry_of

from cutaway.errors import DownloadError
from cutaway.hub.wheel_from_index import (
    IndexFile,
    download_wheel_from_index,
    files_in_html,
    files_in_json,
    index_url,
)

PAGE = "http://host.invalid/root/simple/tiny-model/"
DIGEST = "ab" * 32


def no_progress(stage: str, done: int, total: int | None) -> None:
    pass


def download(folder: Path) -> bytes:
    return download_wheel_from_index(entry_of().source, folder, no_progress).read_bytes()


def test_html_page() -> None:
    page = f"""<A class=x HREF="../../f/a%2Bb-1-py3-none-any.whl#sha256={DIGEST.upper()}" data-yanked>a</A>
        <a>no address</a><a href='/abs.whl#md5=00'>b</a><a href="http://[bad/x.whl">c</a>
        <a href="https://other.invalid/c.whl?k=1&amp;l=2">c</a>"""
    assert files_in_html(page, PAGE) == [
        IndexFile("a+b-1-py3-none-any.whl", "http://host.invalid/root/f/a%2Bb-1-py3-none-any.whl", DIGEST),
        IndexFile("abs.whl", "http://host.invalid/abs.whl", None),
        IndexFile("c.whl", "https://other.invalid/c.whl?k=1&l=2", None),
    ]
    assert files_in_html('<base href="/b/"><a href="d.whl">d</a>', PAGE)[0].url == "http://host.invalid/b/d.whl"


def test_json_page() -> None:
    files = [
        {"filename": "a.whl", "url": "../../f/a.whl", "hashes": {"sha256": DIGEST}, "yanked": True},
        {"filename": "b.whl", "url": "https://other.invalid/b.whl", "hashes": {}},
    ]
    assert files_in_json(json.dumps({"files": files}), PAGE) == [
        IndexFile("a.whl", "http://host.invalid/root/f/a.whl", DIGEST),
        IndexFile("b.whl", "https://other.invalid/b.whl", None),
    ]


@pytest.mark.parametrize(
    "page", ["", "{", "[]", "{}", '{"files": 3}', '{"files": [{}]}', '{"files": [[1]]}', "[" * 10**5]
)
def test_bad_json_page(page: str) -> None:
    with pytest.raises(DownloadError, match="PEP 691"):
        files_in_json(page, PAGE)


@pytest.mark.parametrize("page", ["<![foo[ ]]>", "<![ x"])
def test_bad_html_page(page: str) -> None:
    with pytest.raises(DownloadError, match="no HTML page"):
        files_in_html(page, PAGE)


@given(page=st.one_of(st.text(), st.text(alphabet="<a href='=\">/:[]#&;!-b")))
def test_any_text_is_a_page_or_one_error(page: str) -> None:
    for parse in (files_in_html, files_in_json):
        with contextlib.suppress(DownloadError):
            assert all(isinstance(file, IndexFile) for file in parse(page, PAGE))


def test_which_index(monkeypatch: pytest.MonkeyPatch) -> None:
    public = index_url()
    assert public.startswith("https://")
    monkeypatch.setenv("PIP_INDEX_URL", "https://a.invalid/simple")
    assert index_url() == "https://a.invalid/simple"
    monkeypatch.setenv("UV_INDEX_URL", "https://b.invalid/simple")
    assert index_url() == "https://b.invalid/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mine=https://c.invalid/simple?x=1")
    assert index_url() == "https://c.invalid/simple?x=1"
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.setenv(variable, "")
    assert index_url() == public


@pytest.mark.parametrize("speaks_json", [False, True])
@pytest.mark.parametrize("slash", ["", "/"])
def test_download(
    index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, speaks_json: bool, slash: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url + slash)
    index.speaks_json = speaks_json
    assert download(tmp_path) == WHEEL
    assert [path for path, _ in index.requests] == ["/root/simple/tiny-model/", f"/root/files/{WHEEL_NAME}"]


@pytest.mark.parametrize("declares_length", [True, False])
def test_connection_ends_half_way(index: PackageIndex, tmp_path: Path, declares_length: bool) -> None:
    index.closes_after, index.declares_length = len(WHEEL) // 2, declares_length
    with pytest.raises(DownloadError, match=f"ended after {len(WHEEL) // 2} of the {len(WHEEL)}|broke off"):
        download(tmp_path)


def test_wheel_longer_than_expected(index: PackageIndex, tmp_path: Path) -> None:
    index.wheel = WHEEL + bytes(5_000_000)
    with pytest.raises(DownloadError, match="larger than"):
        download(tmp_path)
    assert (tmp_path / "download.whl").stat().st_size <= len(WHEEL)


@pytest.mark.parametrize("speaks_json", [False, True])
def test_wheel_that_the_index_did_not_promise(index: PackageIndex, tmp_path: Path, speaks_json: bool) -> None:
    index.speaks_json, index.promised_sha256 = speaks_json, DIGEST
    with pytest.raises(DownloadError, match=f"promises SHA-256 {DIGEST}, got"):
        download(tmp_path)


def test_page_without_digest(index: PackageIndex, tmp_path: Path) -> None:
    index.promised_sha256 = ""
    assert download(tmp_path) == WHEEL


def test_project_or_version_missing(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = entry_of().source
    for changed, message in (
        ({"project": "nothing"}, "404"),
        ({"version": "1.2"}, "offers no wheel of tiny-model==1.2"),
    ):
        other = type(source)(**{**vars(source), **changed})
        with pytest.raises(DownloadError, match=message):
            download_wheel_from_index(other, tmp_path, no_progress)


def test_nobody_answers(deaf_index: None, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"offline.*UV_DEFAULT_INDEX, UV_INDEX_URL, PIP_INDEX_URL"):
        download(tmp_path)


@pytest.mark.parametrize(
    "url", ["file:///etc", "ftp://127.0.0.1/simple", "nonsense", "http://[::1/simple", "http:///x"]
)
def test_index_that_is_no_web_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", url)
    with pytest.raises(DownloadError):
        download(tmp_path)


def test_page_cannot_name_a_local_file(index: PackageIndex, tmp_path: Path) -> None:
    file = tmp_path / WHEEL_NAME
    file.write_bytes(WHEEL)
    index.moved_to = file.as_uri()
    with pytest.raises(DownloadError):
        download(tmp_path)


def test_login_is_used_hidden_and_kept_from_other_hosts(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.login = "me:s3cret/&"
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:s3cret%2F%26@"))
    with PackageIndex() as other:
        index.moved_to = f"http://{other.host}/root/files/{WHEEL_NAME}"
        assert download(tmp_path) == WHEEL
        assert all(authorization for _, authorization in index.requests)
        assert [authorization for _, authorization in other.requests] == [None]
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:wr0ng@"))
    with pytest.raises(DownloadError, match="401") as caught:
        download(tmp_path)
    assert "wr0ng" not in str(caught.value)
