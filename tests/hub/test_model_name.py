import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.hub.model_name import HubName, parse_hub_name


@pytest.mark.parametrize(
    ("name", "repository", "wanted"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", None),
        ("owner/repo:Q4_K_M", "owner/repo", "Q4_K_M"),
        ("owner/repo:a b".replace(" ", "-"), "owner/repo", "a-b"),
        ("owner/repo:folder/model-00001-of-00002.gguf", "owner/repo", "folder/model-00001-of-00002.gguf"),
        ("hf:owner/repo", "owner/repo", None),
        ("hf://owner/repo:Q8_0", "owner/repo", "Q8_0"),
        ("hf:gpt2", "gpt2", None),
    ],
)
def test_names(name: str, repository: str, wanted: str | None) -> None:
    assert parse_hub_name(name) == HubName(repository, wanted)


@pytest.mark.parametrize(
    "name",
    [
        *("", "gpt2", "hf:", "hf:/", "hf:a/b/c", "a/b/c", "/a/b", "./a/b", "../b", "~/b", "a//b", "a/", "/b", "a/b:"),
        *("a/b:c:d", "a/b:c d", "a b/c", "a/b\n", "a/é", ".a/b", "a/..", "hf:..", "a/b@main", "https://hub/a/b"),
    ],
)
def test_what_is_none(name: str) -> None:
    assert parse_hub_name(name) is None


@given(st.text(max_size=40))
def test_no_name_leaves_the_cache(text: str) -> None:
    """Whatever is typed: a repository has at most one slash and no part that means another folder."""
    parsed = parse_hub_name("hf:" + text)
    if parsed is not None:
        parts = parsed.repository.split("/")
        assert len(parts) <= 2
        assert all(part and part[0].isalnum() for part in parts)


def test_written_back() -> None:
    assert str(HubName("a/b")) == "a/b"
    assert str(HubName("a/b", "Q4_0")) == "a/b:Q4_0"
