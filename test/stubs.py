"""What tests of shell scripts share: a PATH that shows them a machine of the test's making, and a terminal."""
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import termios

TOOLS = ("awk", "bash", "cat", "chmod", "cp", "diff", "dirname", "env", "find", "grep", "id", "mkdir", "mktemp",
         "nproc", "realpath", "rm", "sed")


def make_path(folder, **stubs):
    """Returns PATH: `folder` with the ordinary tools, and with shell scripts by the names and of the text of stubs."""
    folder.mkdir()
    for name in TOOLS:
        if name not in stubs:
            os.symlink(shutil.which(name), folder / name)
    for name, text in stubs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
    return str(folder)


def run_on_terminal(command, env):
    """Returns the exit code, and what a terminal of 80 columns showed."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    run = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=end, stderr=end)
    os.close(end)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:  # no program has the other end open
        pass
    os.close(terminal)
    return run.wait(timeout=60), shown.decode(errors="replace")
