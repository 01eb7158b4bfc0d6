#!/usr/bin/env python3
"""Runs muster side by side with its bounds and its peers, and prints one table.

A bound is the barest program that does the same; its ratio to muster is what counts, since times
change from machine to machine. All contenders of a row take turns in one run: muster, bound, peers,
muster, ... Peers that are not installed are named as such.
"""

import argparse
import ctypes
import json
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DEADLINE = 120  # seconds, for every single run

# --- processes ------------------------------------------------------------------------------------


def adopt_orphans():
    """What contenders leave behind becomes our child, so that clean_up() finds it."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def watch_closely():
    """What we see is timed when it happens, also on a busy machine. Contenders do not inherit this."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        print("not root: rows P6 and P7 are right only on an idle machine", file=sys.stderr)


def parents():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    found[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    return found


def clean_up(keep=()):
    """Kills and reaps all our descendants but the processes in `keep` and theirs."""
    while True:
        tree = parents()

        def is_ours(pid):
            while pid in tree and pid not in keep:
                pid = tree[pid]
                if pid == os.getpid():
                    return True
            return False

        ours = [pid for pid in tree if is_ours(pid)]
        if not ours:
            return
        for pid in ours:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in ours:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


class Failed(Exception):
    pass


class Process:
    """A contender's program; its standard error is shown only if it fails."""

    def __init__(self, argv, **more):
        self.said = tempfile.TemporaryFile()
        self.popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said,
            start_new_session=True, **more)
        self.pid = self.popen.pid
        self.rest = b""

    def write(self, text):
        try:
            self.popen.stdin.write(text.encode())
            self.popen.stdin.flush()
        except BrokenPipeError:
            self.fail("ended early")

    def line(self, deadline=DEADLINE):
        limit = time.monotonic() + deadline
        while b"\n" not in self.rest:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self.popen.stdout], [], [], left)[0]:
                self.fail(f"did not answer within {deadline} s")
            part = os.read(self.popen.stdout.fileno(), 65536)
            if not part:
                self.fail("ended early")
            self.rest += part
        text, self.rest = self.rest.split(b"\n", 1)
        return text.decode()

    def wait(self, deadline=DEADLINE):
        """Sees the end at once: Popen.wait with a deadline looks only every 50 ms."""
        pidfd = os.pidfd_open(self.pid)
        try:
            if not select.select([pidfd], [], [], deadline)[0]:
                self.fail(f"did not end within {deadline} s")
        finally:
            os.close(pidfd)
        return self.popen.wait()

    def fail(self, what):
        self.popen.kill()
        self.said.seek(0)
        last = self.said.read().decode(errors="replace").strip().splitlines()[-1:]
        raise Failed(what + "".join(f": {text}" for text in last))

    def close(self):
        for pipe in (self.popen.stdin, self.popen.stdout, self.said):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


# --- contenders: measure() returns a number, or one for each of the row's figures -----------------


class Warm:
    """A program that stays, and measures once for each line that it is sent."""

    def __init__(self, argv):
        self.argv = argv
        self.process = None

    def measure(self):
        if not self.process:
            self.process = Process(self.argv)
            self.ask()  # the first one is not counted
        return self.ask()

    def ask(self):
        self.process.write("go\n")
        return float(self.process.line())

    def pids(self):
        return [self.process.pid] if self.process else []

    def close(self):
        if self.process:
            self.process.close()


class Cold:
    """Milliseconds of a program from its start to its end."""

    def __init__(self, argv):
        self.argv = argv

    def measure(self):
        start = time.monotonic()
        process = Process(self.argv)
        try:
            process.popen.stdin.close()
            status = process.wait()
            took = time.monotonic() - start
            if status != 0:
                process.fail(f"ended with {status}")
            return took * 1e3
        finally:
            process.close()

    def pids(self):
        return []

    def close(self):
        pass


