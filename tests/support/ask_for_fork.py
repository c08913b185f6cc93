"""What `ForkingPython` runs in place of Python: ``ask_for_fork.py SOCKET -m MODULE ...`` has the server behind the
socket fork a process that runs the module with this one's files, environment and folder, and ends when that has ended.

It starts in a fraction of the time that the imports of the module take, and imports nothing of its own for that.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask, and stand for the process that the server has forked."""
    asked = {"arguments": sys.argv[3:], "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        socket.send_fds(server, [b" "], [0, 1, 2])
        server.sendall(json.dumps(asked).encode())
        server.shutdown(socket.SHUT_WR)
        forked = int(server.recv(20))
        signal.signal(signal.SIGTERM, lambda *_: os.kill(forked, signal.SIGTERM))
        # the forked process holds the other end
        server.recv(1)


if __name__ == "__main__":
    main()
