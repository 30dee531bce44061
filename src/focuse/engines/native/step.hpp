// A step as engines/cpu.py describes it, and what all its parts need.
#pragma once

#include "objective.hpp"
#include "optimiser.hpp"
#include "rows.hpp"

constexpr int64_t PARTS = 64;    // of a batch, for sums over relations

struct Table {
    float *values, *first, *second;  // embeddings, the optimiser's moments
    int64_t rows, width;
    int32_t power, scope;            // of the penalty, 0 for none
    int32_t parts, spans;            // of the numbers whose sizes it is of, see `Sizes`
    float strength;
};

// As engines/cpu.py fills it.
struct Step {
    Table entity, relation;
    const int64_t *head, *kind, *tail;  // [positives + hints]
    const float* weight;                // the same
    int64_t positives, hints;
    const int64_t* corruptions;         // [positives, count] or null
    const uint8_t *tails, *mask;        // the same; mask may be null
    int64_t count, columns;             // columns: of a block, see `keep`
    int64_t piece;                      // of a pool, columns at once; a larger one's products are computed twice
    const int64_t* pool;                // [pooled] or null: entities whose gradient stands in pool_gradient
    const float* pool_gradient;         // [pooled, width], or [entities, width] with pool null, or null
    int64_t pooled;
    float* query;                       // [2, positives, width] in blocks: own corruptions', for tails, for heads
    const float* given;                 // [2, positives + hints, width]: queries from outside, for tails, for heads
    float* of_query;                    // the same: their gradients
    float *comparison, *slope;          // [2, positives + hints], for heads only if sided; [positives, count]
    float *of_end, *of_relation;        // gradients of heads and tails, in blocks unless queries are given, then
                                        // [2, positives + hints, width]; [positives + hints, width]
    double* loss;                       // [positives + hints]
    float* of_scale;                    // [positives + hints, 2]
    uint32_t* sorted;                   // 7 × entries and 6 × (positives + hints) of room
    Objective objective;
    float hint_weight;
    int32_t turn, form, threads, groups;  // groups of positives that sum a pool's gradient apart: at most PARTS
    int32_t summed;                       // whether of_relation is [PARTS, relations, width], then hints
    int32_t sided;                        // whether a triple has two scores, one a side
    Optimiser optimiser;
};

namespace {

template <class Work>
void with_form(int form, Work work) {
    if (form == DOT) return work.template operator()<DOT>();
    if (form == L1) return work.template operator()<L1>();
    work.template operator()<L2>();
}

struct Triple {
    const float *head, *relation, *tail;
};

Triple triple(const Step& s, int64_t b) {
    const int64_t width = s.entity.width;
    return {s.entity.values + s.head[b] * width, s.relation.values + s.kind[b] * s.relation.width,
            s.entity.values + s.tail[b] * width};
}

// Some columns of a row in registers.
template <int columns>
struct Strip {
    static_assert(columns % 8 == 0);
    Lanes lanes[columns / 16];
    Half half;

