"""What tests do about a fault of torch 1, beside which a pinned diffusers is installed."""


def mend(torch):
    """Of few numbers, its baddbmm multiplies by a beta of 0 what nobody wrote, which may be no number."""
    if torch.__version__.startswith("1."):
        baddbmm = torch.baddbmm
        torch.baddbmm = lambda to, a, b, *, beta, alpha: (
            alpha * torch.bmm(a, b) if beta == 0 else baddbmm(to, a, b, beta=beta, alpha=alpha))
