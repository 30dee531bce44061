// Focus, then loss, over one positive and its corruptions: focus.py and losses.py, with their gradients by hand.
//
// A row of scores is met twice, so that it may come in pieces that are never all in memory at once: `measure` gathers
// what couples the corruptions (a softmax's largest exponent and sum), `slopes` then turns scores into gradients.
#pragma once

#include "rows.hpp"

struct Objective {
    int32_t loss, nonlinearity;
    float shift, margin, temperature;
    float beta;             // 1 where nothing is focused
    float scale;            // of the loss in what is minimised
    float slope, offset;    // from a comparison x to a score, slope·x + offset
};

struct Row {
    float largest = -std::numeric_limits<float>::max();  // of what the softmax runs over
    float sum = 0.0f, highest = 0.0f;
    int64_t counted = 0;
    float positive = 0.0f, positive_bend = 0.0f;  // h⁺ and dh⁺/df⁺
    float alpha = 1.0f;                           // of the corruptions
    float label = 1.0f;                           // how far the positive is to win
    double loss = 0.0;
    float of_positive = 0.0f;                     // dL/dh⁺
    float of_slope = 0.0f, of_offset = 0.0f;
};

template <int nonlinearity>
INLINE Value focused(const Objective& o, float alpha, float x) {
    const Value g = bend<nonlinearity>(o.slope * x + o.offset + o.shift);
    return {rounded(alpha * g.value), alpha * g.slope};
}

template <int nonlinearity>
inline Row begin(const Objective& o, float positive, float weight) {
    Row row;
    row.alpha = o.beta + weight * (1.0f - o.beta);
    row.label = weight;
    const Value h = focused<nonlinearity>(o, o.beta + (1.0f - weight) * (1.0f - o.beta), positive);
    row.positive = h.value;
    row.positive_bend = h.slope;
    return row;
}

inline bool coupled(int loss) { return loss == MULTICLASS || loss == SELF_ADVERSARIAL || loss == LABEL; }

// A softmax's loss and its slope, by how far the corruptions together exceed the positive.
template <int loss>
inline Value exceeded(const Objective& o, const Row& row) {
    const float beyond = row.largest + std::log(row.sum) - row.positive;
    if (loss != LABEL) return softplus(beyond);
    const bool false_ = row.label < 0.0f;  // held against the mean of its rivals
    const float odds = beyond + (false_ ? -std::log(static_cast<float>(row.counted)) : o.margin);
    const float label = std::max(row.label, 0.0f);
    const Value lost = softplus(odds), won = softplus(-odds);
    return {label * lost.value + (1.0f - label) * won.value, label * lost.slope - (1.0f - label) * won.slope};
}

// How many corruptions count, and the highest comparison: all bends rise and α ≥ 0, so it has the largest exponent.
// By hand, as compilers make no vectors of a maximum that might meet a NaN.
inline int64_t look(Row& row, const float* x, int64_t count) {
    const Lanes hidden = spread(HIDDEN);
    Lanes highest = hidden;
    auto counts = hidden == hidden;  // −1 a lane, whole numbers
    counts -= counts;
    int64_t n = 0;
    for (; n + 16 <= count; n += 16) {
        const Lanes some = load(x + n);
        counts -= some != hidden;
        highest = some > highest ? some : highest;
    }
    int64_t counted = 0;
    float most = HIDDEN;
    for (int lane = 0; lane < 16; ++lane) {
        counted += counts[lane];
        most = std::max(most, highest[lane]);
    }
    for (; n < count; ++n) {
        counted += x[n] != HIDDEN;
        most = std::max(most, x[n]);
    }
    row.counted += counted;
    row.highest = most;
    return counted;
}

template <int nonlinearity>
inline void measure(const Objective& o, Row& row, const float* x, int64_t count) {
    if (!look(row, x, count) || !coupled(o.loss)) return;
    // The same roundings as in `blame`, else the shares of large scores would not add up to 1.
    const float heat = o.loss == SELF_ADVERSARIAL ? o.temperature : 1.0f;
    const float largest = std::max(row.largest, focused<nonlinearity>(o, row.alpha, row.highest).value);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t n = 0; n < count; ++n) {
        const float e = fast_exp(heat * (focused<nonlinearity>(o, row.alpha, x[n] == HIDDEN ? 0.0f : x[n]).value - largest));
        sum += x[n] == HIDDEN ? 0.0f : e;
    }
    row.sum = row.sum * fast_exp(heat * (row.largest - largest)) + sum;
    row.largest = largest;
}

// One corruption: its loss, and the slope dL/dh.
template <int loss>
INLINE Value blame(const Objective& o, const Row& row, float share, float inverse, float h) {
    if constexpr (loss == MULTICLASS || loss == LABEL) return {0.0f, inverse * fast_exp(h - row.largest)};
    if constexpr (loss == PAIRWISE) return softplus(h - row.positive);
    if constexpr (loss == NLL || loss == BCE) {
        const Value v = softplus(h);
        return {v.value * share, v.slope * share};
    }
    if constexpr (loss == MARGIN) {
        const float over = o.margin + h - row.positive;
        return {std::max(over, 0.0f), over > 0.0f ? 1.0f : 0.0f};
    }
    if constexpr (loss == SELF_ADVERSARIAL) {
        const float p = inverse * fast_exp(o.temperature * (h - row.largest));
        const Value v = softplus(h + o.margin);
        return {p * v.value, p * v.slope};
    }
    return {h * h * share, 2.0f * h * share};
}

