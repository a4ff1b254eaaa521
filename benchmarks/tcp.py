#!/usr/bin/env python3
"""What plain TCP carries between the hosts of a cluster while all of them send and receive at once. Standard library only.

  tcp.py HOST HOSTS NET SECONDS   on host number HOST of HOSTS, whose addresses are NET.1, NET.2, ...: sends to the next host and
                                  receives from the one before; prints the Mbit/s that it received
"""
import socket
import sys
import threading
import time

PORT, PIECE, WARM_UP = 7077, 1 << 18, 0.5


def send(address, seconds):
    while True:
        try:
            link = socket.create_connection((address, PORT), timeout=5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    piece, end = bytes(PIECE), time.monotonic() + seconds + WARM_UP
    while time.monotonic() < end:
        link.sendall(piece)
    link.close()


def receive(door):
    """Bytes after the warm-up, and the seconds that they took."""
    link, _ = door.accept()
    into, start, count = bytearray(PIECE), time.monotonic(), 0
    first = last = start + WARM_UP
    while got := link.recv_into(into):
        now = time.monotonic()
        if now >= first:
            count, last = count + got, now
    return count, last - first


def main(host, hosts, net, seconds):
    door = socket.create_server((f"{net}.{host + 1}", PORT))
    sender = threading.Thread(target=send, args=(f"{net}.{(host + 1) % hosts + 1}", seconds))
    sender.start()
    count, took = receive(door)
    sender.join()
    # In one piece, also where Python writes at once: all hosts write to the same pipe.
    print(f"{count * 8e-6 / took:.0f}\n", end="")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
