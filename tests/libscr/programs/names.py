"""Names that no checkpoint can contain raise an exception: names.py RESULTS NAME..."""

import sys

import holdfast as scr

results, names = sys.argv[1], sys.argv[2:]
with scr.session():
    rank = scr.rank()
    with scr.checkpoint("state") as dataset:
        for name in names:
            try:
                dataset.route(name)
            except RuntimeError as error:
                assert "failed" in str(error), error
            else:
                sys.exit(f"{name} is accepted")
        with open(dataset.route(f"rank_{rank}.txt"), "w") as file:
            file.write(f"{rank}\n")
    with open(f"{results}/result.{rank}", "w") as file:
        file.write(f"{len(names)}\n")
