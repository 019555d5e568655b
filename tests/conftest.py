"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How fast inputs are made says something about the machine's load, nothing about the code.
settings.register_profile("steady", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("steady")

# A shell's background job, and nohup's, has SIGINT ignored, and what it starts inherits that: tests
# of Ctrl-C would wait for nothing. A handler of ours is not inherited, the default is.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the machine's own calibrations and file hashes out of tests, and theirs out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
