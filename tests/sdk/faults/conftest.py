"""Ports where something else than a broker is."""

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest


class BadRequest(socketserver.BaseRequestHandler):
    """A web server, which refuses anything that is not HTTP."""

    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


class WebServer(socketserver.ThreadingTCPServer):
    """Serves many clients at once."""

    request_queue_size = 256
    daemon_threads = True


@pytest.fixture
def http_port() -> Iterator[int]:
    """The port of a web server."""
    with WebServer(("127.0.0.1", 0), BadRequest) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        yield server.getsockname()[1]
