"""Repositories of a hub of our own, through the real client: what is fetched, kept, checked, and refused."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from cutaway.errors import CapacityError, CutawayError, DownloadError, InvalidRequestError, ModelFileError
from cutaway.hub import LocalModel, hub_files, installed, plan_removal, resolve
from support.hub_server import COMMIT, TOKEN, HubServer, Repository

MODEL = bytes(range(256)) * 1000
OTHER = bytes(range(255, -1, -1)) * 700
PARTS = [MODEL[:90_000], MODEL[90_000:100_000], MODEL[100_000:]]
REPOSITORIES = {
    "owner/several": {"README.md": b"# read me", "m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": OTHER},
    "owner/split": {f"big-0000{n}-of-00003.gguf": part for n, part in enumerate(PARTS, 1)},
    "owner/shards": {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors", '
        b'"b": "model-00002-of-00002.safetensors"}}',
        "model-00001-of-00002.safetensors": MODEL,
        "model-00002-of-00002.safetensors": OTHER,
        "pytorch_model.bin": OTHER * 2,
    },
    "owner/pickle": {"config.json": b"{}", "pytorch_model.bin": MODEL},
    "owner/empty": {},
    "owner/private": {"m.gguf": MODEL},
    "owner/gated": {"m.gguf": MODEL},
    "gpt2": {"m.gguf": MODEL},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A running hub, and the client with settings of its own. In a new process its variables do that (below)."""
    repositories = {
        name: Repository(dict(files), private=name.endswith("private"), gated=name.endswith("gated"))
        for name, files in REPOSITORIES.items()
    }
    with HubServer(repositories) as running:
        settings = {
            "ENDPOINT": running.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": running.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_URL_HOSTS": frozenset({"127.0.0.1"}),
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_HUB_OFFLINE": False,
            "DOWNLOAD_CHUNK_SIZE": 50_000,  # what it keeps at least of a broken connection; else 10 MiB
        }
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        monkeypatch.setattr("time.sleep", lambda _: None)  # the client waits before it tries again
        yield running


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "working").mkdir()
    monkeypatch.chdir(tmp_path / "working")


