"""`python -m concbench` is `concbench`."""

from concbench.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
