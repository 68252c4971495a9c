"""As any_ranks.c: each rank reads the files of all ranks that wrote the checkpoint.

any_ranks.py RESULTS STEPS
"""

import sys

import scr

results, last = sys.argv[1], int(sys.argv[2])
scr.init()
step, written, values = 0, 0, []
if scr.have_restart() is not None:
    scr.start_restart()
    written, files = scr.restart_files()
    for name, writer in files:
        with open(scr.route_file(name)) as file:
            step, value = map(int, file.read().split())
        assert value == writer
        values.append(value)
    assert scr.complete_restart(True)
restarted = step
while step < last:
    step += 1
    with scr.checkpoint(f"step.{step}") as checkpoint:
        with open(checkpoint.route(f"rank_{scr.rank()}.txt"), "w") as file:
            file.write(f"{step} {scr.rank()}\n")
with open(f"{results}/result.{scr.rank()}", "w") as file:
    file.write(f"{restarted} {written} {len(values)} {sum(values)}\n")
scr.finalize()
