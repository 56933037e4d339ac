"""The value of expressions and aggregates; what a solution is and where it comes from is not known here."""

from cqels.plan.functions.aggregates import aggregate
from cqels.plan.functions.context import Context
from cqels.plan.functions.evaluation import arity, evaluate, holds, supported

__all__ = ["Context", "aggregate", "arity", "evaluate", "holds", "supported"]
