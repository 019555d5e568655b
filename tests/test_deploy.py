"""The deployment examples are well-formed and say what they must."""

from __future__ import annotations

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

KUBERAY = Path(__file__).parent.parent / "deploy" / "kuberay.yaml"


def test_the_ray_job_has_what_kuberay_needs() -> None:
    job = yaml.safe_load(KUBERAY.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["metadata"]["name"]
    spec = job["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["backoffLimit"] == 0
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        containers = group["template"]["spec"]["containers"]
        assert containers
        for container in containers:
            assert container["image"]
            # A generator that may be throttled measures its own throttling.
            assert container["resources"]["requests"] == container["resources"]["limits"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_its_command_is_one_that_the_tool_takes() -> None:
    from concbench.cli.main import command_parser

    words = yaml.safe_load(KUBERAY.read_text())["spec"]["entrypoint"].split()
    assert words[:2] == ["concbench", "burst"]
    parsed = command_parser("burst").parse_args(words[2:])
    assert parsed.workers == "ray"
