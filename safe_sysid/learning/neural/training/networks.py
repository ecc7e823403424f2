"""Networks of [Hybrid], of the sizes of its Table IV: with memory, and without."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Feedforward", "Recurrent", "weights_of"]

State = tuple[Tensor, Tensor]


class Recurrent(nn.Module):
    """Linear layer with PReLU, LSTM, linear layer: 33,358 weights for seven joints.

    The paper says "in between the model layers" of its layer normalisations, and the number of weights leaves 400 for
    them: here before and after the activation, so that what comes out is at most the last layer's sum of magnitudes.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 100, memory: int = 50) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.slope = nn.PReLU()
        self.norm_after = nn.LayerNorm(width)
        self.memory = nn.LSTM(width, memory, batch_first=True)
        self.last = nn.Linear(memory, outputs)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Outputs (B, T, m) and the state after the last step.

        ``x``: (B, T, inputs), normalised; ``state``: before the first step; None: zeros.
        """
        hidden, state = self.memory(self.norm_after(self.slope(self.norm(self.first(x)))), state)
        return self.last(hidden), state


class Feedforward(nn.Module):
    """Two layers of 200 with one PReLU, and a linear one: 46,008 weights for seven joints."""

    def __init__(self, inputs: int, outputs: int, width: int = 200) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.slope = nn.PReLU()
        self.last = nn.Linear(width, outputs)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State | None]:
        """Outputs (B, T, m), and no state. ``x``: (B, T, inputs), normalised; ``state``: not used."""
        return self.last(self.slope(self.second(self.slope(self.first(x))))), None


def weights_of(module: nn.Module) -> int:
    """Number of weights."""
    return sum(p.numel() for p in module.parameters())