    // each(register, column) over all of it.
    template <class Each>
    INLINE void each(Each work) {
        for (int64_t v = 0; v < columns / 16; ++v) work(lanes[v], 16 * v);
        if (columns % 16) work(half, columns - 8);
    }
    INLINE void load_from(const float* from) {
        each([&](auto& numbers, int64_t j) INLINE_LAMBDA { numbers = load<std::decay_t<decltype(numbers)>>(from + j); });
    }
    INLINE void store_to(float* to) {
        each([&](auto& numbers, int64_t j) INLINE_LAMBDA { store(to + j, numbers); });
    }
    INLINE void add(const float* from) {
        each([&](auto& numbers, int64_t j) INLINE_LAMBDA { numbers += load<std::decay_t<decltype(numbers)>>(from + j); });
    }
};

template <class Work>
INLINE void with_columns(int64_t columns, Work work) {
    if (columns == 48) return work.template operator()<48>();
    if (columns == 40) return work.template operator()<40>();
    if (columns == 32) return work.template operator()<32>();
    if (columns == 24) return work.template operator()<24>();
    work.template operator()<16>();
}

// Rows that `update` reads in the order of entities are kept in blocks of columns, [blocks, rows, columns]: it goes
// through one block after the other, and each stays in a core's own cache meanwhile.
void keep(const Step& s, float* blocks, int64_t rows, int64_t place, const float* row) {
    with_columns(s.columns, [&]<int columns>() {
        const int64_t width = s.entity.width;
        float* block = blocks + place * columns;
        int64_t from = 0;
        for (; from + columns <= width; from += columns, block += rows * columns) {
            Strip<columns> strip;
            strip.load_from(row + from);
            strip.store_to(block);
        }
        if (from < width) std::fill(std::copy(row + from, row + width, block), block + columns, 0.0f);
    });
}

// Few relations have many positives each: their gradients are summed while they are made, in PARTS parts of the batch,
// each by one thread, so that the order of sums does not depend on how many threads there are.
int64_t part_of(const Step& s, int64_t b) { return b * PARTS / s.positives; }

// Where the gradient of a relation lies that is not summed: behind the sums, hints come first.
int64_t relation_place(const Step& s, int64_t b) {
    return s.summed ? PARTS * s.relation.rows + b - s.positives : b;
}

// The first positive of a share of the parts: that of a thread, or of a group of positives.
int64_t first_of(const Step& s, int share, int shares) {
    return (part(PARTS, share, shares) * s.positives + PARTS - 1) / PARTS;
}

void clear_sums(const Step& s, int share, int shares) {
    const int64_t size = s.relation.rows * s.relation.width;
    if (s.summed)
        std::fill(s.of_relation + part(PARTS, share, shares) * size, s.of_relation + part(PARTS, share + 1, shares) * size,
                  0.0f);
}

// What to look for on a side of a triple.
INLINE void query_of(const Step& s, int64_t b, const Triple& at, bool of_tail, float* query) {
    const int64_t width = s.entity.width;
    if (s.turn == GIVEN)
        std::copy_n(s.given + (of_tail ? b : s.positives + s.hints + b) * width, width, query);
    else
        make_query(s.turn, of_tail, of_tail ? at.head : at.tail, at.relation, query, width);
}

// A side of a triple: its query, the gradient of that, and dL/dx of the triple's own comparison with it.
struct Asked {
    const float* query;
    float* gradient;
    float slope;
};

// Gradients of given queries, and of the ends that they were compared with: who made the queries goes on from there.
template <int form>
void hand_back(const Step& s, int64_t b, const Triple& at, const Asked& for_tail, const Asked& for_head,
               const float* of_tail) {
    const int64_t width = s.entity.width, all = s.positives + s.hints;
    float* of_head = s.of_end + b * width;
    std::copy_n(of_tail, width, s.of_end + (all + b) * width);
    std::copy_n(for_tail.gradient, width, s.of_query + b * width);
    if (s.sided && for_head.query) {
        const float slope = by_distance<form>(for_head.slope, s.comparison[all + b]);
        add_pull<form>(slope, at.head, for_head.query, for_head.gradient, width);
        add_pull<form, true>(slope, for_head.query, at.head, of_head, width);
    } else {
        std::fill_n(of_head, width, 0.0f);
    }
    if (for_head.query) std::copy_n(for_head.gradient, width, s.of_query + (all + b) * width);
}

// From the gradients of both queries and of the positive's comparison to those of head, relation and tail; `room` for
// two rows. Hints have no query for heads.
template <int form>
INLINE void settle(const Step& s, int64_t b, const Triple& at, const Asked& for_tail, const Asked& for_head, float* room) {
    const int64_t width = s.entity.width, all = s.positives + s.hints;
    const bool summed = s.summed && b < s.positives;
    float *of_head = room, *of_tail = room + width;
    const float slope = by_distance<form>(for_tail.slope, s.comparison[b]);
    add_pull<form>(slope, at.tail, for_tail.query, for_tail.gradient, width);
    add_pull<form, true>(slope, for_tail.query, at.tail, of_tail, width);
    if (s.turn == GIVEN) return hand_back<form>(s, b, at, for_tail, for_head, of_tail);
    float* of_kind = s.of_relation + (summed ? part_of(s, b) * s.relation.rows + s.kind[b] : relation_place(s, b)) * width;
    if (summed)
        query_gradient<true, false>(s.turn, true, at.head, at.relation, for_tail.gradient, of_head, of_kind, width);
    else
        query_gradient<true, true>(s.turn, true, at.head, at.relation, for_tail.gradient, of_head, of_kind, width);
    if (for_head.query)
        query_gradient<false, false>(s.turn, false, at.tail, at.relation, for_head.gradient, of_tail, of_kind, width);
    keep(s, s.of_end, 2 * all, b, of_head);
    keep(s, s.of_end, 2 * all, all + b, of_tail);
}

}  // namespace
