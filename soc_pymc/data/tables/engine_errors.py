"""Errors of engines: what they say first, and whether they are an engine's at all."""

__all__ = ["first_line", "is_of_engine", "refuse_interrupt"]

# where the errors of engines come from; other drivers are known by their DatabaseError (PEP 249)
_ENGINES = ("_duckdb", "duckdb", "pyarrow", "polars", "psycopg", "pyspark", "py4j", "google")
# an engine that does not understand its query was asked the wrong thing by this package
_OURS = ("BinderException", "ParserException", "ParseException", "SyntaxError", "UndefinedFunction")
_OF_IBIS = ("OperationNotDefinedError", "TableNotFound", "UnsupportedOperationError")


def first_line(error: Exception) -> str:
    """What an error says first; of an error inside Java, what that says."""
    java = getattr(error, "java_exception", None)
    # that Spark waited for another thread says nothing; what it waited for does
    while java is not None and "awaitResult" in str(java.getMessage()) and java.getCause():
        java = java.getCause()
    text = str(error if java is None else java.toString())
    return (text.strip().splitlines() or [type(error).__name__])[0]


def refuse_interrupt(error: Exception) -> None:
    """Raise Ctrl-C as such where DuckDB says "Query interrupted" because of it."""
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise KeyboardInterrupt from error


def is_of_engine(error: Exception) -> bool:
    """Whether an engine could not read, rather than this package have asked the wrong thing."""
    if (name := type(error).__name__) in _OURS:
        return False
    ancestors = type(error).__mro__
    known = {ancestor.__module__.partition(".")[0] for ancestor in ancestors} & set(_ENGINES)
    drivers = any(ancestor.__name__ == "DatabaseError" for ancestor in ancestors)
    return bool(known) or drivers or name in _OF_IBIS or isinstance(error, OSError)
