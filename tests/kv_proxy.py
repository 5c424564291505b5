"""A faulty network between two engines that hand KV over."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import msgspec

from sub100_proto.kv import KvHandle


class Tampering:
    """A TCP proxy before an exporter that changes what flows to the puller: at the given byte it flips a
    bit, cuts the connection, or stalls until ``stop`` is set. ``forget`` drops what its connections carry
    from then on without telling either side, as an address translator does with those that were idle."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_bytes = 0
        self.num_connections = 0
        self._num_forgotten = 0
        self.flip_at: int | None = None
        self.cut_at: int | None = None
        self.stall_at: int | None = None
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        self._num_forgotten = self.num_connections

    def close(self) -> None:
        self.stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.num_connections += 1
                carry = threading.Thread(target=self._carry, args=(near, self.num_connections), daemon=True)
                carry.start()

    def _carry(self, near: socket.socket, number: int) -> None:
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            back = threading.Thread(target=self._copy, args=(near, far, False, number), daemon=True)
            back.start()
            self._copy(far, near, True, number)
            back.join(5)
            if number <= self._num_forgotten:
                self.stop.wait(30)

    def _copy(self, source: socket.socket, sink: socket.socket, is_payload: bool, number: int) -> None:
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(256)):
                if number <= self._num_forgotten:
                    continue
                if is_payload:
                    self._edit(data, sink)
                sink.sendall(data)
        for sock in () if number <= self._num_forgotten else (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _edit(self, data: bytearray, sink: socket.socket) -> None:
        start, self.num_bytes = self.num_bytes, self.num_bytes + len(data)
        if self.flip_at is not None and start <= self.flip_at < self.num_bytes:
            data[self.flip_at - start] ^= 1
        if self.stall_at is not None and self.num_bytes > self.stall_at:
            self.stop.wait(30)
        if self.cut_at is not None and self.num_bytes > self.cut_at:
            sink.sendall(data[: len(data) // 2])
            raise OSError("cut")


@contextlib.contextmanager
def proxied(kv: KvHandle, **faults: int) -> Iterator[KvHandle]:
    """The handle behind a faulty network."""
    proxy = Tampering(int(kv.endpoint.rpartition(":")[2]))
    for name, at in faults.items():
        setattr(proxy, name, at)
    try:
        yield msgspec.structs.replace(kv, shm="", endpoint=proxy.endpoint)
    finally:
        proxy.close()
