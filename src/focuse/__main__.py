"""`python -m focuse`: the same as the command `focuse`."""

from focuse.cli.main import run

if __name__ == "__main__":
    run()
