// Scores, losses and gradients of positives with per-triple negatives, and of auxiliary triples.
#pragma once

#include "step.hpp"

namespace {

// The memory of one thread for one positive at a time: both queries and their gradients, the tail query first. The
// scores are padded with masked scores to a multiple of the vector length.
struct Workspace {
    std::vector<float> queries, gradients, row_gradients, raw_scores, scores;
    Workspace(int64_t width, int64_t count)
        : queries(2 * width), gradients(2 * width), row_gradients(2 * width), raw_scores(count),
          scores((count + 15) / 16 * 16) {}
};

// The negatives of one positive: entity ids[n] replaces the tail if replaces_tail[n] is 1, otherwise the head.
struct TripleNegatives {
    const Step& s;
    const int64_t* ids;
    const uint8_t* replaces_tail;
    const float* queries;
    const float* row(int64_t n) const { return s.entities.values + ids[n] * s.entities.width; }
    const float* query(int64_t n) const { return queries + (1 - replaces_tail[n]) * s.entities.width; }
};

template <int similarity>
void score_negatives(const TripleNegatives& negatives, int64_t count, float* results) {
    const int64_t width = negatives.s.entities.width;
    int64_t n = 0;
    for (; n + 4 <= count; n += 4) {
        const float* rows[4] = {negatives.row(n), negatives.row(n + 1), negatives.row(n + 2), negatives.row(n + 3)};
        const float* queries[4] = {negatives.query(n), negatives.query(n + 1), negatives.query(n + 2),
                                   negatives.query(n + 3)};
        similarity_of<similarity, 4>(queries, rows, results + n, width);
    }
    for (; n < count; ++n) results[n] = similarity_of<similarity>(negatives.query(n), negatives.row(n), width);
}

// Computes the gradients of both queries in some columns, which are kept in registers. The replaced side of a negative
// is random, so a branch on it could not be predicted. Instead, each negative adds to both gradients, to one of them
// times 0.
template <int similarity, class Number, int vectors>
INLINE void query_gradient_columns(const TripleNegatives& negatives, int64_t count, const float* slopes, int64_t from,
                                   float* gradients) {
    constexpr int64_t step = sizeof(Number) / sizeof(float);
    Number for_tail[vectors] = {}, for_head[vectors] = {};
    for (int64_t n = 0; n < count; ++n) {
        const float tail = slopes[n] * negatives.replaces_tail[n], head = slopes[n] - tail;
        const float *row = negatives.row(n) + from, *query = negatives.query(n) + from;
        for (int v = 0; v < vectors; ++v) {
            const Number own = load<Number>(query + v * step), other = load<Number>(row + v * step);
            const Number gradient = similarity_gradient<similarity>(own, other);
            for_tail[v] += tail * gradient;
            for_head[v] += head * gradient;
        }
    }
    for (int v = 0; v < vectors; ++v) {
        store(gradients + from + v * step, for_tail[v]);
        store(gradients + negatives.s.entities.width + from + v * step, for_head[v]);
    }
}

template <int similarity>
void query_gradients(const TripleNegatives& negatives, int64_t count, const float* slopes, float* gradients) {
    const int64_t width = negatives.s.entities.width;
    int64_t j = 0;
    for (; j + 16 * LANES_TOGETHER <= width; j += 16 * LANES_TOGETHER)
        query_gradient_columns<similarity, Lanes, LANES_TOGETHER>(negatives, count, slopes, j, gradients);
    for (; j + 16 <= width; j += 16)
        query_gradient_columns<similarity, Lanes, 1>(negatives, count, slopes, j, gradients);
    if (j + 8 <= width) query_gradient_columns<similarity, Half, 1>(negatives, count, slopes, j, gradients), j += 8;
    for (; j < width; ++j) query_gradient_columns<similarity, float, 1>(negatives, count, slopes, j, gradients);
}

// Computes the objective of one positive. It replaces the scores of the negatives by their gradients, and returns the
// gradient of the positive's raw score.
INLINE float differentiate_row(const Step& s, const ObjectiveFunctions& functions, int64_t b, float positive,
                               float* scores, int64_t count) {
    RowState row = functions.begin_row(s.objective, positive, s.weight[b]);
    functions.loss_and_gradient(s.objective, row, scores, count);
    const float positive_gradient = functions.finish_row(s.objective, row, positive, s.weight[b]);
    s.loss[b] += row.loss;
    s.scale_gradient[2 * b] += row.gain_gradient;
    s.scale_gradient[2 * b + 1] += row.offset_gradient;
    return positive_gradient;
}

// Does the same for a positive with one score per side: the negatives of a side are compared with the score of that
// side, and those of the other side are masked.
void differentiate_sides(const Step& s, const ObjectiveFunctions& functions, int64_t b, Workspace& workspace,
                         float positive_gradient[2]) {
    const int64_t count = s.negatives_per_positive, triples = s.positives + s.auxiliary;
    const uint8_t* replaces_tail = s.replaces_tail + b * count;
    float *scores = workspace.scores.data(), *slope = s.negative_gradient + b * count;
    const int64_t padded = workspace.scores.size();
    for (int side = 0; side < 2; ++side) {
        for (int64_t n = 0; n < count; ++n) scores[n] = replaces_tail[n] != side ? workspace.raw_scores[n] : MASKED;
        std::fill(scores + count, scores + padded, MASKED);
        positive_gradient[side] = differentiate_row(s, functions, b, s.raw_score[side * triples + b], scores, padded);
        for (int64_t n = 0; n < count; ++n) slope[n] = (side ? slope[n] : 0.0f) + scores[n];
    }
}

// Computes the loss of one positive with its negatives, and all gradients that `update` gathers.
template <int similarity>
void differentiate_triple(const Step& s, const ObjectiveFunctions& functions, int64_t b, Workspace& workspace) {
    const int64_t width = s.entities.width, count = s.negatives_per_positive;
    const TripleRows at = rows_of(s, b);
    float *tail_query = workspace.queries.data(), *head_query = tail_query + width;
    compute_query(s, b, at, true, tail_query);
    compute_query(s, b, at, false, head_query);
    store_blocked(s, s.queries, 2 * s.positives, b, tail_query);
    store_blocked(s, s.queries, 2 * s.positives, s.positives + b, head_query);
    s.raw_score[b] = similarity_of<similarity>(tail_query, at.tail, width);
    if (s.inverse_offset)
        s.raw_score[s.positives + s.auxiliary + b] = similarity_of<similarity>(head_query, at.head, width);
    const TripleNegatives negatives{s, s.negatives + b * count, s.replaces_tail + b * count, tail_query};
    float *scores = workspace.scores.data(), *slope = s.negative_gradient + b * count, positive_gradient[2] = {};
    const int64_t padded = workspace.scores.size();
    std::fill(scores + count, scores + padded, MASKED);
    score_negatives<similarity>(negatives, count, scores);
    if (s.mask)
        for (int64_t n = 0; n < count; ++n)
            if (!s.mask[b * count + n]) scores[n] = MASKED;
    if (similarity == L2 || s.inverse_offset) std::copy_n(scores, count, workspace.raw_scores.data());
    s.loss[b] = 0.0;
    s.scale_gradient[2 * b] = s.scale_gradient[2 * b + 1] = 0.0f;
    if (s.inverse_offset) {
        differentiate_sides(s, functions, b, workspace, positive_gradient);
    } else {
        positive_gradient[0] = differentiate_row(s, functions, b, s.raw_score[b], scores, padded);
        std::copy_n(scores, count, slope);
    }
    if (similarity == L2)
        for (int64_t n = 0; n < count; ++n)
            slope[n] = divide_by_distance<similarity>(slope[n], workspace.raw_scores[n]);
    float* gradients = workspace.gradients.data();
    query_gradients<similarity>(negatives, count, slope, gradients);
    const QuerySide for_tail{tail_query, gradients, positive_gradient[0]};
    const QuerySide for_head{head_query, gradients + width, positive_gradient[1]};
    backpropagate_triple<similarity>(s, b, at, for_tail, for_head, workspace.row_gradients.data());
}

// Computes the loss and gradients of an auxiliary triple, which rules infer with a confidence c, its weight. Its loss
// is `auxiliary_weight` · max(0, c − φ(f))². `workspace` holds four rows.
template <int similarity>
void differentiate_auxiliary(const Step& s, const ObjectiveFunctions& functions, int64_t b, float* workspace) {
    const int64_t width = s.entities.width;
    float *query = workspace, *query_gradient = workspace + width;
    const TripleRows at = rows_of(s, b);
    compute_query(s, b, at, true, query);
    s.raw_score[b] = similarity_of<similarity>(query, at.tail, width);
    RowState row = functions.begin_row(s.objective, s.raw_score[b], 0.0f);
    const float shortfall = std::max(s.weight[b] - row.positive, 0.0f);
    s.loss[b] = s.auxiliary_weight * shortfall * shortfall;
    const float by_score = s.objective.scale * s.auxiliary_weight * -2.0f * shortfall * row.positive_slope;
    s.scale_gradient[2 * b] = by_score * s.raw_score[b];
    s.scale_gradient[2 * b + 1] = by_score;
    std::fill_n(query_gradient, width, 0.0f);
    const QuerySide for_tail{query, query_gradient, by_score * s.objective.gain};
    backpropagate_triple<similarity>(s, b, at, for_tail, {}, workspace + 2 * width);
}

}  // namespace
