// The FocusE layer and the loss of one positive and its negatives, with their derivatives.
//
// It computes the same functions as objective/focuse.py and objective/losses.py. A raw score x is the similarity of a
// query and a row; the score is f = gain·x + offset; the focused score is h = α·g(f). The raw scores of the negatives
// of a positive may be given in pieces that are not in memory at the same time: `accumulate_softmax` accumulates the
// maximum and the sum of the softmax, then `differentiate` replaces raw scores by gradients. `loss_and_gradient` does
// both for a whole row.
#pragma once

#include "row_math.hpp"

struct Objective {
    int32_t loss, nonlinearity;
    float shift, margin, temperature;
    float beta;          // 1 where the FocusE layer is off
    float scale;         // factor of the loss in the minimized total
    float gain, offset;  // score = gain · raw score + offset
};

// The accumulated state of one positive and its negatives.
struct RowState {
    float max_logit = -std::numeric_limits<float>::max();
    float exp_sum = 0.0f;    // Σ e^(logit − max_logit)
    float max_raw = 0.0f;    // the highest raw score of the latest piece
    int64_t counted = 0;     // negatives that are not masked
    float positive = 0.0f, positive_slope = 0.0f;  // h⁺ and dh⁺/df⁺
    float alpha = 1.0f;      // α of the negatives
    float label = 1.0f;      // the soft label of the positive
    double loss = 0.0;
    float positive_gradient = 0.0f;  // dL/dh⁺
    float gain_gradient = 0.0f, offset_gradient = 0.0f;
};

template <int nonlinearity>
INLINE ValueSlope focused_score(const Objective& o, float alpha, float x) {
    const ValueSlope g = apply_nonlinearity<nonlinearity>(o.gain * x + o.offset + o.shift);
    return {rounded(alpha * g.value), alpha * g.slope};
}

template <int nonlinearity>
inline RowState begin_row(const Objective& o, float positive, float weight) {
    RowState row;
    row.alpha = o.beta + weight * (1.0f - o.beta);
    row.label = weight;
    const ValueSlope h = focused_score<nonlinearity>(o, o.beta + (1.0f - weight) * (1.0f - o.beta), positive);
    row.positive = h.value;
    row.positive_slope = h.slope;
    return row;
}

inline bool has_softmax(int loss) { return loss == MULTICLASS || loss == SELF_ADVERSARIAL || loss == LABEL; }

// Returns the loss of a softmax and its derivative with respect to the excess, ln Σ e^h⁻ − h⁺.
template <int loss>
inline ValueSlope softmax_loss(const Objective& o, const RowState& row) {
    const float excess = row.max_logit + std::log(row.exp_sum) - row.positive;
    if (loss != LABEL) return softplus(excess);
    const bool known_false = row.label < 0.0f;  // a known negative is compared with the mean of its negatives
    const float odds = excess + (known_false ? -std::log(static_cast<float>(row.counted)) : o.margin);
    const float label = std::max(row.label, 0.0f);
    const ValueSlope lost = softplus(odds), won = softplus(-odds);
    return {label * lost.value + (1.0f - label) * won.value, label * lost.slope - (1.0f - label) * won.slope};
}

// Counts the negatives that are not masked and finds the highest raw score. It uses vector types, since compilers do
// not vectorize a maximum of floats that may be NaN.
inline int64_t count_and_max(RowState& row, const float* x, int64_t count) {
    const Lanes masked = spread(MASKED);
    Lanes highest = masked;
    auto counts = masked == masked;  // integers, −1 in every lane
    counts -= counts;
    int64_t n = 0;
    for (; n + 16 <= count; n += 16) {
        const Lanes some = load(x + n);
        counts -= some != masked;
        highest = some > highest ? some : highest;
    }
    int64_t counted = 0;
    float most = MASKED;
    for (int lane = 0; lane < 16; ++lane) {
        counted += counts[lane];
        most = std::max(most, highest[lane]);
    }
    for (; n < count; ++n) {
        counted += x[n] != MASKED;
        most = std::max(most, x[n]);
    }
    row.counted += counted;
    row.max_raw = most;
    return counted;
}

// Returns the largest logit of a piece, after `count_and_max`. All nonlinearities are increasing and α ≥ 0, so it is
// that of the highest raw score, or of the lowest one if the gain is negative.
template <int nonlinearity>
inline float largest_logit(const Objective& o, const RowState& row, const float* x, int64_t count) {
    float raw = row.max_raw;
    if (o.gain < 0.0f)
        for (int64_t n = 0; n < count; ++n) raw = x[n] == MASKED ? raw : std::min(raw, x[n]);
    return focused_score<nonlinearity>(o, row.alpha, raw).value;
}

