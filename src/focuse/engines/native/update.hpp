// The second walk: each row that moves, with its entries.
#pragma once

#include "sorting.hpp"
#include "step.hpp"

namespace {

// What an entry adds to its row: a query times a slope or, from place 2 × positives on, the gradient of an end of a
// triple or of a row of the pool.
struct Pull {
    uint32_t place;
    float slope;
};

// Entries and the entity that each belongs to: corruptions first, then heads, tails and the pool.
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
    Pull pull(uint32_t entry) const {
        const uint32_t positives = s.positives;
        if (entry >= corruptions) return {entry - static_cast<uint32_t>(corruptions) + 2 * positives, 1.0f};
        const uint32_t b = entry / static_cast<uint32_t>(s.count);
        return {b + (1u - s.tails[entry]) * positives, s.slope[entry]};
    }
};

struct Kinds {
    const int64_t* ids;
    uint32_t operator[](int64_t entry) const { return ids[entry]; }
};

// Sizes of a row's numbers, each made of `parts` columns that lie evenly spread over one of the row's `spans`: for a
// penalty Σ|z|³. They are taken before any column of the row moves.
struct Sizes {
    const Table& t;
    int64_t apart;  // columns between two parts of a number
    explicit Sizes(const Table& table) : t(table), apart(table.width / (table.parts * table.spans)) {}
    bool asked() const { return t.parts > 1 && t.strength != 0.0f; }
    int64_t count() const { return apart * t.spans; }
    void measure(int64_t id, float* sizes) const {
        const float* row = t.values + id * t.width;
        for (int64_t span = 0; span < t.spans; ++span, row += t.parts * apart, sizes += apart) {
            std::fill_n(sizes, apart, 0.0f);
            for (int64_t p = 0; p < t.parts; ++p)
#pragma omp simd
                for (int64_t j = 0; j < apart; ++j) sizes[j] += row[p * apart + j] * row[p * apart + j];
#pragma omp simd
            for (int64_t j = 0; j < apart; ++j) sizes[j] = std::sqrt(sizes[j]);
        }
    }
    // Adds the penalty's gradient in columns [from, from + count) of a row.
    void add(int64_t id, int64_t from, int64_t count, float strength, const float* sizes, float* gradient) const {
        const float* row = t.values + id * t.width + from;
        for (int64_t j = 0; j < count;) {  // as far as numbers lie side by side
            const int64_t column = from + j, begin = column % apart, end = j + std::min(apart - begin, count - j);
            const float* size = sizes + column / (t.parts * apart) * apart + begin;
#pragma omp simd
            for (int64_t i = j; i < end; ++i) gradient[i] += strength * 3.0f * row[i] * size[i - j];
            j = end;
        }
    }
};

// Relations are few and long: threads share their columns instead of their rows.
void update_relations(const Step& s, const uint32_t* keys, const uint32_t* order, const float* sizes, int thread,
                      float* gradient) {
    const Sizes of_row(s.relation);
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
        const float strength = penalty_of(t.scope, t.strength, ends);
        if (sizes) of_row.add(id, from, to - from, strength, sizes + id * of_row.count(), gradient + from);
        move_row(s.optimiser, t.values + place, t.first + place, t.second + place, gradient + from, to - from,
                 sizes ? 0.0f : strength, t.power);
    }
}

// A row that moves, and its entries: corruptions [from, middle), then ends of triples and rows of the pool [middle, to).
struct Segment {
    int64_t id, from, middle, to;
};

// Entries sorted by entity, those of one entity in their order.
struct Sorted {
    uint32_t* ids;
    Pull* pulls;
};

// A thread's rows: equal shares of the entries, moved to where a new entity begins.
std::vector<Segment> segments(const Step& s, const Sorted& sorted, int64_t entries, int thread) {
    auto border = [&](int t) {
        int64_t at = part(entries, t, s.threads);
        while (at > 0 && at < entries && sorted.ids[at] == sorted.ids[at - 1]) ++at;
        return at;
    };
    int64_t at = border(thread);
    const int64_t end = border(thread + 1);
    const bool every = s.optimiser.whole || (s.pool_gradient && !s.pool);  // whether rows without entries move
    int64_t id = every && thread > 0 ? (at < entries ? sorted.ids[at] : s.entity.rows) : 0;
    const int64_t last = thread + 1 == s.threads || end == entries ? s.entity.rows : sorted.ids[end];
    std::vector<Segment> result;
    while (every ? id < last : at < end) {
        if (!every) id = sorted.ids[at];
        Segment segment{id, at, at, at};
        for (; at < end && sorted.ids[at] == id; ++at) segment.middle += sorted.pulls[at].place < 2 * s.positives;
        segment.to = at;
        result.push_back(segment);
        ++id;
    }
    return result;
}

