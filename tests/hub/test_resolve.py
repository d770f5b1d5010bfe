import os
from pathlib import Path

import pytest
from huggingface_hub import constants

from cutaway.errors import CutawayError, DownloadError, InvalidRequestError, ModelFileError
from cutaway.hub import CATALOGUE, HUB_ALIASES, fetched_names, installed, models_dir, plan_removal, resolve
from cutaway.hub.catalogue import find_hub_alias
from cutaway.hub.model_name import parse_hub_name

SMOLLM2 = CATALOGUE["smollm2"]


def put(size: int = SMOLLM2.size) -> Path:
    """A file (of holes, so it takes no space) under the name of the catalogued model."""
    models_dir().mkdir(parents=True, exist_ok=True)
    path = models_dir() / SMOLLM2.file_name
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTAWAY_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-hub"))


def remove(name: str) -> int:
    return plan_removal(name).carry_out()


def test_catalogue_names_files_in_the_cache_alone() -> None:
    for name, entry in CATALOGUE.items():
        assert name == name.lower()
        assert CATALOGUE[entry.alias] is entry
        assert Path(entry.file_name).name == entry.file_name
        assert len(bytes.fromhex(entry.sha256)) == 32


def test_aliases_of_the_hub_are_names_of_repositories() -> None:
    assert not HUB_ALIASES.keys() & CATALOGUE.keys()
    for name, alias in HUB_ALIASES.items():
        assert name == alias.alias == name.lower()
        assert parse_hub_name(name) is None, "no repository could be meant by it"
        parsed = parse_hub_name(alias.hub_name)
        assert parsed is not None
        assert (parsed.repository, parsed.wanted) == (alias.repository, alias.wanted)


def test_catalogued_file_is_found_under_every_alias() -> None:
    path = put()
    for name in ("smollm2", "smollm2-135m-instruct"):
        model = resolve(name)
        assert (model.name, model.path, model.entry) == ("smollm2", path, SMOLLM2)
    (found,) = installed()
    assert (found.name, found.path, found.files, found.bytes) == ("smollm2", path, (path,), SMOLLM2.size)


def test_alias_comes_before_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put()
    monkeypatch.chdir(tmp_path)
    Path("smollm2").write_bytes(b"GGUF")
    assert resolve("smollm2").path == path
    assert resolve("./smollm2").path.read_bytes() == b"GGUF"


@pytest.mark.parametrize("size", [0, SMOLLM2.size - 1, SMOLLM2.size + 1])
def test_wrong_size_says_how_to_mend(size: int) -> None:
    put(size)
    with pytest.raises(ModelFileError, match=rf"{size} bytes.*{SMOLLM2.size}.*cutaway rm smollm2.*cutaway pull"):
        resolve("smollm2")
    assert [model.name for model in installed()] == ["smollm2"]
    assert remove("smollm2") == size
    assert installed() == []


def test_offline_and_missing(cache: Path) -> None:
    with pytest.raises(DownloadError, match=r"CUTAWAY_OFFLINE is set.*(?s:.)*cutaway run path/to/Smol"):
        resolve("smollm2")
    assert not cache.exists()


def test_path_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "no suffix"
    file.write_bytes(b"anything")
    (tmp_path / "link.gguf").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (str(file), "no suffix", "./no suffix", "link.gguf", "~/link.gguf"):
        model = resolve(name)
        assert model.path.samefile(file)
        assert model.entry is None
        assert model.name == name


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    for name in ("model-q4.gguf", "model-q8.gguf", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ModelFileError, match=r"no such file: .*model-q5\.gguf.*has: .*model-q") as caught:
        resolve(str(tmp_path / "model-q5.gguf"))
    assert "notes.txt" not in str(caught.value)
    with pytest.raises(ModelFileError, match=r"has: model-q4\.gguf, model-q8\.gguf\."):
        resolve(str(tmp_path / "zzz"))
    with pytest.raises(ModelFileError, match="no folder"):
        resolve(str(tmp_path / "absent" / "model.gguf"))


@pytest.mark.parametrize(
    "name", ["absent.gguf", "ABSENT.GGUF", "a/b.gguf", "../../x", "./a", "a/b/c", "/", "/a/b", "~/b", "a/b:c:d"]
)
def test_paths_that_lead_nowhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError):
        resolve(name)


@pytest.mark.parametrize("name", ["a/b", "HuggingFaceTB/SmolLM2", "a/b:Q4_0"])
def test_what_is_not_here_could_be_on_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DownloadError, match=r"There is no file or folder .*, and on the hub: .*CUTAWAY_OFFLINE forbids"
    ):
        resolve(name)


def test_a_folder_is_the_model_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "owner" / "repo"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match=r"the folder owner/repo has no GGUF model.*It has: nothing"):
        resolve("owner/repo")
    (folder / "config.json").touch()
    assert resolve("owner/repo").path == Path("owner/repo"), "the reader of folders says that the weights are missing"
    (folder / "config.json").unlink()
    (folder / "notes.txt").touch()
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelFileError, match=r"pickle files .*never opened\. It has: notes\.txt, pytorch_model\.bin"):
        resolve("owner/repo")
    (folder / "big-00001-of-00002.gguf").touch()
    with pytest.raises(ModelFileError, match="of a split model all parts are needed"):
        resolve("owner/repo")
    (folder / "big-00002-of-00002.gguf").touch()
    assert resolve("owner/repo").path == Path("owner/repo/big-00001-of-00002.gguf")
    (folder / "small.gguf").touch()
    with pytest.raises(InvalidRequestError, match="has 2 GGUF models: ") as caught:
        resolve("owner/repo")
    assert str(caught.value) == (
        "the folder owner/repo has 2 GGUF models: big.gguf (0.00 GB, 2 parts), small.gguf (0.00 GB); name one, as in "
        "owner/repo/big-00001-of-00002.gguf"
    )
    (folder / "config.json").touch()
    (folder / "model.safetensors").touch()
    assert resolve("owner/repo/").path == folder.relative_to(tmp_path)
    assert resolve("owner/repo/small.gguf").path == Path("owner/repo/small.gguf")


