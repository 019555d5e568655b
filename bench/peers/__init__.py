"""Other tools against the same server of known truth: what each reports of it.

`python -m bench.peers [--envs FOLDER] [--streams 64,256,1024] [NAME …]`: each peer runs from an
environment of its own, `FOLDER/NAME`, which `--install` makes; those that are not there are named
and left out. Nothing here is needed for anything else.
"""
