"""Works around a bug of torch 1, which a pinned diffusers is installed with."""


def mend(torch):
    """For small inputs, its baddbmm with beta = 0 multiplies uninitialised memory, which may hold NaN."""
    if torch.__version__.startswith("1."):
        baddbmm = torch.baddbmm
        torch.baddbmm = lambda to, a, b, *, beta, alpha: (
            alpha * torch.bmm(a, b) if beta == 0 else baddbmm(to, a, b, beta=beta, alpha=alpha))