def names_in(folder: Path) -> list[str]:
    """All that lies in the cache but the client's own signs and locks, with an unfinished file's name shortened."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return sorted(name for name in names if not name.startswith((".locks/", "CACHEDIR.TAG")))


def resolve_noting(name: str, **options: Any) -> tuple[LocalModel, list[tuple[str, int, int | None]]]:
    calls: list[tuple[str, int, int | None]] = []
    return resolve(name, lambda *call: calls.append(call), **options), calls


# -- what is fetched


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("owner/several", "m-Q4_K_M.gguf", MODEL),
        ("owner/several:Q8_0", "m-Q8_0.gguf", OTHER),
        ("hf:owner/several:m-Q8_0.gguf", "m-Q8_0.gguf", OTHER),
        ("hf://owner/several", "m-Q4_K_M.gguf", MODEL),
        ("hf:gpt2", "m.gguf", MODEL),
    ],
)
def test_one_file(hub: HubServer, tmp_path: Path, name: str, file: str, content: bytes) -> None:
    model, calls = resolve_noting(name)
    assert (model.name, model.entry) == (name, None)
    assert model.path.name == file
    assert model.path.parent.name == COMMIT
    assert model.path.is_relative_to(tmp_path / "hub")
    assert model.path.read_bytes() == content
    assert calls[-1] == ("check", len(content), len(content))
    downloads = [done for stage, done, total in calls if stage == "download" and total == len(content)]
    assert downloads == sorted(downloads)
    assert downloads[-1] == len(content)
    assert len(hub.seen("/storage/")) == 1, "one file, once"


def test_all_parts_of_a_split_model(hub: HubServer) -> None:
    model, calls = resolve_noting("owner/split")
    assert model.path.name == "big-00001-of-00003.gguf"
    assert [path.read_bytes() for path in sorted(model.path.parent.iterdir())] == PARTS
    assert max(done for stage, done, _ in calls if stage == "download") == len(MODEL)
    assert {total for stage, _, total in calls if stage == "download"} == {len(MODEL)}, "one count for all parts"


def test_a_folder_of_safetensors_and_never_a_pickle(hub: HubServer) -> None:
    model = resolve("owner/shards")
    assert model.path.is_dir()
    assert sorted(path.name for path in model.path.iterdir()) == sorted(
        name for name in REPOSITORIES["owner/shards"] if name != "pytorch_model.bin"
    )
    with pytest.raises(ModelFileError, match=r"pickle files .* never opened.*pytorch_model\.bin"):
        resolve("owner/pickle")
    assert hub.seen("pytorch_model", "HEAD") == hub.seen("pytorch_model") == []


def test_the_cache_is_used_without_the_network(hub: HubServer) -> None:
    path = resolve("owner/several:Q4_K_M").path
    shards = resolve("owner/shards").path
    hub.requests.clear()
    assert resolve("owner/several:Q4_K_M").path == resolve("owner/several").path == path
    assert resolve("owner/shards").path == shards
    assert hub.requests == []
    (shards / "model-00002-of-00002.safetensors").unlink()
    assert resolve("owner/shards").path == shards
    assert (shards / "model-00002-of-00002.safetensors").read_bytes() == OTHER


def test_another_quantisation_is_fetched_though_one_is_there(hub: HubServer) -> None:
    first = resolve("owner/several:Q4_K_M").path
    assert resolve("owner/several:Q8_0").path == first.with_name("m-Q8_0.gguf")


def test_pull_asks_for_what_is_new(hub: HubServer) -> None:
    old = resolve("owner/several").path
    hub.repositories["owner/several"].commit = "f" * 40
    hub.repositories["owner/several"].files["m-Q4_K_M.gguf"] = OTHER
    assert resolve("owner/several").path == old
    new = resolve("owner/several", refresh=True).path
    assert new.read_bytes() == OTHER
    assert resolve("owner/several").path == new
    assert old.read_bytes() == MODEL, "what a process may have open stays"


def test_whole_files_are_not_fetched_again(hub: HubServer) -> None:
    resolve("owner/split")
    hub.requests.clear()
    resolve("owner/split", refresh=True)
    assert hub.seen("/storage/") == []


def test_existing_files_come_first(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "working" / "owner").mkdir()
    (tmp_path / "working" / "owner" / "several").write_bytes(b"GGUF")
    assert resolve("owner/several").path == Path("owner/several")
    (tmp_path / "working" / "hf:owner").mkdir()
    (tmp_path / "working" / "hf:owner" / "several").write_bytes(b"GGUF")
    assert resolve("hf:owner/several").path.read_bytes() == MODEL
    with pytest.raises(InvalidRequestError, match="rm removes fetched models only"):
        plan_removal("owner/several")
    assert len(plan_removal("hf:owner/several").files) == 1


# -- broken connections, damaged files


def test_a_broken_connection_is_resumed(hub: HubServer) -> None:
    hub.faults.breaks_after, hub.faults.breaks = 100_000, 2
    model, calls = resolve_noting("owner/several")
    assert model.path.read_bytes() == MODEL
    assert [headers.get("range") for headers in hub.seen("/storage/")] == [None, "bytes=100000-", "bytes=200000-"]
    assert max(done for stage, done, _ in calls if stage == "download") == len(MODEL), "no byte is counted twice"


def test_a_server_that_ignores_ranges(hub: HubServer) -> None:
    hub.faults.breaks_after, hub.faults.breaks, hub.faults.ignores_ranges = 100_000, 1, True
    assert resolve("owner/several").path.read_bytes() == MODEL


def test_a_connection_that_never_holds(hub: HubServer, tmp_path: Path) -> None:
    hub.faults.breaks_after, hub.faults.breaks = 0, -1
    with pytest.raises(DownloadError, match=r"owner/several was not fetched: .*HF_ENDPOINT is http://127"):
        resolve("owner/several")
    assert names_in(tmp_path / "hub") == ["models--owner--several/refs/main"]


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (OTHER, r"should be of size 256000 but has size 179200"),
        (MODEL + b"x", r"should be of size 256000 but has size 256001"),
        (MODEL[:-1] + b"x", r"m-Q4_K_M.gguf has the SHA-256 [0-9a-f]{64}; the hub says .*It is deleted"),
    ],
)
def test_other_bytes_than_the_hub_says(hub: HubServer, tmp_path: Path, sent: bytes, part: str) -> None:
    hub.faults.other_bytes["m-Q4_K_M.gguf"] = sent
    with pytest.raises(DownloadError, match=part):
        resolve("owner/several")
    assert names_in(tmp_path / "hub") == ["models--owner--several/refs/main"]
    hub.faults.other_bytes.clear()
    assert resolve("owner/several").path.read_bytes() == MODEL


def test_a_file_of_the_cache_that_was_cut_is_mended_by_pull(hub: HubServer) -> None:
    path = resolve("owner/several").path
    os.truncate(path, 1000)
    assert resolve("owner/several", refresh=True).path.read_bytes() == MODEL


def test_an_interrupted_check_leaves_nothing(hub: HubServer, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int | None) -> None:
        if stage == "check":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve("owner/several", interrupt)
    assert names_in(tmp_path / "hub") == ["models--owner--several/refs/main"]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_an_interrupted_fetch_leaves_whole_files_only(hub: HubServer, tmp_path: Path, part: int) -> None:
    before = sum(map(len, PARTS[:part]))

    def interrupt(stage: str, done: int, total: int | None) -> None:
        if stage == "download" and done > before:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve("owner/split", interrupt)
    left = [name for name in names_in(tmp_path / "hub") if "/snapshots/" in name]
    assert [Path(name).name for name in left] == [f"big-0000{n}-of-00003.gguf" for n in range(1, part + 1)]
    assert not any("incomplete" in name for name in names_in(tmp_path / "hub"))
    hub.requests.clear()
    resolve("owner/split")
    assert len(hub.seen("/storage/")) == 3 - part, "whole parts are not fetched again"


def test_the_repository_changes_meanwhile(hub: HubServer) -> None:
    def change(stage: str, done: int, total: int | None) -> None:
        hub.repositories["owner/split"].commit = "e" * 40

    with pytest.raises(DownloadError, match=r"owner/split changed while it was being fetched. Try again"):
        resolve("owner/split", change)
    assert resolve("owner/split").path.parent.name == "e" * 40


# -- errors


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "owner/absent",
            [
                "There is no file or folder 'owner/absent'",
                "has no repository 'owner/absent'",
                "HF_TOKEN",
                "(there is none now)",
            ],
        ),
        ("owner/private", ["has no repository 'owner/private', or it is private"]),
        ("owner/gated", ["owner/gated is gated", "/owner/gated, then set HF_TOKEN", "(there is none now)"]),
        ("a/b--c", ["'a/b--c' can't be a repository's name"]),
    ],
)
def test_no_access(hub: HubServer, name: str, parts: Sequence[str]) -> None:
    with pytest.raises(DownloadError) as caught:
        resolve(name)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_token_opens_what_is_private_and_is_not_sent_elsewhere(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("owner/private", "owner/gated"):
        assert resolve(name).path.read_bytes() == MODEL
    assert hub.seen("/api/models/")[0]["authorization"] == f"Bearer {TOKEN}"
    assert all("authorization" not in headers for headers in hub.seen("/storage/"))


def test_a_token_that_is_not_valid(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(DownloadError, match=r"401.*the token in HF_TOKEN.*is not valid"):
        resolve("owner/several")


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (403, "the token may not read it"),
        (429, "too many requests"),
        (404, "Try again later"),
        (500, "answered 500"),
        (503, "503"),
    ],
)
def test_other_answers(hub: HubServer, status: int, part: str) -> None:
    hub.faults.status = status
    with pytest.raises(DownloadError, match=part):
        resolve("owner/several")


def test_what_is_no_hub(hub: HubServer) -> None:
    hub.faults.html = True
    with pytest.raises(DownloadError, match="it must speak the hub's API"):
        resolve("owner/several")


def test_no_connection(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.__exit__()
    with pytest.raises(DownloadError, match=r"was not fetched: ConnectError.*If the hub can't be reached"):
        resolve("owner/several")


def test_what_the_repository_has_in_place_of_a_model(hub: HubServer) -> None:
    with pytest.raises(ModelFileError, match=r"owner/empty has no GGUF model.*It has: nothing"):
        resolve("owner/empty")
    with pytest.raises(InvalidRequestError, match=r"none of Q6_K: .*m-Q8_0.*; name one, as in owner/several:Q4_K_M"):
        resolve("owner/several:Q6_K")


@pytest.mark.parametrize("variable", ["CUTAWAY_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    path = resolve("owner/several:Q8_0").path
    hub.requests.clear()
    monkeypatch.setenv(variable, "1")
    assert resolve("owner/several:Q8_0").path == path
    assert resolve("owner/several:Q8_0", refresh=True).path == path
    for name, part in [("owner/split", "is not in the cache"), ("owner/several:Q4_K_M", "none of Q4_K_M")]:
        with pytest.raises(DownloadError, match=f"{part}.*{variable} forbids the network"):
            resolve(name)
    assert hub.requests == []


def test_a_full_disk_is_seen_before_anything_is_fetched(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, len(MODEL) - 1))
    with pytest.raises(CapacityError, match=r"256000 bytes are needed.*255999 are free.*HF_HOME"):
        resolve("owner/several")
    assert hub.seen("/storage/") == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, len(MODEL)))
    resolve("owner/several")


def test_a_disk_that_fills_up(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stage: str, done: int, total: int | None) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CapacityError, match=r"the disk of .* is full"):
        resolve("owner/several", full)
    assert names_in(tmp_path / "hub") == ["models--owner--several/refs/main"]


def test_a_cache_that_can_not_be_written(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "hub").write_bytes(b"a file where the folder should be")
    with pytest.raises(DownloadError, match=r"owner/several can't be stored.*Set HF_HOME"):
        resolve("owner/several")


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a/../../../evil.gguf"])
def test_names_that_lead_out_of_the_cache(hub: HubServer, tmp_path: Path, name: str) -> None:
    hub.repositories["owner/evil"] = Repository({name: MODEL})
    with pytest.raises(CutawayError):
        resolve("owner/evil")
    assert not list(tmp_path.rglob("evil.gguf"))


# -- list and remove


def test_installed_and_removed(hub: HubServer, tmp_path: Path) -> None:
    for name in ("owner/several:Q4_K_M", "owner/several:Q8_0", "owner/split", "owner/shards", "hf:gpt2"):
        resolve(name)
    found = {model.name: model for model in installed()}
    assert sorted(found) == ["gpt2", "owner/several:Q4_K_M", "owner/several:Q8_0", "owner/shards", "owner/split"]
    assert found["owner/split"].bytes == len(MODEL)
    assert all(resolve(name if "/" in name else f"hf:{name}").path == model.path for name, model in found.items())
    plan = plan_removal("owner/several:Q8_0")
    assert (plan.bytes, len(plan.files), plan.shared_with) == (len(OTHER), 1, tmp_path / "hub")
    assert {model.name for model in installed()} == set(found), "a plan changes nothing"
    assert plan.carry_out() == len(OTHER)
    assert "owner/several" in {model.name for model in installed()}
    kept = resolve("owner/several").path
    for name in ("owner/split", "owner/shards", "hf:gpt2"):
        plan_removal(name).carry_out()
    assert [model.name for model in installed()] == ["owner/several"]
    assert kept.read_bytes() == MODEL
    assert plan_removal("owner/several").carry_out() >= len(MODEL)
    assert [name for name in names_in(tmp_path / "hub") if name.startswith("models")] == []
    assert plan_removal("owner/several").files == ()


def test_all_snapshots_of_that_repository_and_no_other(hub: HubServer, tmp_path: Path) -> None:
    resolve("owner/several")
    other = resolve("owner/split").path
    hub.repositories["owner/several"].commit = "f" * 40
    hub.repositories["owner/several"].files["m-Q4_K_M.gguf"] = OTHER
    resolve("owner/several", refresh=True)
    plan = plan_removal("owner/several:Q4_K_M")
    assert (len(plan.files), plan.bytes) == (2, len(MODEL) + len(OTHER))
    assert plan.carry_out() == plan.bytes
    assert other.read_bytes() == PARTS[0]


def test_what_another_process_fetches_is_left_alone(hub: HubServer, tmp_path: Path) -> None:
    import fcntl

    path = resolve("owner/several").path
    lock = tmp_path / "hub" / ".locks" / "models--owner--several" / f"{hashlib.sha256(MODEL).hexdigest()}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="is being fetched by another process"):
            plan_removal("owner/several").carry_out()
    assert path.read_bytes() == MODEL


@pytest.mark.parametrize("name", ["owner", "owner/several:Q6_K", "../hub", "models--owner--several"])
def test_names_that_remove_nothing(hub: HubServer, name: str) -> None:
    path = resolve("owner/several").path
    with pytest.raises(InvalidRequestError):
        plan_removal(name)
    assert path.exists()


def test_a_cache_that_the_client_did_not_make(hub: HubServer, tmp_path: Path) -> None:
    for name in ("models--a--b", "models--x", "models--c--d/refs", "models--c--d/snapshots", "datasets--e--f"):
        (tmp_path / "hub" / name).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "m.gguf").write_bytes(MODEL)
    (tmp_path / "hub" / "models--c--d" / "refs" / "main").write_bytes(b"../../../outside")
    assert installed() == []
    with pytest.raises(ModelFileError, match="left alone"):
        plan_removal("a/b")


# Hostile servers


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("tag", ["../../../../outside", "a/b", "..", "."])
def test_a_tag_that_is_a_path_leads_nowhere(hub: HubServer, tmp_path: Path, tag: str, size: int) -> None:
    """The client stores each file under its tag: such a one would be written, or deleted, outside of the cache."""
    hub.repositories["owner/new"] = Repository({"m.gguf": MODEL[:size]})
    outside = tmp_path / "outside"
    outside.write_bytes(b"somebody's")
    for each in (tag, f'"{tag}"', f'"{outside}"', f'W/"{tag}"'):
        hub.faults.tag = each
        with pytest.raises(DownloadError, match=r"a path"):
            resolve("owner/new")
    assert outside.read_bytes() == b"somebody's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "working"]


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_lies_outside_of_the_cache_is_not_deleted(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Even if the client did follow such a tag."""
    monkeypatch.setattr("cutaway.hub.hub_files._plain_tags", nullcontext)
    hub.repositories["owner/new"] = Repository({"m.gguf": MODEL[:size]})
    outside = tmp_path / "outside"
    outside.write_bytes(b"somebody's")
    hub.faults.tag = f'"{outside}"'
    with pytest.raises(DownloadError, match=r"outside of the cache"):
        resolve("owner/new")
    assert outside.read_bytes() == b"somebody's"
    assert not [*tmp_path.glob("hub/*/snapshots/*/m.gguf")]


