"""`python -m gigagp` is the command `gigagp`."""

from gigagp.cli import main

if __name__ == "__main__":
    main()
