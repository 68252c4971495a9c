#!/usr/bin/env python3
"""A random walk that writes its state at SIGUSR1: walk.py DIRECTORY STEPS [FROM]."""

import json
import os
import random
import signal
import sys
import time

directory, steps = sys.argv[1], int(sys.argv[2])
state = {"step": 0, "at": 0, "random": 1}
if len(sys.argv) > 3:
    with open(sys.argv[3]) as file:
        state = json.load(file)
save = False


def save_soon(signal_number, frame):
    global save
    save = True


signal.signal(signal.SIGUSR1, save_soon)
print("starting after step", state["step"], flush=True)
while state["step"] < steps:
    walk = random.Random(state["random"])
    state["at"] += walk.choice((-1, 1))
    state["random"] = walk.getrandbits(32)
    state["step"] += 1
    time.sleep(0.02)
    if save:
        save = False
        with open(os.path.join(directory, "walk.json"), "w") as file:
            json.dump(state, file)
        # The other files are complete.
        open(os.path.join(directory, "DONE"), "w").close()
print("at", state["at"], flush=True)
