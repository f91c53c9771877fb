"""`python -m luminal`: the `luminal` command."""

from luminal.cli.main import main

if __name__ == "__main__":
    main()
