"""The server keeps what its OpenAPI document says, for requests that schemathesis makes of it: no status, content type
or body that isn't documented, no failure, and whatever the schemas forbid is refused.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running, until
from support.long import LONG
from support.patience import SECONDS

# Not "positive_data_acceptance": which fields go together, a schema can't say.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method"
)
RUN = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]

pytestmark = [
    pytest.mark.skipif(not LONG, reason="takes minutes: make schema"),
    pytest.mark.skipif(
        importlib.util.find_spec("schemathesis") is None, reason="no schemathesis; pip install -e '.[schema]' brings it"
    ),
]


@pytest.fixture
def server(smollm2_path: Path) -> Iterator[RunningServer]:
    """Short answers: the context has 96 positions."""
    with LLM(smollm2_path, threads=1, max_model_len=96) as llm, running(llm) as started:
        yield started
        until(lambda: len(started.service.works) == 0, "all have ended")
        assert llm.engine().call(lambda core: len(core.generations())).result(SECONDS) == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_the_document_is_kept(server: RunningServer, tmp_path: Path, seed: int) -> None:
    options = ["--checks", CHECKS, "--max-examples", "15", "--seed", str(seed), "--phases", "coverage,fuzzing"]
    options += ["--request-timeout", str(SECONDS)]  # its own is 10 s, which a busy machine may take
    command = [*RUN, f"{server.url}/openapi.json", *options]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-2000:]
    document = server.get("/openapi.json").json
    assert f"Tested: {sum(len(each) for each in document['paths'].values())}" in result.stdout
    assert server.complete(max_tokens=1).status == 200
