// The first walk: each positive with its own corruptions, and what rules infer.
#pragma once

#include "step.hpp"

namespace {

// Room of one thread, for one positive at a time: both queries and their gradients, for tails first. Its scores are
// filled up to whole vectors with hidden ones.
struct Room {
    std::vector<float> queries, gradients, ends, comparisons, scores;
    Room(int64_t width, int64_t count)
        : queries(2 * width), gradients(2 * width), ends(2 * width), comparisons(count), scores((count + 15) / 16 * 16) {}
};

// A positive's corruptions: entity n replaces the tail where tails[n], else the head.
struct Own {
    const Step& s;
    const int64_t* ids;
    const uint8_t* tails;
    const float* queries;
    const float* row(int64_t n) const { return s.entity.values + ids[n] * s.entity.width; }
    const float* query(int64_t n) const { return queries + (1 - tails[n]) * s.entity.width; }
};

template <int form>
void compare_all(const Own& own, int64_t count, float* results) {
    const int64_t width = own.s.entity.width;
    int64_t n = 0;
    for (; n + 4 <= count; n += 4) {
        const float* rows[4] = {own.row(n), own.row(n + 1), own.row(n + 2), own.row(n + 3)};
        const float* queries[4] = {own.query(n), own.query(n + 1), own.query(n + 2), own.query(n + 3)};
        compare<form, 4>(queries, rows, results + n, width);
    }
    for (; n < count; ++n) results[n] = compare<form>(own.query(n), own.row(n), width);
}

// The gradients of both queries in some columns, kept in registers. Sides are tosses of a coin, which no processor
// predicts: each corruption adds to both, times 0 to one of them.
template <int form, class Number, int vectors>
INLINE void pull_columns(const Own& own, int64_t count, const float* slopes, int64_t from, float* gradients) {
    constexpr int64_t step = sizeof(Number) / sizeof(float);
    Number for_tail[vectors] = {}, for_head[vectors] = {};
    for (int64_t n = 0; n < count; ++n) {
        const float tail = slopes[n] * own.tails[n], head = slopes[n] - tail;
        const float *row = own.row(n) + from, *query = own.query(n) + from;
        for (int v = 0; v < vectors; ++v) {
            const Number toward = pull<form>(load<Number>(query + v * step), load<Number>(row + v * step));
            for_tail[v] += tail * toward;
            for_head[v] += head * toward;
        }
    }
    for (int v = 0; v < vectors; ++v) {
        store(gradients + from + v * step, for_tail[v]);
        store(gradients + own.s.entity.width + from + v * step, for_head[v]);
    }
}

template <int form>
void pull_all(const Own& own, int64_t count, const float* slopes, float* gradients) {
    const int64_t width = own.s.entity.width;
    int64_t j = 0;
    for (; j + 16 * TOGETHER <= width; j += 16 * TOGETHER)
        pull_columns<form, Lanes, TOGETHER>(own, count, slopes, j, gradients);
    for (; j + 16 <= width; j += 16) pull_columns<form, Lanes, 1>(own, count, slopes, j, gradients);
    if (j + 8 <= width) pull_columns<form, Half, 1>(own, count, slopes, j, gradients), j += 8;
    for (; j < width; ++j) pull_columns<form, float, 1>(own, count, slopes, j, gradients);
}

// Focus and loss over a positive and scores that become slopes; dL/dx of the positive's comparison.
INLINE float judge(const Step& s, const Stages& stages, int64_t b, float positive, float* scores, int64_t count) {
    Row row = stages.begin(s.objective, positive, s.weight[b]);
    stages.judge(s.objective, row, scores, count);
    const float of_positive = stages.finish(s.objective, row, positive, s.weight[b]);
    s.loss[b] += row.loss;
    s.of_scale[2 * b] += row.of_slope;
    s.of_scale[2 * b + 1] += row.of_offset;
    return of_positive;
}

// The same for a positive with two scores: each side's corruptions against its own, the others hidden meanwhile.
void judge_sides(const Step& s, const Stages& stages, int64_t b, Room& room, float of_positive[2]) {
    const int64_t count = s.count, all = s.positives + s.hints;
    const uint8_t* tails = s.tails + b * count;
    float *scores = room.scores.data(), *slope = s.slope + b * count;
    const int64_t padded = room.scores.size();
    for (int side = 0; side < 2; ++side) {
        for (int64_t n = 0; n < count; ++n) scores[n] = tails[n] != side ? room.comparisons[n] : HIDDEN;
        std::fill(scores + count, scores + padded, HIDDEN);
        of_positive[side] = judge(s, stages, b, s.comparison[side * all + b], scores, padded);
        for (int64_t n = 0; n < count; ++n) slope[n] = (side ? slope[n] : 0.0f) + scores[n];
    }
}

template <int form>
void own(const Step& s, const Stages& stages, int64_t b, Room& room) {
    const int64_t width = s.entity.width, count = s.count;
    const Triple at = triple(s, b);
    float *for_tails = room.queries.data(), *for_heads = for_tails + width;
    query_of(s, b, at, true, for_tails);
    query_of(s, b, at, false, for_heads);
    keep(s, s.query, 2 * s.positives, b, for_tails);
    keep(s, s.query, 2 * s.positives, s.positives + b, for_heads);
    s.comparison[b] = compare<form>(for_tails, at.tail, width);
    if (s.sided) s.comparison[s.positives + s.hints + b] = compare<form>(for_heads, at.head, width);
    const Own own{s, s.corruptions + b * count, s.tails + b * count, for_tails};
    float *scores = room.scores.data(), *slope = s.slope + b * count, of_positive[2] = {};
    const int64_t padded = room.scores.size();
    std::fill(scores + count, scores + padded, HIDDEN);
    compare_all<form>(own, count, scores);
    if (s.mask)
        for (int64_t n = 0; n < count; ++n)
            if (!s.mask[b * count + n]) scores[n] = HIDDEN;
    if (form == L2 || s.sided) std::copy_n(scores, count, room.comparisons.data());
    s.loss[b] = 0.0;
    s.of_scale[2 * b] = s.of_scale[2 * b + 1] = 0.0f;
    if (s.sided) {
        judge_sides(s, stages, b, room, of_positive);
    } else {
        of_positive[0] = judge(s, stages, b, s.comparison[b], scores, padded);
        std::copy_n(scores, count, slope);
    }
    if (form == L2)
        for (int64_t n = 0; n < count; ++n) slope[n] = by_distance<form>(slope[n], room.comparisons[n]);
    float* gradients = room.gradients.data();
    pull_all<form>(own, count, slope, gradients);
    const Asked for_tail{for_tails, gradients, of_positive[0]}, for_head{for_heads, gradients + width, of_positive[1]};
    settle<form>(s, b, at, for_tail, for_head, room.ends.data());
}

// A triple that rules infer with confidence s: its shortfall max(0, s − φ(f))², times `hint_weight`.
template <int form>
void hint(const Step& s, const Stages& stages, int64_t b, float* room) {
    const int64_t width = s.entity.width;
    float *query = room, *for_tail = room + width;
    const Triple at = triple(s, b);
    query_of(s, b, at, true, query);
    s.comparison[b] = compare<form>(query, at.tail, width);
    Row row = stages.begin(s.objective, s.comparison[b], 0.0f);
    const float lacking = std::max(s.weight[b] - row.positive, 0.0f);
    s.loss[b] = s.hint_weight * lacking * lacking;
    const float bent = s.objective.scale * s.hint_weight * -2.0f * lacking * row.positive_bend;
    s.of_scale[2 * b] = bent * s.comparison[b];
    s.of_scale[2 * b + 1] = bent;
    std::fill_n(for_tail, width, 0.0f);
    settle<form>(s, b, at, {query, for_tail, bent * s.objective.slope}, {}, room + 2 * width);
}

}  // namespace
