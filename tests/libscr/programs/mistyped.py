"""Calls with wrong types: a type checker reports each line that ends with `# wrong`, and no other."""

import scr
from holdfast import pairs, variables

scr.init(7)  # wrong
scr.route_file(1)  # wrong
scr.start_output("step.1")  # wrong
scr.complete_output("yes")  # wrong
scr.have_restart().upper()  # wrong
name: str = scr.config("SCR_DEBUG")  # wrong
flag: str = scr.need_checkpoint()  # wrong
scr.no_such_function()  # wrong
with scr.checkpoint(5) as checkpoint:  # wrong
    checkpoint.path("state")  # wrong
state: str = scr.load(lambda restart: len(restart.name))  # wrong

variables.protect("field", bytearray(8))  # wrong
variables.protect(1, [0.0, 1.0])  # wrong
variables.protect(1, 0.0)  # wrong
variables.checkpoint(1, "PREFIX")  # wrong
identifier: int = variables.recover()  # wrong
variables.no_such_function()  # wrong

pairs.ft_init_wait(name=1)  # wrong
pairs.update("text")  # wrong
pairs.update_checkpoint("1", 0)  # wrong
x, layer = pairs.newest_checkpoint()  # wrong
