"""`python -m holdfast`: the command line."""

from holdfast.cli.main import main

if __name__ == "__main__":
    main()
