"""``cutaway plan``: what it says, and that it is right."""

import json
from typing import Any

import pytest
from command import cutaway, cutaway_here


def test_as_json() -> None:
    result = cutaway("plan", "smollm2", "--context", "100", "--requests", "3", "--memory", "1GiB", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["position"] == 2 * 30 * 3 * 64 * 2
    assert report["pages"] == 3 * 7  # 7 pages of 16 hold 100 positions
    assert report["kv"] == report["pages"] * 16 * report["position"]
    assert report["total"] == sum(report[part] for part in ("runtime", "weights", "kv", "workspace"))
    assert (report["limit"], report["fits"]) == (1 << 30, True)


@pytest.mark.parametrize(
    ("context", "requests", "options"),
    [
        (32, 1, ()),
        (128, 1, ()),
        (512, 3, ()),
        (2048, 2, ("--kv-dtype", "f32")),
        (8192, 30, ("--step", "64")),
    ],
)
def test_what_fits_is_the_most_that_fits(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    context: int,
    requests: int,
    options: tuple[str, ...],
) -> None:
    """Planning again with each answer says that it fits, and with one more that it doesn't."""
    monkeypatch.setattr("cutaway.engine.plan.measure_runtime", lambda *_: 60_000_000)  # the same each time

    def plan(context: int, requests: int) -> dict[str, Any]:
        values = ("--context", f"{context}", "--requests", f"{requests}", "--memory", "2GiB", "--json")
        result = cutaway_here(monkeypatch, capsys, "plan", "smollm2", *values, *options)
        assert result.returncode in (0, 5), result.stderr
        report: dict[str, Any] = json.loads(result.stdout)
        assert report["fits"] == (report["total"] <= 2 << 30) == (result.returncode == 0)
        return report

    report = plan(context, requests)
    fewer, shorter = report["requests_that_fit"], report["context_that_fits"]
    assert plan(context, fewer)["fits"]
    if (most := 64 if "--step" in options else 4096) != fewer:
        assert fewer < most
        assert not plan(context, fewer + 1)["fits"]
    assert plan(shorter, requests)["fits"]
    if shorter != 8192:
        assert shorter < 8192  # the model's own
        assert not plan(shorter + 1, requests)["fits"]


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("cutaway.engine.plan.measure_runtime", lambda *_: 60_000_000)
    result = cutaway_here(monkeypatch, capsys, "plan", "smollm2", "--memory", "50MB", "--json")
    report = json.loads(result.stdout)
    assert (report["requests_that_fit"], report["context_that_fits"], report["fits"]) == (0, 0, False)
    result = cutaway_here(monkeypatch, capsys, "plan", "smollm2", "--memory", "50MB")
    assert "--requests" not in result.stdout
    assert "--context" not in result.stdout


def test_what_fits() -> None:
    result = cutaway("plan", "smollm2", "--context", "512", "--requests", "2", "--memory", "1GiB")
    assert result.returncode == 0, result.stderr
    assert "2 × 30 layers × 3 KV heads × 64 × 2 bytes (f16) = 23,040 bytes." in result.stdout
    assert 'It fits. LLM("smollm2", max_model_len=512, max_num_seqs=2, kv_tokens=1024)' in result.stdout


def test_what_fits_is_said_with_all_that_was_given() -> None:
    options = ("--step", "64", "--threads", "1", "--kv-dtype", "f32", "--context", "512", "--requests", "2")
    result = cutaway("plan", "smollm2", *options, "--memory", "1GiB")
    assert result.returncode == 0, result.stderr
    assert 'kv_tokens=1024, max_num_batched_tokens=64, threads=1, kv_dtype="f32") takes this' in result.stdout


def test_an_int8_cache_is_planned_with_its_scales() -> None:
    result = cutaway("plan", "smollm2", "--kv-dtype", "int8", "--context", "512", "--memory", "1GiB")
    assert result.returncode == 0, result.stderr
    assert "3 KV heads × (64 × 1 + 4 of a scale) bytes (int8) = 12,240 bytes." in result.stdout
    assert 'kv_dtype="int8") takes this' in result.stdout


def test_a_smaller_step_is_advised_where_it_is_enough() -> None:
    def plan(*options: str) -> str:
        return cutaway("plan", "smollm2", "--context", "256", "--step", "4096", *options).stdout

    whole, small = (json.loads(plan("--json", *step)) for step in ((), ("--step", "64")))
    gap = whole["total"] - small["total"]
    assert gap > 32 << 20
    # Measured runtimes differ by a little from one process to the next.
    assert "--step 64" in plan("--memory", str(small["total"] + gap // 2))
    assert "--step 64" not in plan("--memory", str(small["total"] - small["workspace"] // 2))


def test_what_does_not_fit_tells_what_to_change() -> None:
    result = cutaway("plan", "smollm2", "--requests", "100", "--memory", "900MB", "--kv-dtype", "f32")
    assert result.returncode == 5
    assert "It does not fit: " in result.stdout
    assert "--requests " in result.stdout
    assert "--context " in result.stdout
    assert "--memory " in result.stdout
    assert "--kv-dtype " not in result.stdout  # 100 contexts fit with none
    knobs = [line.split() for line in result.stdout.splitlines() if line.startswith("  --context")]
    again = cutaway(
        "plan", "smollm2", "--requests", "100", "--memory", "900MB", "--kv-dtype", "f32", "--context", knobs[0][1]
    )
    assert again.returncode == 0, again.stdout


def test_wrong_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (("--requests", "0"), "--requests is 0; it must be from 1 to 4096."),
        (("--step", "0"), "--step is 0; it must be from 1 to 65536."),
        (("--requests", "300", "--step", "100"), "--requests is 300 and --step 100; each request that runs needs a"),
        (("--memory", "lots"), "memory is 'lots'"),
        (("--kv-dtype", "f8"), "kv_dtype is 'f8'"),
        (("--context", "1"), "is 1;"),
        (("--threads", "0"), "threads is 0"),
    ):
        result = cutaway_here(monkeypatch, capsys, "plan", "smollm2", *options)
        assert result.returncode == 2, options
        assert message in result.stderr
        assert "max_num" not in result.stderr