class Lines(Cold):
    """Ranks that print: milliseconds until the program has ended, and lines that are not whole."""

    def __init__(self, argv, count):
        super().__init__(argv)
        self.count = count

    def measure(self):
        start = time.monotonic()
        process = Process(self.argv)
        try:
            process.popen.stdin.close()
            parts = []
            while part := os.read(process.popen.stdout.fileno(), 1 << 20):
                parts.append(part)
            if process.wait() != 0:
                process.fail("failed")
            took = time.monotonic() - start
            lines = b"".join(parts).split(b"\n")
            whole = re.compile(rb"(\[[^]]*\]:? ?)?line \d+ of rank \d+ x+").fullmatch
            good = {line[line.index(b"line"):] for line in lines if whole(line) and len(line) >= 99}
            return (took * 1e3, self.count - len(good))
        finally:
            process.close()


class Idle(Cold):
    """A launcher whose ranks sleep: CPU seconds in 10 s of that, and its own memory in MiB."""

    def measure(self):
        process = Process(self.argv)
        try:
            time.sleep(8 if "python" in self.argv[0] else 1)  # it is up by then
            before = self.cpu_seconds(process.pid)
            time.sleep(10)
            used = self.cpu_seconds(process.pid) - before
            with open(f"/proc/{process.pid}/status") as file:
                kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            return (used, kib / 1024)
        finally:
            process.popen.terminate()
            process.close()

    @staticmethod
    def cpu_seconds(pid):
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total / 1e9


class Restarted(Cold):
    """Milliseconds from a rank's failure to the last rank of the next attempt."""

    def measure(self):
        with tempfile.TemporaryDirectory() as folder:
            process = Process([word.replace("FOLDER", folder) for word in self.argv])
            try:
                process.popen.stdin.close()
                times = {"failed": [], "runs": []}
                while part := process.popen.stdout.readline():
                    what, when = part.decode().split()[-2:]
                    times[what].append(int(when))
                if process.wait() != 0 or not times["runs"]:
                    process.fail("failed")
                return (max(times["runs"]) - times["failed"][0]) / 1e6
            finally:
                process.close()


class Killed(Cold):
    """Kills a rank or the launcher of a program whose ranks print their pids and sleep. Milliseconds
    from the end of the killed process (for the launcher: from the kill) to those of `figures`."""

    def __init__(self, argv, ranks, launcher_dies):
        super().__init__(argv)
        self.ranks = ranks
        self.launcher_dies = launcher_dies

    def measure(self):
        process = Process(self.argv)
        try:
            pids = [int(process.line()) for _ in range(self.ranks)]
            time.sleep(0.2)  # the ranks are asleep by then
            watched = {os.pidfd_open(pid): pid for pid in pids}
            try:
                if self.launcher_dies:
                    return self.kill_launcher(process, watched)
                return self.kill_rank(process, watched, pids[1])
            finally:
                for fd in watched:
                    os.close(fd)
        finally:
            process.popen.kill()
            process.close()

    def ends(self, watched, seconds):
        """Times at which processes end, by pid."""
        poll = select.poll()
        for fd in watched:
            poll.register(fd, select.POLLIN)
        ended = {}
        limit = time.monotonic() + seconds
        while len(ended) < len(watched) and time.monotonic() < limit:
            for fd, _ in poll.poll(max(0, limit - time.monotonic()) * 1e3):
                ended[watched[fd]] = time.monotonic()
                poll.unregister(fd)
        return ended

    def kill_rank(self, process, watched, victim):
        """Others dead, launch() back."""
        os.kill(victim, signal.SIGABRT)
        ended = self.ends(watched, 20)
        if len(ended) < len(watched):
            raise Failed("ranks are left")
        start = ended.pop(victim)
        back = int(process.line(20)) / 1e9
        return ((max(ended.values()) - start) * 1e3, (back - start) * 1e3)

    def kill_launcher(self, process, watched):
        """Ranks alive after 100 ms, after 1 s, and milliseconds until none is (3 s: some were left)."""
        start = time.monotonic()
        process.popen.kill()
        ends = [time - start for time in self.ends(watched, 3).values()]
        ends += [3.0] * (len(watched) - len(ends))
        return (sum(end > 0.1 for end in ends), sum(end > 1 for end in ends), max(ends) * 1e3)