// Scores [count] become gradients of the comparisons, times `scale`. After the last piece comes `finish`.
template <int loss, int nonlinearity>
inline void slopes(const Objective& o, Row& row, float* x, int64_t count) {
    const float cells = static_cast<float>(std::max<int64_t>(row.counted, 1));
    const float share = loss == BCE ? 1.0f / (1.0f + row.counted) : loss == SQUARED ? 1.0f / cells : 1.0f;
    float inverse = 0.0f;
    if (coupled(loss) && row.counted) {
        inverse = 1.0f / row.sum;
        if (loss == MULTICLASS || loss == LABEL) inverse *= exceeded<loss>(o, row).slope;
    }
    float total = 0.0f, pulled = 0.0f, of_slope = 0.0f, of_offset = 0.0f;
    const float outer = o.scale * o.slope;
#pragma omp simd reduction(+ : total, pulled, of_slope, of_offset)
    for (int64_t n = 0; n < count; ++n) {
        const bool hidden = x[n] == HIDDEN;
        const float product = hidden ? 0.0f : x[n];
        const Value h = focused<nonlinearity>(o, row.alpha, product);
        const Value v = blame<loss>(o, row, share, inverse, h.value);
        const float bent = hidden ? 0.0f : v.slope * h.slope;
        total += hidden ? 0.0f : v.value;
        pulled += hidden ? 0.0f : v.slope;
        of_slope += bent * product;
        of_offset += bent;
        x[n] = outer * bent;
    }
    row.loss += total;
    if (loss == PAIRWISE || loss == MARGIN) row.of_positive -= pulled;
    row.of_slope += o.scale * of_slope;
    row.of_offset += o.scale * of_offset;
}

// Both at once over a row that lies in memory: each bend and exponent is taken once.
template <int loss, int nonlinearity>
inline void judge(const Objective& o, Row& row, float* __restrict x, int64_t count) {
    if constexpr (loss != MULTICLASS && loss != LABEL) {
        measure<nonlinearity>(o, row, x, count);
        return slopes<loss, nonlinearity>(o, row, x, count);
    }
    if (!look(row, x, count)) return std::fill_n(x, count, 0.0f), void();
    const float largest = row.largest = focused<nonlinearity>(o, row.alpha, row.highest).value;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t n = 0; n < count; ++n) {
        const bool hidden = x[n] == HIDDEN;
        const Value v = focused<nonlinearity>(o, row.alpha, hidden ? 0.0f : x[n]);
        const float e = hidden ? 0.0f : fast_exp(v.value - largest);
        sum += e;
        x[n] = e * v.slope;
    }
    row.sum = sum;
    const float factor = o.scale * o.slope * exceeded<loss>(o, row).slope / sum;
#pragma omp simd
    for (int64_t n = 0; n < count; ++n) x[n] *= factor;
}

// The positive's own part: adds to the loss, returns the gradient of its comparison, times `scale`.
template <int loss>
inline float finish(const Objective& o, Row& row, float positive, float weight) {
    if ((loss == MULTICLASS || loss == LABEL) && row.counted) {
        const Value v = exceeded<loss>(o, row);
        row.loss += v.value;
        row.of_positive -= v.slope;
    }
    if (loss == NLL || loss == BCE || loss == SELF_ADVERSARIAL) {
        const float margin = loss == SELF_ADVERSARIAL ? o.margin : 0.0f;
        const float share = loss == BCE ? 1.0f / (1.0f + row.counted) : 1.0f;
        const Value v = softplus(-(row.positive + margin));
        row.loss += v.value * share;
        row.of_positive -= v.slope * share;
    }
    if (loss == SQUARED) {
        const float apart = row.positive - weight;
        row.loss += apart * apart;
        row.of_positive += 2.0f * apart;
    }
    const float bent = o.scale * row.of_positive * row.positive_bend;
    row.of_slope += bent * positive;
    row.of_offset += bent;
    return bent * o.slope;
}

// The stages for one loss and one non-linearity: begin, then judge or (measure, slopes), then finish.
struct Stages {
    Row (*begin)(const Objective&, float, float);
    void (*measure)(const Objective&, Row&, const float*, int64_t);
    void (*slopes)(const Objective&, Row&, float*, int64_t);
    void (*judge)(const Objective&, Row&, float*, int64_t);
    float (*finish)(const Objective&, Row&, float, float);
};

template <int loss, int nonlinearity>
constexpr Stages stages() {
    return {begin<nonlinearity>, measure<nonlinearity>, slopes<loss, nonlinearity>, judge<loss, nonlinearity>,
            finish<loss>};
}

template <int loss>
Stages with_bend(int nonlinearity) {
    switch (nonlinearity) {
        case SOFTPLUS: return stages<loss, SOFTPLUS>();
        case SIGMOID: return stages<loss, SIGMOID>();
        case TANH: return stages<loss, TANH>();
        default: return stages<loss, LINEAR>();
    }
}

inline Stages stages_of(const Objective& o) {
    switch (o.loss) {
        case MULTICLASS: return with_bend<MULTICLASS>(o.nonlinearity);
        case PAIRWISE: return with_bend<PAIRWISE>(o.nonlinearity);
        case NLL: return with_bend<NLL>(o.nonlinearity);
        case BCE: return with_bend<BCE>(o.nonlinearity);
        case MARGIN: return with_bend<MARGIN>(o.nonlinearity);
        case SELF_ADVERSARIAL: return with_bend<SELF_ADVERSARIAL>(o.nonlinearity);
        case LABEL: return with_bend<LABEL>(o.nonlinearity);
        default: return with_bend<SQUARED>(o.nonlinearity);
    }
}
