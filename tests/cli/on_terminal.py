# SPDX-License-Identifier: Apache-2.0
"""on_terminal.py ANSWER COMMAND...: runs the command on a terminal of its own, types ANSWER and the
end of input, prints the output, and exits with the command's status.
"""
import os
import pty
import sys

pid, fd = pty.fork()
if not pid:
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[2], sys.argv[2:])
os.write(fd, (sys.argv[1] + "\n" if sys.argv[1] else "").encode() + b"\4")
out = b""
while True:
    try:
        piece = os.read(fd, 65536)
    except OSError:  # the other end is closed
        break
    if not piece:
        break
    out += piece
sys.stdout.buffer.write(out)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