def test_pipe_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="pipe"):
        resolve(str(tmp_path / "pipe.gguf"))


@pytest.mark.parametrize("name", ["smolm2", "SmolLM2", "smollm2-135m"])
def test_misspelt_alias(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"Did you mean smollm2.*\? Known names: smollm2, ") as caught:
        resolve(name)
    assert caught.value.field == "model"


@pytest.mark.parametrize("name", ["", "  ", "\n", "gpt-17", "a\0b", "\ud800", "~nobody-of-this-name", "é" * 3000])
def test_what_is_no_name_is_one_clear_error(name: str) -> None:
    with pytest.raises(CutawayError):
        resolve(name)
    with pytest.raises(InvalidRequestError):
        remove(name)


def test_remove_takes_no_path(cache: Path, tmp_path: Path) -> None:
    put()
    victim = tmp_path / "x"
    victim.touch()
    for name in ("../../x", str(victim), SMOLLM2.file_name, "."):
        with pytest.raises(InvalidRequestError):
            remove(name)
    assert victim.exists()
    assert resolve("smollm2").path.exists()


def test_remove_frees_the_file_and_what_an_interrupted_fetch_left() -> None:
    assert remove("smollm2") == 0
    path = put()
    partial = path.with_name(path.name + ".partial") / "pip-temporary"
    partial.mkdir(parents=True)
    (partial / "half").write_bytes(bytes(1000))
    assert remove("smollm2-135m-instruct") == SMOLLM2.size + 1000
    assert not path.exists()
    assert not partial.parent.exists()
    assert remove("smollm2") == 0


def test_remove_cuts_links_and_follows_none(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"keep me")
    models_dir().mkdir(parents=True)
    (models_dir() / SMOLLM2.file_name).symlink_to(outside / "precious")
    partial = models_dir() / f"{SMOLLM2.file_name}.partial"
    partial.symlink_to(outside)
    remove("smollm2")
    partial.mkdir()
    (partial / "inner").symlink_to(outside)
    remove("smollm2")
    assert (outside / "precious").read_bytes() == b"keep me"
    assert [path.name for path in models_dir().iterdir()] == [f"{SMOLLM2.file_name}.lock"]


def test_folder_under_the_name_of_the_file() -> None:
    (models_dir() / SMOLLM2.file_name).mkdir(parents=True)
    with pytest.raises(ModelFileError, match="is not a file"):
        resolve("smollm2")
    with pytest.raises(ModelFileError, match="cannot be removed"):
        remove("smollm2")


def test_rm_of_what_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.gguf").touch()
    for name in ("x.gguf", str(tmp_path / "x.gguf"), "~/x.gguf", "."):
        with pytest.raises(InvalidRequestError, match=r"rm removes fetched models only; delete it yourself\.$"):
            remove(name)
    assert (tmp_path / "x.gguf").exists()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("https://huggingface.co/Qwen/X", "write Qwen/X"),
        ("http://www.hf.co/Qwen/X/tree/main", "write Qwen/X"),
        ("https://huggingface.co/Qwen/X-GGUF/blob/main/x-q8_0.gguf", "write Qwen/X-GGUF:x-q8_0.gguf"),
        ("https://huggingface.co/Qwen/X-GGUF/resolve/main/a/x.gguf?download=true", "write Qwen/X-GGUF:a/x.gguf"),
        ("https://huggingface.co/Qwen", "write owner/repo; download any other file yourself, and name its path."),
        ("https://example.org/x.gguf", "write owner/repo; download any other file yourself, and name its path."),
    ],
)
def test_addresses_are_told_as_names(name: str, advice: str) -> None:
    for use in (resolve, remove):
        with pytest.raises(InvalidRequestError, match="is an address") as caught:
            use(name)
        assert str(caught.value).endswith(advice)


def test_a_name_without_an_owner() -> None:
    with pytest.raises(InvalidRequestError, match=r"'gpt-17'\. Names on the .* hub .*owner/gpt-17\. Known"):
        resolve("gpt-17")


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "qwen2.5-0.5b:Q8_0"])
def test_an_alias_is_repeated_where_its_repository_fails(name: str) -> None:
    with pytest.raises(DownloadError, match=rf"^{name}: Qwen/Qwen2\.5-0\.5B-Instruct-GGUF is not in the cache"):
        resolve(name)


def test_a_suffix_of_an_alias() -> None:
    alias = HUB_ALIASES["qwen2.5-0.5b"]
    assert find_hub_alias("qwen2.5-0.5b") == (alias, "Q4_K_M")
    assert find_hub_alias("qwen2.5-0.5b:Q8_0") == (alias, "Q8_0")
    for name in ("qwen2.5-0.5b:", "qwen", "smollm2", "smollm2:Q8_0", ":Q8_0", ""):
        assert find_hub_alias(name) is None


def test_which_names_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetched_names() == set()
    put(SMOLLM2.size - 1)
    assert fetched_names() == set(), "a part is no model"
    put()
    assert fetched_names() == {"smollm2", "smollm2-135m-instruct"}
    folder = tmp_path / "no-hub" / "models--Qwen--Qwen2.5-0.5B-Instruct-GGUF"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "x-q8_0.gguf").touch()
    assert "qwen2.5-0.5b" not in fetched_names(), "another model of the repository"
    (folder / "snapshots" / "abc" / "x-q4_k_m.gguf").touch()
    assert "qwen2.5-0.5b" in fetched_names()
