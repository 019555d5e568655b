"""A container runtime in a few lines: what `docker` says and does, with a folder for its state.

An image is a name in `images` of that folder; its engine is `fake_engine.py`, which gets the
published port and the container's arguments (REQUESTS MODE). A container belongs to a process of
its own, as to a daemon: it outlives the client that started it, and carries nothing of the client's
environment but what `--env` names.
"""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys

STATE = pathlib.Path(os.environ["FAKE_RUNTIME_STATE"])
ENGINE = pathlib.Path(__file__).with_name("fake_engine.py")
VALUED = ("--name", "--label", "--publish", "--env", "--gpus", "--network")


def fail(text, code=1):
    sys.stderr.write(text + "\n")
    sys.exit(code)


def say(text):
    sys.stdout.write(text + "\n")


def pause(seconds):
    select.select([], [], [], seconds)


def path(name):
    return STATE / f"{name}.json"


def load(name):
    try:
        box = json.loads(path(name).read_text())
    except OSError:
        return None
    code = STATE / f"{name}.exit"
    if code.exists():
        box["State"] |= {"Running": False, "Pid": 0, "ExitCode": int(code.read_text())}
        box["State"]["OOMKilled"] = (STATE / f"{name}.oom").exists()
    return box


def images():
    known = STATE / "images"
    return known.read_text().split() if known.exists() else []


def run(words):
    options, index = [], 0
    while words[index].startswith("-"):
        size = 2 if words[index] in VALUED else 1
        options.append(words[index : index + size])
        index += size
    image, args = words[index], words[index + 1 :]
    given = {pair[0]: pair[1] for pair in options if len(pair) == 2}
    name = given["--name"]
    if image not in images():
        fail(f"Unable to find image '{image}' locally", 125)
    if (STATE / "refuse").exists():
        fail((STATE / "refuse").read_text(), 125)
    if path(name).exists():
        fail(f'Conflict. The container name "/{name}" is already in use by container "x".', 125)
    labels = dict(pair[1].split("=", 1) for pair in options if pair[0] == "--label")
    env = {pair[1]: os.environ.get(pair[1], "") for pair in options if pair[0] == "--env"}
    port = given["--publish"].split(":")[1]
    if os.fork() == 0:
        supervise(name, [sys.executable, "-I", "-S", str(ENGINE), port, *args], env)
    wait_for(STATE / f"{name}.pid")
    pid = int((STATE / f"{name}.pid").read_text())
    box = {
        "Id": f"id-{name}",
        "Name": f"/{name}",
        "Image": "sha256:" + "0" * 64,
        "Config": {"Labels": labels, "Env": env, "Image": image},
        "State": {"Running": True, "Pid": pid, "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z"},
    }
    path(name).write_text(json.dumps(box))
    say(box["Id"])


def supervise(name, argv, env):
    """Run the engine as a daemon's child would run, and keep its exit code."""
    os.setsid()
    log = os.open(STATE / f"{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    # Not even the supervisor may be found by the mark of the tool that called the client.
    if os.environ.get("CONCBENCH_LANE_MARK"):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import fake_runtime as r; import json\n"
        )
        code += "r.supervise(sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))"
        clean = {"FAKE_RUNTIME_STATE": str(STATE)}
        words = [str(ENGINE.parent), name, json.dumps(argv), json.dumps(env)]
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", code, *words], clean)
        os._exit(0)
    engine = subprocess.Popen(argv, env=env, start_new_session=True)
    staged = STATE / f"{name}.pid.part"
    staged.write_text(str(engine.pid))
    staged.rename(STATE / f"{name}.pid")
    code = engine.wait()
    if (STATE / "oom").exists():
        (STATE / f"{name}.oom").touch()
    staged = STATE / f"{name}.exit.part"
    staged.write_text(str(128 - code if code < 0 else code))
    staged.rename(STATE / f"{name}.exit")
    os._exit(0)


def wait_for(file):
    for _ in range(1000):
        if file.exists():
            return
        pause(0.01)
    fail(f"{file} never came")


def logs(words):
    name = words[-1]
    box = load(name)
    if box is None:
        fail(f"Error response from daemon: No such container: {name}")
    source = STATE / f"{name}.log"
    with source.open("rb") as file:
        if "--since" in words:
            file.seek(0, os.SEEK_END)
        while True:
            part = file.read()
            if part:
                os.write(1, part)
                continue
            box = load(name)
            if "--follow" not in words or box is None or not box["State"]["Running"]:
                os.write(1, file.read())
                return
            pause(0.02)


def end(name, number, grace_s):
    box = load(name)
    if box is None:
        fail(f"Error response from daemon: No such container: {name}")
    left_s = grace_s
    while box and box["State"]["Running"]:
        with contextlib.suppress(OSError):
            os.kill(box["State"]["Pid"], number)
        left_s -= 0.02
        if left_s <= 0:
            number = signal.SIGKILL
        pause(0.02)
        box = load(name)


def remove(words):
    name = words[-1]
    if load(name) is None:
        fail(f"Error response from daemon: No such container: {name}")
    end(name, signal.SIGKILL, 0)
    for file in STATE.glob(f"{name}.*"):
        if file.suffix != ".log":
            file.unlink()


def ps(words):
    label = next(word for word in words if word.startswith("label=")).removeprefix("label=")
    for file in sorted(STATE.glob("*.json")):
        box = json.loads(file.read_text())
        if label in box["Config"]["Labels"]:
            say(file.stem)


def main(words):
    if (STATE / "down").exists():
        fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    command, rest = words[0], words[1:]
    if command == "container":
        found = load(rest[1])
        if found is None:
            fail(f"Error: No such container: {rest[1]}")
        say(json.dumps([found]))
    elif command == "image":
        if rest[1] not in images():
            fail(f"Error: No such image: {rest[1]}")
        digest = f"{rest[1].partition(':')[0]}@sha256:{'1' * 64}"
        say(json.dumps([{"Id": "sha256:" + "0" * 64, "RepoDigests": [digest]}]))
    elif command == "pull":
        if (STATE / "registry").exists():
            (STATE / "images").write_text(" ".join([*images(), rest[-1]]))
        else:
            fail(f"Error response from daemon: pull access denied for {rest[-1]}")
    elif command == "stop":
        end(rest[-1], signal.SIGTERM, float(rest[1]))
    elif command == "kill":
        end(rest[-1], signal.SIGKILL, 0)
    else:
        {"run": run, "logs": logs, "rm": remove, "ps": ps}[command](rest)


if __name__ == "__main__":
    if "--detach" in sys.argv:
        sys.argv.remove("--detach")
    main(sys.argv[1:])
