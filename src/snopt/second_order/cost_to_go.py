r"""The cost-to-go and its derivatives, as one value.

The state has m entries and there are n parameters, both flattened. All derivatives are evaluated
at t0: subscript x means "with respect to the initial state x0".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["CostToGo"]


@dataclass(frozen=True)
class CostToGo:
    r"""The cost-to-go :math:`Q(t_0, x, u)` of ``eq:Q`` with its first and second derivatives.

    Attributes:
        Q: the cost, a 0-d tensor.
        Q_x: gradient with respect to the initial state, ``[m]``.
        Q_u: gradient with respect to the parameters, ``[n]``.
        Q_xx: curvature in the initial state, ``[m, m]``, symmetric.
        Q_xu: mixed curvature, ``[m, n]``.
        Q_uu: curvature in the parameters, ``[n, n]``, symmetric.
        exact: whether the curvature is the Hessian; otherwise it is the Gauss-Newton matrix.
    """

    Q: Tensor
    Q_x: Tensor
    Q_u: Tensor
    Q_xx: Tensor
    Q_xu: Tensor
    Q_uu: Tensor
    exact: bool = False

    @property
    def Q_ux(self) -> Tensor:
        """The transpose of ``Q_xu``, ``[n, m]``."""
        return self.Q_xu.mT

    @staticmethod
    def split(Q: Tensor, Q_z: Tensor, Q_zz: Tensor, m: int, *, exact: bool) -> CostToGo:
        """Split derivatives in ``z = (x, u)`` into their blocks.

        Example:
            >>> whole = torch.arange(9.0).reshape(3, 3)
            >>> CostToGo.split(torch.ones(1), whole[0], whole, 2, exact=True).Q_xu
            tensor([[2.], [5.]])
        """
        blocks = Q_z[:m], Q_z[m:], Q_zz[:m, :m], Q_zz[:m, m:], Q_zz[m:, m:]
        return CostToGo(Q.reshape(()), *blocks, exact=exact)

    def with_weight_decay(self, gamma: float, u: Tensor) -> CostToGo:
        r"""Add weight decay after the solve (the Remark after ``eq:layer-kfac``).

        A running cost :math:`\ell = \frac{\gamma}{2 (t_1 - t_0)} \|u\|^2` does not depend on
        time, so it can be added at the end of the solve:

        .. math:: Q_u \leftarrow Q_u + \gamma u, \qquad Q_{uu} \leftarrow Q_{uu} + \gamma I .

        Args:
            gamma: the decay :math:`\gamma`.
            u: flat parameters, ``[n]``, in the order of ``field.parameters()``.

        Example:
            >>> zero = CostToGo.split(torch.zeros(1), torch.zeros(2), torch.zeros(2, 2), 1,
            ...                       exact=False)
            >>> zero.with_weight_decay(0.5, torch.tensor([4.0])).Q_u
            tensor([2.])
        """
        if u.shape != self.Q_u.shape:
            raise ValueError(
                f"u has shape {tuple(u.shape)}, but there are {self.Q_u.numel()} parameters; "
                "flatten them in the order of field.parameters()."
            )
        return replace(
            self,
            Q=self.Q + 0.5 * gamma * u.square().sum(),
            Q_u=self.Q_u + gamma * u,
            Q_uu=self.Q_uu + gamma * torch.eye(u.numel(), dtype=u.dtype, device=u.device),
        )
