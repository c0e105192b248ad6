"""The first process of a model's container: runs the harness and prints its output folder.

The output folder of such a container is a file system in memory, which ends with the container. So the runner starts
this file by ``python -c`` with the harness's arguments, and ``container_run.py`` reads its output. It imports the
standard library alone, because the interpreter is that of the image.
"""

import json
import os
import signal
import stat
import sys

MARK = b"\0benchlock output "
"""The mark before the header, which is one line of JSON; the contents of the files follow the header."""
_PIECE = 1 << 20
_SECONDS_TO_RELEASE = 60


def main(folder: str, names: str, *arguments: str) -> int:
    """Run the harness, print the files, and wait until the runner has read them.

    Args:
        folder: The output folder.
        names: The files that the runner reads, as a list in JSON.
        arguments: The arguments of the interpreter of the harness.

    Returns:
        The exit code of the harness; 128 plus the number of the signal that killed it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    code = run(arguments)
    end_other_processes()
    while signal.sigtimedwait({signal.SIGTERM}, 0):
        pass
    write_output(1, folder, json.loads(names))
    signal.sigtimedwait({signal.SIGTERM}, _SECONDS_TO_RELEASE)
    return code


def run(arguments: "tuple[str, ...]") -> int:
    """Run the interpreter with ``arguments`` to its end, and reap every other process that ends meanwhile."""
    child = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, setsigmask=())
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_other_processes() -> None:
    """Kill every other process of the container, which frees their resources and ends their writes."""
    if os.getpid() != 1:  # not in a container of its own
        return
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.wait()
    except (ProcessLookupError, ChildProcessError):
        return


def write_output(target: int, folder: str, names: "list[str]") -> None:
    """Write the header and the existing files of ``names`` to the descriptor ``target``.

    A file that is reached by a link, or has holes, counts as missing.
    """
    try:
        entries, size = measure(folder)
        header = {"entries": entries, "bytes": size, "files": {}}
        streams = {name: stream for name in names if (stream := open_file(folder, name)) is not None}
        header["files"] = {name: os.fstat(stream).st_size for name, stream in streams.items()}
    except OSError as error:
        header, streams = {"error": error.strerror or str(error)}, {}
    write(target, MARK + json.dumps(header).encode() + b"\n")
    for stream in streams.values():
        while piece := os.read(stream, _PIECE):
            write(target, piece)


def measure(folder: str) -> "tuple[int, int]":
    """Return the number of files and folders, and the total length of all files."""
    entries = size = 0
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries_in_folder:
            for entry in entries_in_folder:
                status = entry.stat(follow_symlinks=False)
                entries += 1
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                elif stat.S_ISREG(status.st_mode):
                    size += status.st_size
    return entries, size


def open_file(folder: str, name: str) -> "int | None":
    """Open a regular file without holes below ``folder``; None if there is none."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    *parents, last = name.split("/")
    try:
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        stream = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    status = os.fstat(stream)
    if stat.S_ISREG(status.st_mode) and (not status.st_size or os.lseek(stream, 0, os.SEEK_HOLE) == status.st_size):
        os.lseek(stream, 0, os.SEEK_SET)
        return stream
    os.close(stream)
    return None


def write(target: int, content: bytes) -> None:
    """Write all of ``content``."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(target, rest) :]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
