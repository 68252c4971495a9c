"""A worker as torchrun starts it. Each rank keeps its "model" in a checkpoint file.

    holdfast run -- python3 torchrun_style.py --steps 6 --results .

Under torchrun, RANK and WORLD_SIZE give rank and world size; libscr reads them too. Otherwise libscr provides them.
"""

import argparse
import json
import os
import time

import scr


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--results", default=".")
    arguments.add_argument("--step-delay", type=float, default=0, help="additional seconds a step")
    arguments = arguments.parse_args()

    with scr.session():
        rank = int(os.environ.get("RANK", scr.rank()))
        own_file = f"model_rank{rank}.json"

        def read(restart):
            with open(restart.route(own_file)) as file:
                return {**json.load(file), "restarted": restart.name}

        model = scr.load(read) or {"step": 0, "sum": 0, "restarted": "-"}
        restarted = model["step"], model.pop("restarted")

        while model["step"] < arguments.steps and not scr.should_exit():
            # A real worker trains here.
            model["step"] += 1
            model["sum"] += model["step"] * (rank + 1)
            time.sleep(arguments.step_delay)
            if scr.need_checkpoint():
                with scr.checkpoint(f"step.{model['step']}") as checkpoint:
                    with open(checkpoint.route(own_file), "w") as file:
                        json.dump(model, file)

        with open(os.path.join(arguments.results, f"result.{rank}"), "w") as file:
            print(model["sum"], *restarted, file=file)


if __name__ == "__main__":
    main()
