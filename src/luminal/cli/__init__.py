"""The `luminal` command: one file per subcommand, put together in main.py.

A subcommand imports what it runs inside its function, so that `luminal env` and `--help` start
without the compiler.
"""
