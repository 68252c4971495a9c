"""An MPI program with SCR's plain functions.

    holdfast run -- python3 mpi4py_style.py --steps 6 --results .
"""

import argparse
import os
import time

try:
    from mpi4py import MPI
except ImportError:
    MPI = None

import scr


def read_state(name):
    """The rank's numbers, or None if they cannot be read."""
    try:
        with open(scr.route_file(name)) as file:
            step, total = map(int, file.read().split())
            return step, total
    except (OSError, ValueError, RuntimeError):
        return None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--results", default=".")
    arguments.add_argument("--step-delay", type=float, default=0, help="additional seconds a step")
    arguments = arguments.parse_args()

    scr.init({"SCR_HALT_EXIT": 0})
    # Without mpi4py, or under a launcher that MPI does not support, libscr provides the rank.
    with_mpi = MPI is not None and MPI.COMM_WORLD.Get_size() == scr.size()
    rank = MPI.COMM_WORLD.Get_rank() if with_mpi else scr.rank()
    if rank == 0:
        print(f"{scr.size()} ranks, known by {'MPI' if with_mpi else 'libscr'}", flush=True)
    own_file = f"state_{rank}.txt"
    step, total, restarted = 0, 0, (0, "-")

    while scr.have_restart() is not None:
        name = scr.start_restart()
        found = read_state(own_file)
        if scr.complete_restart(found is not None):
            step, total = found
            restarted = step, name
            break

    while step < arguments.steps:
        step += 1
        total += step * (rank + 1)
        time.sleep(arguments.step_delay)
        scr.start_output(f"step.{step}", scr.FLAG_CHECKPOINT)
        try:
            with open(scr.route_file(own_file), "w") as file:
                print(step, total, file=file)
            valid = True
        except OSError:
            valid = False
        scr.complete_output(valid)
        if scr.should_exit():
            break

    with open(os.path.join(arguments.results, f"result.{rank}"), "w") as file:
        print(total, *restarted, file=file)
    scr.finalize()


if __name__ == "__main__":
    main()