template <int nonlinearity>
inline void accumulate_softmax(const Objective& o, RowState& row, const float* x, int64_t count) {
    if (!count_and_max(row, x, count) || !has_softmax(o.loss)) return;
    // The rounding is the same as in `negative_loss`; otherwise the probabilities of large scores would not sum to 1.
    const float temperature = o.loss == SELF_ADVERSARIAL ? o.temperature : 1.0f;
    const float max_logit = std::max(row.max_logit, largest_logit<nonlinearity>(o, row, x, count));
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t n = 0; n < count; ++n) {
        const float h = focused_score<nonlinearity>(o, row.alpha, x[n] == MASKED ? 0.0f : x[n]).value;
        const float e = fast_exp(temperature * (h - max_logit));
        sum += x[n] == MASKED ? 0.0f : e;
    }
    row.exp_sum = row.exp_sum * fast_exp(temperature * (row.max_logit - max_logit)) + sum;
    row.max_logit = max_logit;
}

// Returns the loss of one negative and its derivative dL/dh⁻.
template <int loss>
INLINE ValueSlope negative_loss(const Objective& o, const RowState& row, float share, float inverse, float h) {
    if constexpr (loss == MULTICLASS || loss == LABEL) return {0.0f, inverse * fast_exp(h - row.max_logit)};
    if constexpr (loss == PAIRWISE) return softplus(h - row.positive);
    if constexpr (loss == NLL || loss == BCE) {
        const ValueSlope v = softplus(h);
        return {v.value * share, v.slope * share};
    }
    if constexpr (loss == MARGIN) {
        const float over = o.margin + h - row.positive;
        return {std::max(over, 0.0f), over > 0.0f ? 1.0f : 0.0f};
    }
    if constexpr (loss == SELF_ADVERSARIAL) {
        const float p = inverse * fast_exp(o.temperature * (h - row.max_logit));
        const ValueSlope v = softplus(h + o.margin);
        return {p * v.value, p * v.slope};
    }
    return {h * h * share, 2.0f * h * share};
}

// Replaces raw scores [count] by the gradients `scale` · dL/dx. Call `finish_row` after the last piece.
template <int loss, int nonlinearity>
inline void differentiate(const Objective& o, RowState& row, float* x, int64_t count) {
    const float cells = static_cast<float>(std::max<int64_t>(row.counted, 1));
    const float share = loss == BCE ? 1.0f / (1.0f + row.counted) : loss == SQUARED ? 1.0f / cells : 1.0f;
    float inverse = 0.0f;
    if (has_softmax(loss) && row.counted) {
        inverse = 1.0f / row.exp_sum;
        if (loss == MULTICLASS || loss == LABEL) inverse *= softmax_loss<loss>(o, row).slope;
    }
    float total = 0.0f, slopes = 0.0f, gain_gradient = 0.0f, offset_gradient = 0.0f;
    const float outer = o.scale * o.gain;
#pragma omp simd reduction(+ : total, slopes, gain_gradient, offset_gradient)
    for (int64_t n = 0; n < count; ++n) {
        const bool masked = x[n] == MASKED;
        const float raw = masked ? 0.0f : x[n];
        const ValueSlope h = focused_score<nonlinearity>(o, row.alpha, raw);
        const ValueSlope v = negative_loss<loss>(o, row, share, inverse, h.value);
        const float by_score = masked ? 0.0f : v.slope * h.slope;
        total += masked ? 0.0f : v.value;
        slopes += masked ? 0.0f : v.slope;
        gain_gradient += by_score * raw;
        offset_gradient += by_score;
        x[n] = outer * by_score;
    }
    row.loss += total;
    if (loss == PAIRWISE || loss == MARGIN) row.positive_gradient -= slopes;
    row.gain_gradient += o.scale * gain_gradient;
    row.offset_gradient += o.scale * offset_gradient;
}