class NotInstalled:
    """A peer that is not there."""


# --- the table ------------------------------------------------------------------------------------


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.{1 if value >= 20 else 2}f}"


def summary(values, best):
    return f"{number(best(values))} / {number(statistics.median(values))}"


class Table:
    HEAD = ("row", "what", "muster", "bound", "ratio", "target", "met", "peers")

    def __init__(self, runs):
        self.runs = runs
        self.rows = []

    def compare(self, row, figures, contenders):
        """Measures contenders {"muster": ..., "bound": ..., peer: ...} in turn. `figures` are
        (what, best, target): best is min or max, target (text, test of the ratio and of muster's
        best value)."""
        samples = {name: [] for name in contenders}
        notes = {name: "not installed" for name, each in contenders.items() if each is NotInstalled}
        active = {name: each for name, each in contenders.items() if each is not NotInstalled}
        try:
            for _ in range(self.runs):
                for name, each in list(active.items()):
                    try:
                        value = each.measure()
                        samples[name].append(value if isinstance(value, tuple) else (value,))
                    except (Failed, ValueError) as error:
                        notes[name] = f"FAILED ({error})"
                        active.pop(name).close()
                    clean_up([pid for other in active.values() for pid in other.pids()])
        finally:
            for each in active.values():
                each.close()
            clean_up()
        for i, (what, best, target) in enumerate(figures):
            self.add(row, what, best, target, notes,
                     {name: [sample[i] for sample in all] for name, all in samples.items()})

    def add(self, row, what, best, target, notes, values):
        def cell(name):
            return notes.get(name) or (summary(values[name], best) if values.get(name) else "-")

        text, test = target
        good = values["muster"] and "muster" not in notes
        ratio, middle_ratio, ratios = None, None, "-"
        if good and values.get("bound") and all(values["bound"]):
            ratio = best(values["muster"]) / best(values["bound"])
            middle_ratio = statistics.median(values["muster"]) / statistics.median(values["bound"])
            ratios = f"{ratio:.2f} / {middle_ratio:.2f}"
        met = "-"
        if test:
            by_best = good and test(ratio, best(values["muster"]))
            by_median = good and test(middle_ratio, statistics.median(values["muster"]))
            met = "yes" if by_best and by_median else "best" if by_best else "median" if by_median else "NO"
        peers = "; ".join(f"{name}: {cell(name)}" for name in values if name not in ("muster", "bound"))
        self.rows.append((row, what, cell("muster"), cell("bound"), ratios, text, met, peers))
        print(f"{row} {what}: {cell('muster')}, bound {cell('bound')}, ratio {ratios}; {peers}", file=sys.stderr)

    def show(self):
        lines = [self.HEAD, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.HEAD) - 1)]
        widths.append(5)
        for i, line in enumerate(lines):
            print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |")
            if i == 0:
                print("| " + " | ".join("-" * width for width in widths) + " |")


def ratio_of(limit, rate=None):
    text = f"<= {limit} x" + (f", > {rate:,}/s" if rate else "")
    return text, lambda ratio, best: ratio is not None and ratio <= limit


# --- the rows of the table ------------------------------------------------------------------------


