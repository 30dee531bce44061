// The first walk: each positive with its own corruptions, and what rules infer.
#pragma once

#include "step.hpp"

namespace {

// Room of one thread, for one positive at a time. Its scores are filled up to whole vectors with hidden ones.
struct Room {
    std::vector<float> tail_query, head_query, for_tail, for_head, ends, comparisons, scores;
    std::vector<int32_t> by_side, rest;
    Room(int64_t width, int64_t count)
        : tail_query(width), head_query(width), for_tail(width), for_head(width), ends(2 * width), comparisons(count),
          scores((count + 15) / 16 * 16), by_side(count + 1), rest(count + 1) {}
};

// Corruptions [from, to) of `by_side` replace the same side, so they meet one query.
template <int form>
void compare_all(const Step& s, const int64_t* ids, const Room& room, int64_t from, int64_t to, const float* query,
                 float* results) {
    const int64_t width = s.entity.width;
    auto row = [&](int64_t i) { return s.entity.values + ids[room.by_side[i]] * width; };
    int64_t i = from;
    for (; i + 4 <= to; i += 4) {
        const float* rows[4] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
        float found[4];
        compare<form, 4>(query, rows, found, width);
        for (int c = 0; c < 4; ++c) results[room.by_side[i + c]] = found[c];
    }
    for (; i < to; ++i) results[room.by_side[i]] = compare<form>(query, row(i), width);
}

template <int form>
void pull_all(const Step& s, const int64_t* ids, const Room& room, int64_t from, int64_t to, const float* query,
              const float* slopes, float* gradient) {
    const int64_t width = s.entity.width;
    auto row = [&](int64_t i) { return s.entity.values + ids[room.by_side[i]] * width; };
    auto slope = [&](int64_t i) { return slopes[room.by_side[i]]; };
    int64_t i = from;
    for (; i + 4 <= to; i += 4) {
        const float* rows[4] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
        const float four[4] = {slope(i), slope(i + 1), slope(i + 2), slope(i + 3)};
        add_pull<form>(four, rows, query, gradient, width);
    }
    for (; i < to; ++i) add_pull<form>(slope(i), row(i), query, gradient, width);
}

// The places of corrupted tails, then those of corrupted heads; the number of the first. Sides are tosses of a coin,
// which no processor predicts: no branch here.
int64_t split_sides(const uint8_t* tails, int64_t count, int32_t* by_side, int32_t* rest) {
    int64_t left = 0, right = 0;
    for (int64_t n = 0; n < count; ++n) {
        by_side[left] = rest[right] = n;
        left += tails[n] != 0;
        right += tails[n] == 0;
    }
    std::copy_n(rest, right, by_side + left);
    return left;
}

template <int form>
void own(const Step& s, const Stages& stages, int64_t b, Room& room) {
    const int64_t width = s.entity.width, count = s.count;
    const int64_t* ids = s.corruptions + b * count;
    const uint8_t* tails = s.tails + b * count;
    float* slope = s.slope + b * count;
    const Triple at = triple(s, b);
    const float *for_tails = room.tail_query.data(), *for_heads = room.head_query.data();
    make_query(s.turn, true, at.head, at.relation, room.tail_query.data(), width);
    make_query(s.turn, false, at.tail, at.relation, room.head_query.data(), width);
    keep(s.query, 2 * s.positives, b, for_tails, width);
    keep(s.query, 2 * s.positives, s.positives + b, for_heads, width);
    s.comparison[b] = compare<form>(for_tails, at.tail, width);
    const int64_t heads = split_sides(tails, count, room.by_side.data(), room.rest.data());
    float* scores = room.scores.data();
    const int64_t padded = room.scores.size();
    std::fill(scores + count, scores + padded, HIDDEN);
    compare_all<form>(s, ids, room, 0, heads, for_tails, scores);
    compare_all<form>(s, ids, room, heads, count, for_heads, scores);
    if (form == L2) std::copy_n(scores, count, room.comparisons.data());
    if (s.mask)
        for (int64_t n = 0; n < count; ++n)
            if (!s.mask[b * count + n]) scores[n] = HIDDEN;
    Row row = stages.begin(s.objective, s.comparison[b], s.weight[b]);
    stages.judge(s.objective, row, scores, padded);
    const float of_positive = stages.finish(s.objective, row, s.comparison[b], s.weight[b]);
    s.loss[b] = row.loss;
    s.of_scale[2 * b] = row.of_slope;
    s.of_scale[2 * b + 1] = row.of_offset;
    if (form == L2)
        for (int64_t n = 0; n < count; ++n) scores[n] = by_distance<form>(scores[n], room.comparisons[n]);
    std::copy_n(scores, count, slope);
    std::fill(room.for_tail.begin(), room.for_tail.end(), 0.0f);
    std::fill(room.for_head.begin(), room.for_head.end(), 0.0f);
    pull_all<form>(s, ids, room, 0, heads, for_tails, slope, room.for_tail.data());
    pull_all<form>(s, ids, room, heads, count, for_heads, slope, room.for_head.data());
    settle<form>(s, b, at, of_positive, for_tails, room.for_tail.data(), room.for_head.data(), room.ends.data());
}

// A triple that rules infer with confidence s: its shortfall max(0, s − φ(f))², times `hint_weight`.
template <int form>
void hint(const Step& s, const Stages& stages, int64_t b, float* room) {
    const int64_t width = s.entity.width;
    float *query = room, *for_tail = room + width;
    const Triple at = triple(s, b);
    make_query(s.turn, true, at.head, at.relation, query, width);
    s.comparison[b] = compare<form>(query, at.tail, width);
    Row row = stages.begin(s.objective, s.comparison[b], 0.0f);
    const float lacking = std::max(s.weight[b] - row.positive, 0.0f);
    s.loss[b] = s.hint_weight * lacking * lacking;
    const float bent = s.objective.scale * s.hint_weight * -2.0f * lacking * row.positive_bend;
    s.of_scale[2 * b] = bent * s.comparison[b];
    s.of_scale[2 * b + 1] = bent;
    std::fill_n(for_tail, width, 0.0f);
    settle<form>(s, b, at, bent * s.objective.slope, query, for_tail, nullptr, room + 2 * width);
}

}  // namespace
