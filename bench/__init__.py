"""What Holdfast does on this machine, as ratios of what the machine can do at all.

    limits ─┐
    work  ──┴─► turns ─► steps · waits · restarts · size · growth · http ──► sitting (repeat, calibrate) ──► figures ──► JSON lines, table

`python -m bench` measures everything, `python -m bench w1 w8 --quick` some of it. Uses the public API alone.
"""