class Bench:
    def __init__(self, build, settings, python, table):
        self.build = build
        self.settings = settings
        self.python = python
        self.mpirun = shutil.which("mpirun")
        self.table = table

    def muster(self, ranks, *arguments):
        return [self.settings["command"], "run", "-n", str(ranks), *map(str, arguments)]

    def program(self, name, *arguments):
        return [os.path.join(self.build, name), *map(str, arguments)]

    def peer(self, kind, script, *arguments):
        """A contender that is a script of peers/, where there is a Python with torch."""
        if not self.python:
            return NotInstalled
        return kind([self.python, os.path.join(HERE, "peers", script), *map(str, arguments)])

    def torchrun(self, kind, ranks, *program, options=()):
        if not self.python:
            return NotInstalled
        return kind([self.python, "-m", "torch.distributed.run", "--standalone",
                     f"--nproc-per-node={ranks}", *options, *program])

    def mpi(self, ranks, *program):
        if not self.mpirun:
            return NotInstalled
        return Cold([self.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                     "-x", f"MASTER_PORT={20000 + os.getpid() % 10000}", "-n", str(ranks), *program])

    def p1(self):
        for n in 2, 8, 32:
            self.table.compare(
                "P1", [(f"warm launch to the first all-reduce and end, {n} ranks, ms", min, ratio_of(1.2))], {
                    "muster": Warm(self.program("muster_launch", "warm", n)),
                    "bound": Warm(self.program("bare_group", "warm", n)),
                    "TCPStore, forked": Warm(self.program("bare_group", "tcp-warm", n)),
                    **({"Python forkserver": self.peer(Warm, "group.py", "forkserver", n)} if n < 32 else {}),
                })

    def p2(self):
        for n in 2, 8, 32:
            peers = {"mpirun": self.mpi(n, *self.program("bare_group", "rank"))}
            if n < 32:
                peers["Python fork"] = self.peer(Cold, "group.py", "fork", n)
                peers["torchrun"] = self.torchrun(Cold, n, os.path.join(HERE, "peers", "group.py"), "rank")
            self.table.compare(
                "P2", [(f"the same from the shell, {n} ranks, ms", min, ratio_of(1.2))], {
                    "muster": Cold(self.program("muster_launch", "once", n)),
                    "bound": Cold(self.program("bare_group", "once", n)),
                    "TCPStore, forked": Cold(self.program("bare_group", "tcp-once", n)),
                    **peers,
                })

    def p3(self):
        for n in 2, 8, 32:
            # The rate counts where there are enough ranks to speak of one.
            def fast(ratio, best, n=n):
                return ratio <= 1.2 and (n < 32 or n / best * 1e3 > 1200)

            target = ("<= 1.2 x" + (", < 26.7 (1,200/s)" if n == 32 else ""), fast)
            self.table.compare(
                "P3", [(f"empty ranks, warm, {n} ranks, ms", min, target)], {
                    "muster": Warm(self.program("muster_launch", "empty", n)),
                    "bound": Warm(self.program("bare_fork", "fork", n)),
                    **({"posix_spawn": Warm(self.program("bare_fork", "spawn", n)),
                        "Python forkserver": self.peer(Warm, "empty.py", n)} if n < 32 else {}),
                })

    def p4(self):
        nothing = self.program("bare_fork", "nothing")
        for n in 2, 8:
            self.table.compare(
                "P4", [(f"muster run of a program with libtorch, {n} ranks, ms", min, ratio_of(1.05))], {
                    "muster": Cold(self.muster(n, *nothing)),
                    "bound": Cold(self.program("bare_run", n, *nothing)),
                    "mpirun": self.mpi(n, *nothing),
                    "torchrun": self.torchrun(Cold, n, *nothing, options=["--no-python"]),
                })

    def p5(self):
        self.table.compare("P5", [("muster run -n 64 /bin/true, ms", min, ratio_of(1.3))], {
            "muster": Cold(self.muster(64, "/bin/true")),
            "bound": Cold(self.program("bare_run", 64, "/bin/true")),
            "torchrun, 2 ranks": self.torchrun(Cold, 2, "/bin/true", options=["--no-python"]),
        })
        self.table.compare("P5", [("muster --version, ms", min, ("< 5", lambda ratio, best: best < 5))], {
            "muster": Cold([self.settings["command"], "--version"]),
            "bound": Cold(["/bin/true"]),
        })

    def p6(self):
        n = 4
        figures = [
            ("a rank of 4 aborts: ms from its pidfd to the others' end", min,
             ("<= 2", lambda ratio, best: best <= 2)),
            ("... to launch() being back", min, ("<= 10", lambda ratio, best: best <= 10)),
        ]
        self.table.compare("P6", figures, {
            "muster": Killed(self.program("muster_launch", "watch", n), n, False),
            "bound": Killed(self.program("bare_fork", "watch", n), n, False),
            "mp.spawn": self.peer(lambda argv: Killed(argv, n, False), "sleep.py", "spawn", n),
        })

    def p7(self):
        n = 4
        none = ("0", lambda ratio, best: best == 0)
        for method in "spawn", "fork", "forkserver":
            figures = [
                (f"launcher is killed ({method}): ranks of 4 alive after 100 ms", max, none),
                ("... after 1 s", max, none),
                ("... ms until none is", max, ("", None)),
            ]
            peers = {}
            if method == "spawn":
                peers["mp.spawn"] = self.peer(lambda argv: Killed(argv, n, True), "sleep.py", "spawn", n)
                peers["torchrun"] = self.torchrun(
                    lambda argv: Killed(argv, n, True), n, os.path.join(HERE, "peers", "sleep.py"), "rank")
            self.table.compare("P7", figures, {
                "muster": Killed(self.program("muster_launch", "watch", n, method), n, True), **peers})

    def p8(self):
        write_and_read = Warm(self.program("bare_memfd"))
        self.table.compare(
            "P8", [("256 MiB result, vector<char>, GB/s", max,
                    (">= 0.8 x", lambda ratio, best: ratio >= 0.8))], {
                "muster": Warm(self.program("muster_result", "vector")),
                "bound": write_and_read,
                "pickled numpy": self.peer(Warm, "result.py", "numpy"),
            })
        self.table.compare(
            "P8", [("256 MiB result, tensor without a copy, GB/s (bound: write alone)", max,
                    (">= 1.77", lambda ratio, best: best >= 1.77))], {
                "muster": Warm(self.program("muster_result", "tensor")),
                "bound": Warm(self.program("bare_memfd", "write")),
                "shared-memory tensor": self.peer(Warm, "result.py", "tensor"),
            })

    def p9(self):
        n, lines = 8, 100_000
        program = self.program("bare_run", "lines", lines)
        figures = [
            ("8 ranks x 100,000 lines of 100 bytes to a pipe, ms", min, ("<= 300", lambda ratio, best: best <= 300)),
            ("... lines torn or lost", max, ("0", lambda ratio, best: best == 0)),
        ]

        def printing(argv):
            return Lines(argv, n * lines)

        mpi = self.mpi(n, *program)
        self.table.compare("P9", figures, {
            "muster": printing(self.muster(n, *program)),
            "bound": printing(self.program("bare_run", n, *program)),
            "mpirun": mpi if mpi is NotInstalled else printing(mpi.argv),
            "torchrun --tee": self.torchrun(printing, n, *program, options=["--no-python", "--tee", "3"]),
        })

    def p10(self):
        n = 8
        figures = [
            ("8 ranks sleep for 10 s: CPU seconds of the launcher", min, ("0.000", lambda ratio, best: best < 0.0005)),
            ("... its memory, MiB", min, ("<= 8", lambda ratio, best: best <= 8)),
        ]
        sleep = ["sleep", "100"]
        mpi = self.mpi(n, *sleep)
        self.table.compare("P10", figures, {
            "muster": Idle(self.muster(n, *sleep)),
            "mpirun": mpi if mpi is NotInstalled else Idle(mpi.argv),
            "torchrun": self.torchrun(Idle, n, *sleep, options=["--no-python"]),
        })

    def p12(self):
        n = 4
        self.table.compare(
            "P12", [("a rank of 4 fails: ms until the next attempt's ranks run", min,
                     ("<= 50", lambda ratio, best: best <= 50))], {
                "muster": Restarted(self.program("muster_launch", "restart", n)),
                "torchrun": self.torchrun(
                    Restarted, n, os.path.join(HERE, "peers", "restart.py"), "FOLDER", options=["--max-restarts", "1"]),
            })

    def p11(self):
        # performance.md's 66 and 5.8 ms, as ratios to the same step without communication.
        for model, what, limit in ("mlp", "MLP 8 x 1024", 1.39), ("small", "200 small tensors", 1.24):
            self.table.compare(
                "P11", [(f"DDP step, 2 ranks, {what}, ms (bound: no communication)", min, ratio_of(limit))], {
                    "muster": Warm(self.program("muster_ddp", "muster", model)),
                    "bound": Warm(self.program("muster_ddp", "alone", model)),
                    "all-reduce for each": Warm(self.program("muster_ddp", "each", model)),
                    "Python DDP": self.peer(Warm, "ddp.py", model),
                })

    def lines(self, *headers):
        """Preprocessed lines, less blank ones and the preprocessor's own."""
        includes = [f"-I{dir}" for dir in self.settings["includes"].split("|")
                    if dir not in ("", "/usr/include")]
        text = subprocess.run(
            [self.settings["compiler"], "-std=c++20", "-E", *includes, "-x", "c++", "-"],
            input="".join(f"#include <{header}>\n" for header in headers),
            capture_output=True, text=True, check=True, timeout=DEADLINE).stdout
        return sum(1 for line in text.splitlines() if line.strip() and not line.startswith("#"))

    def p14(self):
        alone = self.lines("muster/launch.hpp")
        self.table.add("P14", "preprocessed lines of launch.hpp", min,
                       ("<= 80,000", lambda ratio, best: best <= 80000), {}, {"muster": [alone]})
        self.table.add("P14", "... of torch/torch.h and muster.hpp (bound: torch.h)", min,
                       ("<= 1.05 x", lambda ratio, best: ratio <= 1.05), {},
                       {"muster": [self.lines("torch/torch.h", "muster/muster.hpp")],
                        "bound": [self.lines("torch/torch.h")]})


