"""What a benchmark says where its data is not: a sentence instead of a traceback."""

from collections.abc import Callable

from headway.workload.columns import TraceError


def said(main: Callable[[], object]) -> None:
    """Run a benchmark; end with an error message if a file it needs is missing or is not what it should be."""
    try:
        main()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SystemExit(f"error: {error.filename} is not there: --data is the folder it is looked for in") from None
    except TraceError as error:
        raise SystemExit(f"error: {error}") from None