// Does `accumulate_softmax` and `differentiate` for a whole row, computing each exponential once.
template <int loss, int nonlinearity>
inline void loss_and_gradient(const Objective& o, RowState& row, float* __restrict x, int64_t count) {
    if constexpr (loss != MULTICLASS && loss != LABEL) {
        accumulate_softmax<nonlinearity>(o, row, x, count);
        return differentiate<loss, nonlinearity>(o, row, x, count);
    }
    if (!count_and_max(row, x, count)) return std::fill_n(x, count, 0.0f), void();
    const float max_logit = row.max_logit = largest_logit<nonlinearity>(o, row, x, count);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t n = 0; n < count; ++n) {
        const bool masked = x[n] == MASKED;
        const ValueSlope v = focused_score<nonlinearity>(o, row.alpha, masked ? 0.0f : x[n]);
        const float e = masked ? 0.0f : fast_exp(v.value - max_logit);
        sum += e;
        x[n] = e * v.slope;
    }
    row.exp_sum = sum;
    const float factor = o.scale * o.gain * softmax_loss<loss>(o, row).slope / sum;
#pragma omp simd
    for (int64_t n = 0; n < count; ++n) x[n] *= factor;
}

// Adds the loss of the positive, and returns `scale` times the gradient of its raw score.
template <int loss>
inline float finish_row(const Objective& o, RowState& row, float positive, float weight) {
    if ((loss == MULTICLASS || loss == LABEL) && row.counted) {
        const ValueSlope v = softmax_loss<loss>(o, row);
        row.loss += v.value;
        row.positive_gradient -= v.slope;
    }
    if (loss == NLL || loss == BCE || loss == SELF_ADVERSARIAL) {
        const float margin = loss == SELF_ADVERSARIAL ? o.margin : 0.0f;
        const float share = loss == BCE ? 1.0f / (1.0f + row.counted) : 1.0f;
        const ValueSlope v = softplus(-(row.positive + margin));
        row.loss += v.value * share;
        row.positive_gradient -= v.slope * share;
    }
    if (loss == SQUARED) {
        const float error = row.positive - weight;
        row.loss += error * error;
        row.positive_gradient += 2.0f * error;
    }
    if (loss == CROSS_ENTROPY) {
        const ValueSlope v = softplus(row.positive);
        row.loss += v.value - weight * row.positive;
        row.positive_gradient += v.slope - weight;
    }
    const float by_score = o.scale * row.positive_gradient * row.positive_slope;
    row.gain_gradient += by_score * positive;
    row.offset_gradient += by_score;
    return by_score * o.gain;
}

// The functions above for one loss and one nonlinearity. They are called in this order: begin_row, then either
// loss_and_gradient or (accumulate_softmax, differentiate), then finish_row.
struct ObjectiveFunctions {
    RowState (*begin_row)(const Objective&, float, float);
    void (*accumulate_softmax)(const Objective&, RowState&, const float*, int64_t);
    void (*differentiate)(const Objective&, RowState&, float*, int64_t);
    void (*loss_and_gradient)(const Objective&, RowState&, float*, int64_t);
    float (*finish_row)(const Objective&, RowState&, float, float);
};

template <int loss, int nonlinearity>
constexpr ObjectiveFunctions functions_of() {
    return {begin_row<nonlinearity>, accumulate_softmax<nonlinearity>, differentiate<loss, nonlinearity>,
            loss_and_gradient<loss, nonlinearity>, finish_row<loss>};
}

template <int loss>
ObjectiveFunctions with_nonlinearity(int nonlinearity) {
    switch (nonlinearity) {
        case SOFTPLUS: return functions_of<loss, SOFTPLUS>();
        case SIGMOID: return functions_of<loss, SIGMOID>();
        case TANH: return functions_of<loss, TANH>();
        default: return functions_of<loss, LINEAR>();
    }
}

inline ObjectiveFunctions objective_functions(const Objective& o) {
    switch (o.loss) {
        case MULTICLASS: return with_nonlinearity<MULTICLASS>(o.nonlinearity);
        case PAIRWISE: return with_nonlinearity<PAIRWISE>(o.nonlinearity);
        case NLL: return with_nonlinearity<NLL>(o.nonlinearity);
        case BCE: return with_nonlinearity<BCE>(o.nonlinearity);
        case MARGIN: return with_nonlinearity<MARGIN>(o.nonlinearity);
        case SELF_ADVERSARIAL: return with_nonlinearity<SELF_ADVERSARIAL>(o.nonlinearity);
        case LABEL: return with_nonlinearity<LABEL>(o.nonlinearity);
        case CROSS_ENTROPY: return with_nonlinearity<CROSS_ENTROPY>(o.nonlinearity);
        default: return with_nonlinearity<SQUARED>(o.nonlinearity);
    }
}