@pytest.mark.parametrize(
    "name", ["../../m.gguf", "/tmp/m.gguf", "a//m.gguf", "./m.gguf", "a\nb.gguf", "\x1b[31m.gguf", 5, None]
)
def test_names_of_files_that_are_none_are_left_out(hub: HubServer, name: Any) -> None:
    hub.faults.listing = {"rfilename": name}
    with pytest.raises(ModelFileError, match=r"has no GGUF model.*It has: nothing"):
        resolve("owner/several")


@pytest.mark.parametrize("size", ["big", -5, 1.5, float("nan"), True, [1]])
@pytest.mark.parametrize("name", ["owner/several", "owner/several:none"])
def test_sizes_that_are_none(hub: HubServer, name: str, size: Any) -> None:
    hub.faults.listing = {"size": size}
    with pytest.raises(DownloadError, match="sizes that are none"):
        resolve(name)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "outside", "bytes", "none"])
def test_a_broken_reference_is_no_model(hub: HubServer, tmp_path: Path, kind: str) -> None:
    resolve("owner/several:Q8_0")
    reference = tmp_path / "hub/models--owner--several/refs/main"
    reference.unlink()
    if kind == "fifo":
        os.mkfifo(reference)
    elif kind == "device":
        reference.symlink_to("/dev/zero")
    elif kind == "folder":
        reference.mkdir()
    elif kind != "none":
        reference.write_bytes(b"../../../.." if kind == "outside" else b"\xff" * 100)
    assert installed() == []
    if kind in ("fifo", "device", "bytes"):
        for name in ("owner/several", "owner/several:Q8_0"):
            with pytest.raises(ModelFileError, match="no commit's name"):
                plan_removal(name)


@pytest.mark.parametrize("name", ["owner/several", "owner/several:Q8_0"])
def test_what_a_link_in_the_cache_leads_to_is_not_removed(hub: HubServer, tmp_path: Path, name: str) -> None:
    resolve("owner/several:Q8_0")
    link = next(tmp_path.glob("hub/*/snapshots/*/m-Q8_0.gguf"))
    outside = tmp_path / "outside.gguf"
    outside.write_bytes(b"somebody's")
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(ModelFileError, match="outside of the repository's folder"):
        plan_removal(name).carry_out()
    assert outside.read_bytes() == b"somebody's"


def test_the_endpoint_is_told_where_it_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub_files.ENDPOINT == constants._HF_DEFAULT_ENDPOINT
    for endpoint, told in ((hub_files.ENDPOINT, False), ("http://127.0.0.1:9", True)):
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        message = hub_files._unreachable("owner/repo", OSError("no route"))
        assert ("HF_ENDPOINT is" in message) == told
        assert message.endswith(".")
        assert "  " not in message
        assert ("HF_ENDPOINT is" in hub_files._is_a_hub()) == told
