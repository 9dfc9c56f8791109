"""A look at the plan of a query before it starts: whether a task that is repeated has the same rows in the same order.

Spark plans a streaming query's shuffles only when its first batch runs. Before, its logical plan says what is done to
the rows. Operators that are not known to keep their order count as a shuffle, also a join that Spark may do without.
"""

import re
from contextlib import redirect_stdout
from io import StringIO

from pyspark.sql import DataFrame

__all__ = ["keeps_order", "plan_of"]

ANALYZED = "== Analyzed Logical Plan ==\n"
OPERATOR = re.compile(r"[\s:+~-]*(\w*)")
IN_ORDER = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "EventTimeWatermark",
        "MapInArrow",
        "MapInPandas",
        "SubqueryAlias",
        "View",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "StreamingRelationV2",
    }
)


def plan_of(rows: DataFrame) -> str:
    """Return the plans of a query, which Spark only prints."""
    with redirect_stdout(StringIO()) as printed:
        rows.explain(extended=True)
    return printed.getvalue()


def keeps_order(plan: str) -> bool:
    analyzed = plan.partition(ANALYZED)[2].partition("\n\n")[0]
    # The first line has the columns, and each of the others an operator.
    operators = [OPERATOR.match(line) for line in analyzed.splitlines()[1:]]
    return bool(operators) and all(found is not None and found[1] in IN_ORDER for found in operators)
