"""Modules of tests that compute in a new process, so that they may fork and kill."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

LOCAL = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "CUDA_VISIBLE_DEVICES": "",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Variables of processes that compute on one thread and listen on the loopback interface."""


def output_of(*words, timeout):
    """Return what ``python WORDS`` prints, and fail with its errors."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=ROOT,
        env=os.environ | LOCAL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def results_of(module, *words, timeout):
    """Return the JSON that a module with arguments prints."""
    return json.loads(output_of("-m", module, *words, timeout=timeout))


_FORKS = """
import json, os, sys
{imports}
answers = os.fdopen(int(sys.argv[1]), "w")
for line in sys.stdin:
    child = os.fork()
    if not child:
        names = {{"__name__": "__main__"}}
        exec(json.loads(line), names)
        answers.write(json.dumps([names.get("result"), list(sys.modules)]) + "\\n")
        answers.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        answers.write("null\\n")
        answers.flush()
"""


@contextmanager
def forks(imports: str = "") -> Iterator[Callable[[str], tuple[Any, set[str]]]]:
    """Yield a function that runs code in a fork of one new process, which has done the imports.

    It returns what the code binds to `result`, and the names of the modules that are loaded then.
    """
    ours, theirs = os.pipe()
    words = [sys.executable, "-c", _FORKS.format(imports=imports), str(theirs)]
    process = subprocess.Popen(
        words, pass_fds=[theirs], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    os.close(theirs)
    with process, open(ours) as answers:

        def run(code: str) -> tuple[Any, set[str]]:
            process.stdin.write(json.dumps(code) + "\n")
            process.stdin.flush()
            answer = json.loads(answers.readline())
            assert answer is not None, f"the traceback is above, of:\n{code}"
            return answer[0], set(answer[1])

        yield run
        process.stdin.close()
