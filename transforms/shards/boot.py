"""Where a spawned writer starts: sleeps on its socket, and imports nothing large before it is woken."""

from __future__ import annotations

from multiprocessing.connection import Connection


def boot(descriptor: int, beacon_descriptor: int) -> None:
    """Waits for the first message on the socket, then serves until it closes."""
    connection = Connection(descriptor)
    try:
        connection.recv_bytes()
    except (EOFError, ConnectionResetError):
        return  # never used
    from recordmill.transforms.shards import own_process
    from recordmill.transforms.shards.beacon import Beacon
    from recordmill.transforms.shards.worker import serve

    own_process.set_up()
    serve(connection, Beacon(beacon_descriptor, is_limited=True))
