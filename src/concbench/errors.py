"""Everything that can go wrong on purpose, and the exit code each ends with.

```
ConcbenchError                     1
├── UsageError                     2   a wrong option, level, file or combination
│   ├── PlanError                  2   file, line, key, what was expected
│   ├── MissingExtra               2   an optional part is not installed
│   ├── OutputUnusable             2   the study folder exists, is foreign or cannot be written
│   ├── StudyUnreadable            2   a folder that is not a study, or a damaged one
│   └── PromptTooLong              2   known to be over the context before anything is sent
├── TargetError                    3   the server is not there or will not serve us
│   ├── Unreachable                3   refused, no route, no such host
│   ├── NotReady                   3   never answered with a token
│   │   └── StartFailed            3   an engine that was started here died, or came too late
│   ├── Refused                    3   401, 403
│   ├── WrongPath                  3   404, or something that is no LLM server
│   ├── WrongModel                 3   the server does not have that model
│   └── PortTaken                  3   another program listens where the engine should
├── NothingMeasured                4   no request succeeded
├── GateFailed                     5   a proven regression
└── Interrupted                  130   SIGINT or SIGTERM
```

A failed *request* is not an exception: it is a row in the round.
"""

from __future__ import annotations

from typing import Literal


class ConcbenchError(Exception):
    """Base of all. `str(error)` is one line that says what is wrong and what to do."""

    exit_code = 1


class UsageError(ConcbenchError):
    """The command line or an input file is wrong."""

    exit_code = 2


class PlanError(UsageError):
    """A plan file is wrong; the message names file, line, key and what was expected."""


class MissingExtra(UsageError):
    """An optional part is needed and not installed."""


class OutputUnusable(UsageError):
    """The study folder exists already, belongs to another study, or cannot be written."""


class StudyUnreadable(UsageError):
    """The folder is not a study, or its record is damaged."""


class PromptTooLong(UsageError):
    """The prompt and the answer together are known to exceed the context."""


class TargetError(ConcbenchError):
    """The server cannot be used."""

    exit_code = 3


class Unreachable(TargetError):
    """No connection could be made."""


class NotReady(TargetError):
    """The server never produced a token, or died while starting."""


class StartFailed(NotReady):
    """An engine that was started here did not come up; the last lines of its log are a note.

    `outcome` is what becomes of a cell that needed it.
    """

    def __init__(self, message: str, outcome: Literal["oom", "crashed"] = "crashed") -> None:
        super().__init__(message)
        self.outcome = outcome


class Refused(TargetError):
    """The server wants a key, or another one."""


class WrongPath(TargetError):
    """The URL leads to nothing, or to something that is no LLM server."""


class WrongModel(TargetError):
    """The server does not serve the model asked for."""


class PortTaken(TargetError):
    """Another program already listens where an engine was to be started."""


class NothingMeasured(ConcbenchError):
    """Every request failed; the study is written all the same."""

    exit_code = 4


class GateFailed(ConcbenchError):
    """A comparison proved a regression beyond the gate."""

    exit_code = 5


class Interrupted(ConcbenchError):
    """SIGINT or SIGTERM arrived; what was measured is on disk and marked."""

    exit_code = 130
