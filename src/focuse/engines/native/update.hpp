// The second walk: each row that moves, with its entries.
#pragma once

#include "sorting.hpp"
#include "step.hpp"

namespace {

// The entity that an entry belongs to: corruptions first, then heads, tails and the pool.
struct Entities {
    const Step& s;
    int64_t corruptions, all;
    explicit Entities(const Step& step)
        : s(step), corruptions(step.corruptions ? step.positives * step.count : 0), all(step.positives + step.hints) {}
    int64_t size() const { return corruptions + 2 * all + (s.pool ? s.pooled : 0); }
    uint32_t operator[](int64_t entry) const {
        if (entry < corruptions) return s.corruptions[entry];
        entry -= corruptions;
        if (entry < all) return s.head[entry];
        return entry < 2 * all ? s.tail[entry - all] : s.pool[entry - 2 * all];
    }
};

// Relations are few and long: threads share their columns instead of their rows.
void update_relations(const Step& s, const uint32_t* keys, const uint32_t* order, int thread, float* gradient) {
    const Table& t = s.relation;
    const int64_t from = part(t.width, thread, s.threads), to = part(t.width, thread + 1, s.threads);
    const int64_t all = s.positives + s.hints;
    for (int64_t i = 0, id = 0; id < t.rows; ++id) {
        if (!s.optimiser.whole) {
            if (i == all) break;
            id = keys[i];
        }
        std::fill(gradient + from, gradient + to, 0.0f);
        for (int64_t p = 0; s.summed && p < PARTS; ++p) {
            const float* sums = s.of_relation + (p * t.rows + id) * t.width;
#pragma omp simd
            for (int64_t j = from; j < to; ++j) gradient[j] += sums[j];
        }
        int64_t ends = 0;
        for (; i < all && keys[i] == id; ++i) {
            ends += order[i] < s.positives;
            if (s.summed && order[i] < s.positives) continue;
            const float* more = s.of_relation + relation_place(s, order[i]) * t.width;
#pragma omp simd
            for (int64_t j = from; j < to; ++j) gradient[j] += more[j];
        }
        const int64_t place = id * t.width + from;
        move_row(s.optimiser, t.values + place, t.first + place, t.second + place, gradient + from, to - from,
                 penalty_of(t.scope, t.strength, ends), t.power);
    }
}

// A row that moves, and its entries: corruptions [from, middle), then ends of triples and rows of the pool [middle, to).
struct Segment {
    int64_t id, from, middle, to;
};

// A thread's rows: equal shares of the entries, moved to where a new entity begins.
std::vector<Segment> segments(const Step& s, const uint32_t* keys, const uint32_t* order, int64_t entries, int thread) {
    const uint32_t corruptions = s.corruptions ? s.positives * s.count : 0;
    auto border = [&](int t) {
        int64_t at = part(entries, t, s.threads);
        while (at > 0 && at < entries && keys[at] == keys[at - 1]) ++at;
        return at;
    };
    int64_t at = border(thread);
    const int64_t end = border(thread + 1);
    const bool every = s.optimiser.whole || (s.pool_gradient && !s.pool);  // whether rows without entries move
    int64_t id = every && thread > 0 ? (at < entries ? keys[at] : s.entity.rows) : 0;
    const int64_t last = thread + 1 == s.threads || end == entries ? s.entity.rows : keys[end];
    std::vector<Segment> result;
    while (every ? id < last : at < end) {
        if (!every) id = keys[at];
        Segment segment{id, at, at, at};
        for (; at < end && keys[at] == id; ++at) segment.middle += order[at] < corruptions;
        segment.to = at;
        result.push_back(segment);
        ++id;
    }
    return result;
}

// What `update` reads of an entry, in the order of entities: which query (or row of gradients), times what.
struct Pulls {
    uint32_t* place;
    float* slope;
};

void gather_pulls(const Step& s, const Pulls& pulls, const uint32_t* order, int64_t entries, int thread) {
    const uint32_t corruptions = s.corruptions ? s.positives * s.count : 0, count = s.count, positives = s.positives;
    const int64_t end = part(entries, thread + 1, s.threads);
    for (int64_t i = part(entries, thread, s.threads); i < end; ++i) {
        const uint32_t entry = order[i];
        const bool corruption = entry < corruptions;
        pulls.place[i] = corruption ? entry / count + (s.tails[entry] ? 0 : positives) : entry - corruptions;
        pulls.slope[i] = corruption ? s.slope[entry] : 0.0f;
    }
}

// One row's gradient in one block of columns, and its step.
template <int form>
void update_block(const Step& s, const Segment& segment, const Pulls& pulls, int64_t from) {
    const Table& t = s.entity;
    const int64_t all = s.positives + s.hints, columns = std::min<int64_t>(COLUMNS, t.width - from);
    const int64_t place = segment.id * t.width + from;
    float gradient[COLUMNS] = {}, own[COLUMNS] = {};
    if (s.pool_gradient && !s.pool) std::copy_n(s.pool_gradient + place, columns, gradient);
    if (form != DOT) std::copy_n(t.values + place, columns, own);
    const float* queries = s.query + from * 2 * s.positives;
    const Lanes left_own = load(own), right_own = load(own + 16);
    Lanes left = load(gradient), right = load(gradient + 16), other_left = {}, other_right = {};
    auto add = [&](int64_t i, Lanes& l, Lanes& r) INLINE_LAMBDA {
        const float* query = queries + static_cast<int64_t>(pulls.place[i]) * COLUMNS;
        l += pulls.slope[i] * pull<form>(left_own, load(query));
        r += pulls.slope[i] * pull<form>(right_own, load(query + 16));
    };
    int64_t i = segment.from;
    for (; i + 2 <= segment.middle; i += 2) {
        add(i, left, right);
        add(i + 1, other_left, other_right);
    }
    if (i < segment.middle) add(i, left, right);
    store(gradient, left + other_left);
    store(gradient + 16, right + other_right);
    int64_t ends = 0;
    for (i = segment.middle; i < segment.to; ++i) {
        const int64_t row = pulls.place[i];
        if (row < 2 * all) {
            const float* end = s.of_end + from * 2 * all + row * COLUMNS;
            ends += (row < all ? row : row - all) < s.positives;
            for (int64_t j = 0; j < COLUMNS; ++j) gradient[j] += end[j];
        } else {
            const float* pooled = s.pool_gradient + (row - 2 * all) * t.width + from;
            for (int64_t j = 0; j < columns; ++j) gradient[j] += pooled[j];
        }
    }
    move_row(s.optimiser, t.values + place, t.first + place, t.second + place, gradient, columns,
             penalty_of(t.scope, t.strength, ends), t.power);
}

}  // namespace
