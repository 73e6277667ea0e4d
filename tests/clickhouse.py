"""Tables on the ClickHouse of this process, of the package chdb."""

from typing import Any

import pyarrow as pa

__all__ = ["copied"]

TYPES = {
    "bool": "Bool", "int32": "Int32", "int64": "Int64", "uint64": "UInt64", "float": "Float32",
    "double": "Float64", "string": "String", "large_string": "String", "date32[day]": "Date32",
}  # fmt: skip


def copied(connection: Any, table: pa.Table) -> Any:
    """Copies an Arrow table into one of ClickHouse."""
    columns = []
    for field in table.schema:
        kind = TYPES.get(str(field.type), str(field.type).replace("decimal128", "Decimal"))
        kind = f"Nullable({kind})" if table[field.name].null_count else kind
        columns.append('"' + field.name.replace('"', '""') + f'" {kind}')
    connection.raw_sql(f"CREATE TABLE items ({', '.join(columns)}) ENGINE = Memory")
    connection.con.insert_arrow("items", table)
    return connection.table("items")
