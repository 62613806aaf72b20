"""The launcher that ends the service at a named step. The steps themselves: `tests/storms`."""

import os
import signal
import subprocess
import sys

from kaos_dev.crash_points import AT, CRASHED


def test_a_crash_point_kills_its_process_at_the_passage_that_it_waits_for():
    script = (
        "import asyncio\n"
        "from kaos_dev.crash_points import CrashPoint\n"
        "point = CrashPoint('write.begun', 2)\n"
        "for step in ('write.begun', 'claim.begun', 'write.begun'):\n"
        "    asyncio.run(point.reached(step))\n"
        "    print('passed', step, flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.decode().splitlines() == ["passed write.begun", "passed claim.begun"]
    assert ended.stderr.decode().splitlines() == [f"{CRASHED}write.begun"]


def test_a_step_that_does_not_exist_is_refused_before_anything_starts():
    command = [sys.executable, "-m", "kaos_dev.crash_points"]
    environment = {**os.environ, AT: "write.half_done"}
    ended = subprocess.run(command, check=False, capture_output=True, env=environment)
    assert ended.returncode == 1
    assert b"CRASH_AT names no step: 'write.half_done'; there are write.begun," in ended.stderr