def find_python(wanted):
    """A Python with torch, or None."""
    for python in filter(None, (os.environ.get("MUSTER_PEERS_PYTHON"), wanted, "python3")):
        try:
            if subprocess.run([python, "-c", "import torch"], capture_output=True,
                              timeout=DEADLINE).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            pass
    return None


def main():
    rows = [name.upper() for name in vars(Bench) if name[0] == "p" and name[1:].isdigit()]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="where the programs are: build/release/bench")
    parser.add_argument("rows", nargs="*", metavar="row", help=f"one of {' '.join(rows)}; all by default")
    parser.add_argument("--runs", type=int, default=7, help="of every contender (default 7)")
    options = parser.parse_args()
    wanted = [row.upper() for row in options.rows] or rows
    if unknown := set(wanted) - set(rows):
        parser.error(f"there is no row {', '.join(unknown)}; there are {' '.join(rows)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    adopt_orphans()
    watch_closely()
    with open(os.path.join(options.build, "settings.json")) as file:
        settings = json.load(file)
    table = Table(options.runs)
    bench = Bench(options.build, settings, find_python(settings["peers_python"]), table)
    load = os.getloadavg()[0]
    for row in wanted:
        getattr(bench, row.lower())()
    print(f"minimum / median (rates: maximum / median) of {options.runs} runs, in turn; {os.cpu_count()} CPUs, "
          f"load {load:.1f} before; met: by the best run and by the median (yes), by one of them, or by none")
    table.show()


if __name__ == "__main__":
    try:
        main()
    finally:
        clean_up()
