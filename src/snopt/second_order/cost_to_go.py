r"""The cost-to-go and its derivatives, as one value.

Sizes: m entries of the state, n parameters, both flattened. Everything is taken at t0, so
that subscript x means "with respect to the initial state x0".
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
        Q: The cost itself, a 0-d tensor.
        Q_x: Gradient in the initial state, ``[m]``.
        Q_u: Gradient in the parameters, ``[n]``.
        Q_xx: Curvature in the initial state, ``[m, m]``, symmetric.
        Q_xu: Mixed curvature, ``[m, n]``; its transpose is :attr:`Q_ux`.
        Q_uu: Curvature in the parameters, ``[n, n]``, symmetric.
        exact: True: the curvature is the Hessian. False: it is the Gauss-Newton matrix.
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
        """Cut derivatives in ``z = (x, u)`` into their blocks.

        Args:
            Q: The cost.
            Q_z: Gradient, ``[m + n]``.
            Q_zz: Curvature, ``[m + n, m + n]``.
            m: Size of the state.
            exact: Whether the curvature is the Hessian.

        Returns:
            The blocks.

        Example:
            >>> whole = torch.arange(9.0).reshape(3, 3)
            >>> CostToGo.split(torch.tensor(1.0), whole[0], whole, 2, exact=True).Q_xu
            tensor([[2.], [5.]])
        """
        return CostToGo(Q, Q_z[:m], Q_z[m:], Q_zz[:m, :m], Q_zz[:m, m:], Q_zz[m:, m:], exact=exact)

    def with_weight_decay(self, gamma: float, u: Tensor) -> CostToGo:
        r"""Add weight decay after the solve (the Remark after ``eq:layer-kfac``).

        A running cost :math:`\ell = \frac{\gamma}{2 (t_1 - t_0)} \|u\|^2` does not depend on
        time, so that it may be left out of the solve and added at its end:
        :math:`Q_u \leftarrow Q_u + \gamma u`, :math:`Q_{uu} \leftarrow Q_{uu} + \gamma I`.

        Args:
            gamma: Factor of the decay, :math:`\gamma`.
            u: The parameters, flattened, ``[n]``.

        Returns:
            The cost-to-go of the decayed problem.

        Raises:
            ValueError: ``u`` is not a vector of n entries.

        Example:
            >>> zero = CostToGo.split(torch.zeros(()), torch.zeros(2), torch.zeros(2, 2), 1,
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