// One row's gradient in one block of columns, and its step. `sizes`: of the row's numbers, if the penalty asks for them.
template <int form, int columns>
void update_block(const Step& s, const Segment& segment, const Pull* pulls, int64_t from, const float* sizes) {
    const Table& t = s.entity;
    const int64_t all = s.positives + s.hints, width = std::min<int64_t>(columns, t.width - from);
    const int64_t place = segment.id * t.width + from;
    alignas(64) float gradient[columns] = {}, own[columns] = {};
    if (s.pool_gradient && !s.pool) std::copy_n(s.pool_gradient + place, width, gradient);
    if (form != DOT) std::copy_n(t.values + place, width, own);
    const bool whole = s.turn == GIVEN;  // then rows of ends are not cut into blocks
    const float *queries = s.query + from * 2 * s.positives, *of_ends = s.of_end + from * (whole ? 1 : 2 * all);
    const int64_t far = whole ? t.width : columns;
    Strip<columns> sum, other = {};
    sum.load_from(gradient);
    auto pull_into = [&](Strip<columns>& strip, const Pull& entry) INLINE_LAMBDA {
        const float* query = queries + static_cast<int64_t>(entry.place) * columns;
        strip.each([&](auto& numbers, int64_t j) INLINE_LAMBDA {
            using Number = std::decay_t<decltype(numbers)>;
            numbers += entry.slope * pull<form>(load<Number>(own + j), load<Number>(query + j));
        });
    };
    int64_t i = segment.from;
    for (; i + 2 <= segment.middle; i += 2) {
        pull_into(sum, pulls[i]);
        pull_into(other, pulls[i + 1]);
    }
    if (i < segment.middle) pull_into(sum, pulls[i]);
    other.store_to(gradient);
    sum.add(gradient);
    int64_t ends = 0;
    for (i = segment.middle; i < segment.to; ++i) {
        const int64_t row = pulls[i].place - 2 * s.positives;
        if (row < 2 * all) {
            ends += (row < all ? row : row - all) < s.positives;
            sum.add(of_ends + row * far);
        } else {
            const float* pooled = s.pool_gradient + (row - 2 * all) * t.width + from;
            std::fill(std::copy_n(pooled, width, gradient), gradient + columns, 0.0f);
            sum.add(gradient);
        }
    }
    sum.store_to(gradient);
    float strength = penalty_of(t.scope, t.strength, ends);
    if (sizes) Sizes(t).add(segment.id, from, width, std::exchange(strength, 0.0f), sizes, gradient);
    float *values = t.values + place, *first = t.first + place, *second = t.second + place;
    if (width == columns)
        move_row(s.optimiser, values, first, second, gradient, columns, strength, t.power);
    else
        move_row(s.optimiser, values, first, second, gradient, width, strength, t.power);
}

// A thread's rows, block after block. Where sizes are asked for, some rows at a time, as theirs are kept meanwhile.
template <int form>
void update_rows(const Step& s, const std::vector<Segment>& rows, const Pull* pulls) {
    const Sizes sizes(s.entity);
    const size_t some = sizes.asked() ? 8192 : rows.size();
    std::vector<float> found(sizes.asked() ? std::min(some, rows.size()) * sizes.count() : 0);
    for (size_t begin = 0; begin < rows.size(); begin += some) {
        const size_t end = std::min(begin + some, rows.size());
        for (size_t i = begin; i < end && sizes.asked(); ++i)
            sizes.measure(rows[i].id, found.data() + (i - begin) * sizes.count());
        with_columns(s.columns, [&]<int columns>() {
            for (int64_t from = 0; from < s.entity.width; from += columns)
                for (size_t i = begin; i < end; ++i)
                    update_block<form, columns>(s, rows[i], pulls, from,
                                                sizes.asked() ? found.data() + (i - begin) * sizes.count() : nullptr);
        });
    }
}

}  // namespace
