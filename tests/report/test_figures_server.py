"""The figure of KV cache and queue in words."""

import pytest

from concbench.report.build import build_view
from concbench.report.figures import figures_of
from tests.report.conftest import burst


@pytest.mark.parametrize(("waiting", "said"), [(6.0, "6 requests waited"), (1, "1 request waited")])
def test_requests_are_counted_whole(waiting, said):
    result = burst()
    result.cells[-1].server.waiting_max = waiting
    figures = {one.key: one for one in figures_of(build_view(result).series, result)}
    assert f"at most {said}" in figures["kv-queue"].first.alternative
