"""Names of parts: taken apart and made, and other names left alone."""

import pytest

from cutaway.hub.split_name import split_name


@pytest.mark.parametrize(
    "name",
    ["m-Q8_0-00002-of-00003.gguf", "q/8/m-00002-of-00003.gguf", "M-00002-OF-00003.GGUF", "a\nb-00002-of-00003.gguf"],
)
def test_a_part_names_the_others(name: str) -> None:
    found = split_name(name)
    assert found is not None
    assert (found.number, found.count) == (2, 3)
    assert [found.part(number) for number in (1, 2, 3)] == [name.replace("00002", f"0000{n}") for n in (1, 2, 3)]
    assert found.whole.lower() == name.lower().replace("-00002-of-00003", "")


@pytest.mark.parametrize(
    "name",
    ["m.gguf", "m-2-of-3.gguf", "m-00002-of-00003.safetensors", "m-00002-of-00003.gguf.part", "m00002-of-00003.gguf"],
)
def test_other_names_are_none(name: str) -> None:
    assert split_name(name) is None
