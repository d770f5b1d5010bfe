"""What the system and its control groups leave."""

from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from cutaway.errors import CapacityError
from cutaway.memory.available import available_bytes, available_memory

KB = 1024


def test_the_systems_own_word_is_read_in_bytes() -> None:
    text = "MemTotal:       4096 kB\nMemFree:  1024 kB\nMemAvailable:   2048 kB\n"
    assert available_memory(text) == 2048 * KB
    assert available_memory("MemTotal: 1 kB\n") is None


class Machine:
    """The files of a machine with 8 MB available."""

    def __init__(self, folder: Path, membership: str) -> None:
        self.meminfo, self.membership, self.groups = folder / "meminfo", folder / "membership", folder / "groups"
        self.meminfo.write_text("MemAvailable: 8192 kB\n")
        self.membership.write_text(membership)

    def group(self, path: str, **files: str) -> None:
        """A control group with these files."""
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content + "\n")

    @property
    def available(self) -> int:
        """What is read there."""
        return available_bytes(self.meminfo, self.membership, self.groups)


def test_no_group_limits_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n")
    assert machine.available == 8192 * KB
    machine.group("", memory__max="max", memory__current="5", memory__stat="file 3")
    assert machine.available == 8192 * KB
    machine.membership.unlink()
    assert machine.available == 8192 * KB


def test_the_tightest_group_on_the_way_counts_and_its_page_cache_is_free(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1:cpu:/elsewhere\n0::/outer/inner\n")
    machine.group("outer", memory__max=str(900 * KB), memory__current=str(500 * KB), memory__stat="anon 1\nfile 0")
    machine.group("outer/inner", memory__max="max", memory__current="7", memory__stat="file 0")
    assert machine.available == 400 * KB
    machine.group("outer", memory__stat=f"anon 1\nfile {100 * KB}")
    assert machine.available == 500 * KB
    machine.group("outer", memory__stat=f"anon 1\nfile {100 * KB}\nshmem {30 * KB}\nfile_mapped 5")
    assert machine.available == 470 * KB
    machine.group("outer/inner", memory__max=str(300 * KB), memory__current="0")
    assert machine.available == 300 * KB


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/service\n0::/\n")
    none = str(2**63 - 4096)
    machine.group("memory", memory__limit_in_bytes=none, memory__usage_in_bytes="9", memory__stat="total_cache 0")
    assert machine.available == 8192 * KB
    machine.group(
        "memory/service",
        memory__limit_in_bytes=str(700 * KB),
        memory__usage_in_bytes=str(600 * KB),
        memory__stat=f"cache 1\ntotal_cache {250 * KB}",
    )
    assert machine.available == 350 * KB
    machine.group("memory/service", memory__stat=f"shmem 7\ntotal_cache {250 * KB}\ntotal_shmem {200 * KB}")
    assert machine.available == 150 * KB


@pytest.mark.parametrize(
    ("options", "tokens", "remedy"),
    [
        ({"kv_tokens": 1 << 16}, 1 << 16, "Lower kv_tokens, max_model_len or max_num_seqs, or"),
        ({"memory": "2GiB", "max_num_seqs": 4}, 4 * 8192, "Lower memory, max_model_len or max_num_seqs, or"),
        ({}, 8192, "Lower max_model_len or max_num_seqs, or give kv_tokens or memory, or"),
    ],
)
def test_a_pool_beyond_the_machines_memory_is_refused(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], tokens: int, remedy: str
) -> None:
    """The system would promise it, and kill the process later. The remedy names what was given."""
    monkeypatch.setattr("cutaway.engine.plan.available_bytes", lambda: 200_000_000)
    monkeypatch.setattr("cutaway.engine.plan.resident_bytes", lambda: 300_000_000)  # without other tests
    message = rf"the KV pool of {tokens} tokens .* has 200,000,000 available\. {remedy} "
    with pytest.raises(CapacityError, match=message):
        LLM(smollm2_path, threads=1, **options)
