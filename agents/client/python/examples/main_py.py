"""The demonstration of the Fault-tolerant Scheme: three layers of a network, and a checkpoint after each.

    python3 main_py.py <main|replica> <0-99> [milliseconds between layers [milliseconds between rounds]]

It prints x: 1, 3, 6, then 7, 9, 12, then 13, 15, 18. Each round may be done by another copy.
"""

import os
import sys
import threading
import time

from holdfast.pairs import ft_init_wait, newest_checkpoint, tag_job_begin, tag_job_end, update_checkpoint

ROUNDS = 3


def add_1(x):
    return x + 1


def add_2(x):
    return x + 2


def add_3(x):
    return x + 3


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("main", "replica"):
        sys.exit(f"usage: {sys.argv[0]} <main|replica> <0-99> [milliseconds [milliseconds]]")
    side, index = sys.argv[1], int(sys.argv[2])
    between_layers = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    between_rounds = int(sys.argv[4]) if len(sys.argv) > 4 else between_layers
    pid, tid = os.getpid(), threading.get_native_id()

    ft_init_wait(pid, tid, side, index)  # sleeps until it is this copy's turn
    tag_job_begin(pid, tid, side, 0, True, True, 0)
    layers = [add_1, add_2, add_3]
    # x and the layer after which it was stored, by whichever copy.
    x, layer = newest_checkpoint() or (0, 0)
    # A round adds 6.
    done = x // 6 * len(layers) + layer % len(layers)
    while done < ROUNDS * len(layers):
        x = layers[done % len(layers)](x)
        print(x, flush=True)
        update_checkpoint(x, done % len(layers) + 1)
        done += 1
        if done < ROUNDS * len(layers):
            time.sleep((between_layers if done % len(layers) else between_rounds) / 1000)
    tag_job_end(pid, tid, side)


main()
