"""The formulas. Every one is a mean over the batch, differentiable in the student's side."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

TINY = 1e-12  # keeps a root differentiable where its argument is zero


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 times -sum over classes of softmax(t / T) log softmax(s / T); logits, classes second.

    T^2 keeps gradients at the size of those of hard labels (Hinton et al., arXiv:1503.02531).
    """
    probabilities = F.softmax(teacher / temperature, 1)
    logs = F.log_softmax(student / temperature, 1)
    return -(temperature**2) * (probabilities * logs).sum(1).mean()


def kl_divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(softmax(t / T) || softmax(s / T)): `soft_cross_entropy` less the teacher's entropy."""
    theirs = F.log_softmax(teacher / temperature, 1)
    logs = F.log_softmax(student / temperature, 1)
    return temperature**2 * (theirs.exp() * (theirs - logs)).sum(1).mean()


def normalised(x: Tensor) -> Tensor:
    """The last axis at length 1; zeros stay zeros."""
    return x / (x.square().sum(-1, keepdim=True) + TINY).sqrt()


def attention_map(x: Tensor) -> Tensor:
    """[n, h w] of [n, c, h, w]: the sum of squares over channels, at length 1."""
    return normalised(x.square().sum(1).flatten(1))


def attention(student: Tensor, teacher: Tensor) -> Tensor:
    """|q_s - q_t|^2 of two attention maps (Zagoruyko and Komodakis, arXiv:1612.03928)."""
    return (student - teacher).square().sum(1).mean()


def channel_maps(x: Tensor) -> Tensor:
    """[n, c, h w] of [n, c, h, w]: where each channel is active, at length 1."""
    return normalised(x.flatten(2))


def linear_kernel(x: Tensor, y: Tensor) -> Tensor:
    """x.y for all pairs of rows: [n, a, b] of [n, a, d] and [n, b, d]."""
    return x @ y.transpose(1, 2)


def polynomial_kernel(x: Tensor, y: Tensor, degree: int = 2, offset: float = 0.0) -> Tensor:
    return (linear_kernel(x, y) + offset) ** degree


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 for all pairs of rows."""
    ours, theirs = x.square().sum(2), y.square().sum(2)
    return ours.unsqueeze(2) + theirs.unsqueeze(1) - 2 * linear_kernel(x, y)


def gaussian_kernel(x: Tensor, y: Tensor, bandwidth: Tensor) -> Tensor:
    """exp(-|x - y|^2 / (2 bandwidth)), the bandwidth [n, 1, 1] being a squared distance."""
    return (-squared_distances(x, y) / (2 * bandwidth)).exp()


def mmd(
    student: Tensor,
    teacher: Tensor,
    kernel: str = "polynomial",
    degree: int = 2,
    offset: float = 0.0,
) -> Tensor:
    """Squared maximum mean discrepancy between the rows of [n, a, d] and those of [n, b, d].

    mean k(t, t') - 2 mean k(s, t) + mean k(s, s'), as in neuron selectivity transfer (Huang and
    Wang, arXiv:1707.01219). The bandwidth of the Gaussian kernel is the mean squared distance
    between the student's and the teacher's rows of a sample.
    """
    if kernel == "linear":  # the means of the kernel are those of the rows
        return (student.mean(1) - teacher.mean(1)).square().sum(1).mean()
    if kernel == "gaussian":
        width = squared_distances(student, teacher).mean((1, 2), keepdim=True) + TINY

    def mean(x: Tensor, y: Tensor) -> Tensor:
        if kernel == "gaussian":
            return gaussian_kernel(x, y, width).mean((1, 2))
        return polynomial_kernel(x, y, degree, offset).mean((1, 2))

    apart = mean(teacher, teacher) - 2 * mean(student, teacher) + mean(student, student)
    return apart.mean()


def differences(x: Tensor) -> Tensor:
    """[n, n, d]: x_j - x_i for all samples i and j."""
    flat = x.flatten(1)
    return flat.unsqueeze(0) - flat.unsqueeze(1)


def relational_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Huber loss between the distances of all pairs of samples, each over their mean.

    Relational knowledge distillation (Park et al., arXiv:1904.05068).
    """
    count = len(student) * (len(student) - 1)

    def relative(x: Tensor) -> Tensor:
        lengths = (differences(x).square().sum(2) + TINY).sqrt()
        return lengths / (lengths.sum() / count)

    return F.smooth_l1_loss(relative(student), relative(teacher), reduction="sum") / count


def relational_angle(student: Tensor, teacher: Tensor) -> Tensor:
    """Huber loss between the cosines of the angles of all triples of samples (the same paper)."""
    n = len(student)

    def cosines(x: Tensor) -> Tensor:
        directions = normalised(differences(x))
        return directions @ directions.transpose(1, 2)

    total = F.smooth_l1_loss(cosines(student), cosines(teacher), reduction="sum")
    return total / (n * (n - 1) * (n - 2))


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared difference of two tensors of one shape."""
    return (student - teacher).square().mean()


def pooled(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Means over cells of [n, c, h, w], so that `size` of them remain."""
    if tuple(x.shape[2:]) == size:
        return x
    if x.shape[2] % size[0] == 0 and x.shape[3] % size[1] == 0:
        return F.avg_pool2d(x, (x.shape[2] // size[0], x.shape[3] // size[1]))
    return F.adaptive_avg_pool2d(x, size)
