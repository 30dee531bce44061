"""Functions that the kernels call: the objective, the optimizer, and operations on embedding rows.

They compute the functions of objective/focuse.py, objective/losses.py, engines/optimizers.py and models/, and their
derivatives. A raw score x is the similarity of a query and a row, the score is f = gain·x + offset, and the focused
score is h = α·g(f).

A row is read in pieces of a few columns. A piece of a complex row consists of its real parts and as many imaginary
parts (names that end in `_i`). For real rows, the variables of the imaginary part repeat the real part and are unused.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

from focuse.engines.base import LOSS_CODES, NONLINEARITY_CODES, QUERY_CODES, SIMILARITY_CODES

DOT, L1, L2 = (tl.constexpr(SIMILARITY_CODES[name]) for name in ("dot", "l1", "l2"))
COMPLEX, TRANSLATION = (tl.constexpr(QUERY_CODES[name]) for name in ("complex", "translation"))
SOFTPLUS, SIGMOID, TANH = (tl.constexpr(NONLINEARITY_CODES[name]) for name in ("softplus", "sigmoid", "tanh"))
MULTICLASS, PAIRWISE, NLL, BCE, MARGIN, ADVERSARIAL, SQUARED, LABEL = (
    tl.constexpr(LOSS_CODES[name])
    for name in (
        "multiclass-nll", "pairwise-nll", "nll", "bce", "margin", "self-adversarial", "squared-error", "soft-label",
    )
)  # fmt: skip
ADAGRAD = tl.constexpr(1)  # 0 is Adam


# ---- the objective ---------------------------------------------------------------------------------------------------


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0)


@triton.jit
def logistic(x):
    """Return 1 / (1 + e^−x) without overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def softplus(x):
    """Return ln(1 + eˣ), accurately also for small results."""
    small = tl.exp(-tl.abs(x))
    one = 1.0 + small
    # ln(1 + s) has the rounding error of 1 + s; the factor s / ((1 + s) − 1) has the same error and cancels it.
    rest = tl.where(one == 1.0, small, tl.log(one) * (small / tl.where(one == 1.0, 1.0, one - 1.0)))
    return tl.maximum(x, 0.0) + rest


@triton.jit
def apply_nonlinearity(score, shift, nonlinearity: tl.constexpr):
    """Return g(f + shift) and its derivative."""
    x = score + shift
    if nonlinearity == SOFTPLUS:
        value, slope = softplus(x), logistic(x)
    elif nonlinearity == SIGMOID:
        value = logistic(x)
        slope = value * (1.0 - value)
    elif nonlinearity == TANH:
        small = tl.exp(-2.0 * tl.abs(x))
        value = sign(x) * (1.0 - small) / (1.0 + small)
        slope = 1.0 - value * value
    else:
        value, slope = x, x * 0.0 + 1.0
    return value, slope


@triton.jit
def focused_score(raw, gain, offset, alpha, shift, nonlinearity: tl.constexpr):
    """Return h = α·g(gain·raw + offset) and its derivative with respect to the score."""
    value, slope = apply_nonlinearity(gain * raw + offset, shift, nonlinearity)
    return alpha * value, alpha * slope


@triton.jit
def focus_parameters(weights, beta, scale, b, focused: tl.constexpr, scaled: tl.constexpr):
    """Return α⁺ and α⁻ of positive b, and the gain and offset of all scores."""
    alpha, negative_alpha, gain, offset = 1.0, 1.0, 1.0, 0.0
    if focused:
        share = tl.load(beta)
        rest = (1.0 - share).to(tl.float32)
        weight = tl.load(weights + b)
        alpha, negative_alpha = share.to(tl.float32) + (1.0 - weight) * rest, share.to(tl.float32) + weight * rest
    if scaled:
        gain, offset = tl.load(scale), tl.load(scale + 1)
    return alpha, negative_alpha, gain, offset


