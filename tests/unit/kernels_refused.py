"""A kernel that says more than kernels can."""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel


@kernel
def listed(a):
    return len([a])