@triton.jit
def accumulate_softmax(focused, valid, max_logit, exp_sum, temperature, loss: tl.constexpr):
    """Add the valid ones of `focused` [N] to the running maximum and Σ e^(t·h − maximum) of the negatives."""
    if loss == MULTICLASS or loss == ADVERSARIAL or loss == LABEL:  # noqa: SIM109 (kernels do not support `in`)
        logit = focused * temperature if loss == ADVERSARIAL else focused
        higher = tl.maximum(max_logit, tl.max(tl.where(valid, logit, -float("inf")), axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        added = tl.sum(tl.exp(tl.where(valid, logit - base, -float("inf"))), axis=0)
        exp_sum = exp_sum * tl.exp(max_logit - base) + added
        max_logit = higher
    return max_logit, exp_sum


@triton.jit
def softmax_excess(positive, max_logit, exp_sum):
    """Return ln Σ e^h⁻ − h⁺, or −∞ without any valid negative."""
    found = tl.log(tl.where(exp_sum > 0, exp_sum, 1.0)) + tl.where(exp_sum > 0, max_logit, 0.0) - positive
    return tl.where(exp_sum > 0, found, -float("inf"))


@triton.jit
def softmax_loss(positive, label, count, max_logit, exp_sum, margin, loss: tl.constexpr):
    """Return the loss of a softmax over `count` valid negatives, and its derivative with respect to the excess."""
    excess = softmax_excess(positive, max_logit, exp_sum)
    if loss == LABEL:
        some = exp_sum > 0
        excess = tl.where(some, excess, 0.0) + tl.where(label < 0, -tl.log(tl.maximum(count, 1.0)), margin)
        label = tl.maximum(label, 0.0)
        rest = 1.0 - label
        value = tl.where(some, label * softplus(excess) + rest * softplus(-excess), 0.0)
        slope = tl.where(some, label * logistic(excess) - rest * logistic(-excess), 0.0)
    else:
        value, slope = softplus(excess), logistic(excess)
    return value, slope


@triton.jit
def negative_losses(
    focused, valid, positive, label, count, max_logit, exp_sum, margin, temperature, loss: tl.constexpr
):  # fmt: skip
    """Return the loss of each negative and its derivative with respect to h⁻: [N] -> [N], [N].

    For a softmax loss, the returned losses are 0. `count` negatives are valid; `max_logit` and `exp_sum` come from
    `accumulate_softmax`.
    """
    value, slope = focused * 0.0, focused * 0.0
    if loss == MULTICLASS or loss == ADVERSARIAL or loss == LABEL:  # noqa: SIM109 (kernels know no `in`)
        logit = focused * temperature if loss == ADVERSARIAL else focused
        base = tl.where(exp_sum > 0, max_logit, 0.0)
        probability = tl.exp(tl.where(valid, logit - base, -float("inf"))) / tl.where(exp_sum > 0, exp_sum, 1.0)
        if loss == ADVERSARIAL:
            value, slope = probability * softplus(focused + margin), probability * logistic(focused + margin)
        else:
            _value, by_excess = softmax_loss(positive, label, count, max_logit, exp_sum, margin, loss)
            slope = probability * by_excess
    elif loss == PAIRWISE:
        value, slope = softplus(focused - positive), logistic(focused - positive)
    elif loss == MARGIN:
        value = tl.maximum(margin + focused - positive, 0.0)
        slope = tl.where(value > 0, 1.0, 0.0)
    elif loss == SQUARED:
        at_least_one = tl.maximum(count, 1.0)
        value, slope = focused * focused / at_least_one, 2.0 * focused / at_least_one
    else:
        value, slope = softplus(focused), logistic(focused)
        if loss == BCE:
            value, slope = value / (1.0 + count), slope / (1.0 + count)
    return tl.where(valid, value, 0.0), tl.where(valid, slope, 0.0)


@triton.jit
def positive_loss(positive, weight, count, max_logit, exp_sum, value, slope, margin, loss: tl.constexpr):
    """Return the total loss and its derivative with respect to h⁺.

    `value` and `slope` are the sums of the results of `negative_losses`.
    """
    if loss == MULTICLASS or loss == LABEL:  # noqa: SIM109
        value, by_excess = softmax_loss(positive, weight, count, max_logit, exp_sum, margin, loss)
        slope = -by_excess
    elif loss == PAIRWISE or loss == MARGIN:  # noqa: SIM109
        slope = -slope
    elif loss == ADVERSARIAL:
        value, slope = value + softplus(-(margin + positive)), -logistic(-(margin + positive))
    elif loss == SQUARED:
        error = positive - weight
        value, slope = value + error * error, 2.0 * error
    else:
        share = 1.0 + count if loss == BCE else 1.0
        value, slope = value + softplus(-positive) / share, -logistic(-positive) / share
    return value, slope


@triton.jit
def finish_positive(
    weights, losses, scale_gradient, b, raw, max_logit, exp_sum, count, value, slope, gain_gradient, offset_gradient,
    gain, offset, alpha, factor, shift, margin,
    similarity: tl.constexpr, loss: tl.constexpr, nonlinearity: tl.constexpr, scaled: tl.constexpr,
):  # fmt: skip
    """Store the loss of positive b and its gradient of `scale`; return the coefficient of its raw score's gradient."""
    positive, by_raw = focused_score(raw, gain, offset, alpha, shift, nonlinearity)
    value, slope = positive_loss(
        positive, tl.load(weights + b), count, max_logit, exp_sum, value, slope, margin, loss
    )  # fmt: skip
    tl.store(losses + b, value)
    by_score = slope * by_raw * factor
    if scaled:
        tl.store(scale_gradient + b * 2, gain_gradient + by_score * raw)
        tl.store(scale_gradient + b * 2 + 1, offset_gradient + by_score)
    return divide_by_distance(by_score * gain, raw, similarity)


# ---- regularizer and optimizer ---------------------------------------------------------------------------------------


@triton.jit
def penalty_gradient(x, strength, power: tl.constexpr):
    """Return the derivative of strength · |x|ᵖ."""
    if power == 1:
        gradient = strength * sign(x)
    elif power == 2:
        gradient = strength * 2.0 * x
    else:
        gradient = strength * 3.0 * x * tl.abs(x)
    return gradient


@triton.jit
def optimizer_step(
    x, gradient, moment1, moment2, lr, eps, bias1, bias2,
    method: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr,
):  # fmt: skip
    """Return x and both moments after one step; `bias1` and `bias2` are 1 − βᵗ. Adagrad uses only `moment2`."""
    if method == ADAGRAD:
        moment2 += gradient * gradient
        x -= lr * gradient / (tl.sqrt(moment2) + eps)
    else:
        moment1 += (1.0 - beta1) * (gradient - moment1)
        moment2 += (1.0 - beta2) * (gradient * gradient - moment2)
        x -= lr * (moment1 / bias1) / (tl.sqrt(moment2 / bias2) + eps)
    return x, moment1, moment2


# ---- rows of embeddings ----------------------------------------------------------------------------------------------


@triton.jit
def make_query(known, known_i, relation, relation_i, operation: tl.constexpr, predicts_head: tl.constexpr):
    """Return the real and imaginary parts of a piece of a query."""
    if operation == COMPLEX:
        if predicts_head:
            real, imaginary = known * relation + known_i * relation_i, known_i * relation - known * relation_i
        else:
            real, imaginary = known * relation - known_i * relation_i, known * relation_i + known_i * relation
    elif operation == TRANSLATION:
        real = known - relation if predicts_head else known + relation
        imaginary = real
    else:
        real = known * relation
        imaginary = real
    return real, imaginary


@triton.jit
def backpropagate_query(
    grad, grad_i, known, known_i, relation, relation_i, operation: tl.constexpr, predicts_head: tl.constexpr
):  # fmt: skip
    """Backpropagate the gradient of a query to the known entity and the relation, real and imaginary parts each."""
    if operation == COMPLEX:
        if predicts_head:
            known_grad, known_grad_i = grad * relation - grad_i * relation_i, grad * relation_i + grad_i * relation
            relation_grad, relation_grad_i = grad * known + grad_i * known_i, grad * known_i - grad_i * known
        else:
            known_grad, known_grad_i = grad * relation + grad_i * relation_i, grad_i * relation - grad * relation_i
            relation_grad, relation_grad_i = grad * known + grad_i * known_i, grad_i * known - grad * known_i
    elif operation == TRANSLATION:
        known_grad, known_grad_i = grad, grad
        relation_grad = -grad if predicts_head else grad
        relation_grad_i = relation_grad
    else:
        known_grad, known_grad_i = grad * relation, grad
        relation_grad, relation_grad_i = grad * known, grad
    return known_grad, known_grad_i, relation_grad, relation_grad_i


@triton.jit
def load_row(row, d, half: tl.constexpr, operation: tl.constexpr):
    """Return the real and imaginary parts of the row at `row` in columns `d`."""
    real = tl.load(row + d, mask=d < half, other=0.0)
    imaginary = real
    if operation == COMPLEX:
        imaginary = tl.load(row + half + d, mask=d < half, other=0.0)
    return real, imaginary


@triton.jit
def load_rows(table, ids, inside, d, width: tl.constexpr, half: tl.constexpr, operation: tl.constexpr):
    """Return the real and imaginary parts of the rows `ids` in columns `d`, [N, columns]; 0 where not `inside`."""
    there = inside[:, None] & (d < half)[None, :]
    pointers = table + ids[:, None] * width + d[None, :]
    real = tl.load(pointers, mask=there, other=0.0)
    imaginary = real
    if operation == COMPLEX:
        imaginary = tl.load(pointers + half, mask=there, other=0.0)
    return real, imaginary


@triton.jit
def store_row(row, d, real, imaginary, half: tl.constexpr, operation: tl.constexpr):
    tl.store(row + d, real, mask=d < half)
    if operation == COMPLEX:
        tl.store(row + half + d, imaginary, mask=d < half)


@triton.jit
def triple_rows(entity_table, relation_table, heads, relations, tails, b, width: tl.constexpr):
    """Return pointers to the three rows of triple b."""
    head = entity_table + tl.load(heads + b).to(tl.int64) * width
    relation = relation_table + tl.load(relations + b).to(tl.int64) * width
    tail = entity_table + tl.load(tails + b).to(tl.int64) * width
    return head, relation, tail


@triton.jit
def similarity_terms(query, query_i, x, x_i, similarity: tl.constexpr, operation: tl.constexpr):
    """Return the term of each column in the sum from which `similarity_of_sum` computes the similarity."""
    if similarity == DOT:
        term = query * x
        if operation == COMPLEX:
            term += query_i * x_i
    elif similarity == L1:
        term = tl.abs(query - x)
    else:
        term = (query - x) * (query - x)
    return term


@triton.jit
def similarity_of_sum(total, similarity: tl.constexpr):
    if similarity == L1:
        total = -total
    elif similarity == L2:
        total = -tl.sqrt(total)
    return total


@triton.jit
def divide_by_distance(slope, raw, similarity: tl.constexpr):
    """Return the coefficient of query − x in the gradient. As in torch, the gradient is 0 at distance 0."""
    if similarity == L2:
        slope = tl.where(raw < 0, slope / tl.where(raw < 0, -raw, 1.0), 0.0)
    return slope


@triton.jit
def row_gradient(query, x, coefficient, similarity: tl.constexpr):
    """Return the gradient of x from its similarity to a query; except for DOT, that of the query is its negative."""
    if similarity == DOT:
        gradient = coefficient * query
    elif similarity == L1:
        gradient = coefficient * sign(query - x)
    else:
        gradient = coefficient * (query - x)
    return gradient


@triton.jit
def backpropagate_triple(
    head, relation, tail, d, tail_query_grad, tail_query_grad_i, head_query_grad, head_query_grad_i, coefficient,
    out, b, triples, strength,
    half: tl.constexpr, width: tl.constexpr, operation: tl.constexpr, similarity: tl.constexpr, power: tl.constexpr,
):  # fmt: skip
    """Store the gradients of the three rows of triple b, columns d.

    The inputs are the gradients of both queries and `coefficient`, the coefficient of the triple's own raw score.
    """
    h, h_i = load_row(head, d, half, operation)
    r, r_i = load_row(relation, d, half, operation)
    t, t_i = load_row(tail, d, half, operation)
    query, query_i = make_query(h, h_i, r, r_i, operation, False)
    tail_grad = row_gradient(query, t, coefficient, similarity)
    tail_grad_i = tail_grad
    if similarity == DOT:
        tail_query_grad += coefficient * t
        if operation == COMPLEX:
            tail_grad_i = coefficient * query_i
            tail_query_grad_i += coefficient * t_i
    else:
        tail_query_grad -= tail_grad
    head_grad, head_grad_i, relation_grad, relation_grad_i = backpropagate_query(
        tail_query_grad, tail_query_grad_i, h, h_i, r, r_i, operation, False
    )
    tail_more, tail_more_i, relation_more, relation_more_i = backpropagate_query(
        head_query_grad, head_query_grad_i, t, t_i, r, r_i, operation, True
    )
    tail_grad, tail_grad_i = tail_grad + tail_more, tail_grad_i + tail_more_i
    relation_grad, relation_grad_i = relation_grad + relation_more, relation_grad_i + relation_more_i
    if power > 0:
        head_grad += penalty_gradient(h, strength, power)
        head_grad_i += penalty_gradient(h_i, strength, power)
        tail_grad += penalty_gradient(t, strength, power)
        tail_grad_i += penalty_gradient(t_i, strength, power)
        relation_grad += penalty_gradient(r, strength, power)
        relation_grad_i += penalty_gradient(r_i, strength, power)
    store_row(out + b * width, d, head_grad, head_grad_i, half, operation)
    store_row(out + (b + triples) * width, d, tail_grad, tail_grad_i, half, operation)
    store_row(out + (b + 2 * triples) * width, d, relation_grad, relation_grad_i, half, operation)
