// The structure that describes a training step, which engines/fused_cpu.py fills in, and functions used by all its
// parts.
#pragma once

#include "objective.hpp"
#include "optimizer.hpp"
#include "row_math.hpp"

constexpr int64_t PARTS = 64;  // parts of a batch for which the gradients of relations are summed separately

struct Table {
    float *values, *moment1, *moment2;  // embeddings and the optimizer's moments, [rows, width] each
    int64_t rows, width;
    int32_t power, scope;               // power and scope of the regularizer; power 0 means no regularizer
    int32_t components, spans;          // layout of the numbers whose moduli are regularized, see `Moduli`
    float strength;
};

// One training step. The fields have the same order as in native/__init__.py; `triples` is positives + auxiliary.
struct Step {
    Table entities, relations;
    const int64_t *head, *relation, *tail;  // [triples], ids
    const float* weight;                    // [triples]
    int64_t positives, auxiliary;
    const int64_t* negatives;               // [positives, negatives_per_positive] or null
    const uint8_t *replaces_tail, *mask;    // the same shape; mask may be null
    int64_t negatives_per_positive;
    int64_t block_columns;                  // see `store_blocked`
    int64_t pool_piece;                     // pool entities scored together; scores of larger pools are computed twice
    const int64_t* pool;                    // [pool_size] or null: the entities of the rows of pool_gradient
    const float* pool_gradient;             // [pool_size, width]; [entities, width] if pool is null; or null
    int64_t pool_size;
    int64_t inverse_offset;                 // R if relation r + R is the inverse of r (two scores per triple), else 0
    float* queries;                         // [2, positives, width] in blocks: tail queries, then head queries
    const float* precomputed_queries;       // [2, triples, width]: tail queries, then head queries
    float* query_gradient;                  // [2, triples, width]: the gradients of precomputed queries
    float* raw_score;                       // [2, triples]: the second half is used with inverse relations only
    float* negative_gradient;               // [positives, negatives_per_positive]: dL / d raw score of each negative
    float* entity_gradient;                 // [2, triples, width]: heads, then tails; in blocks unless PRECOMPUTED
    float* relation_gradient;               // [triples, width], then the inverse relations; or see sum_relations
    double* loss;                           // [triples]
    float* scale_gradient;                  // [triples, 2]: gradients of the gain and the offset of all scores
    uint32_t* sort_buffer;                  // [7 · entries + 6 · relation entries]
    Objective objective;
    float auxiliary_weight;
    int32_t query_operation, similarity, threads;
    int32_t groups;                         // groups of positives, each with its own pool gradient; at most PARTS
    int32_t sum_relations;                  // whether relation_gradient is [PARTS · relations + auxiliary, width]
    Optimizer optimizer;
};

namespace {

template <class Work>
void with_similarity(int similarity, Work work) {
    if (similarity == DOT) return work.template operator()<DOT>();
    if (similarity == L1) return work.template operator()<L1>();
    work.template operator()<L2>();
}

// The embedding rows of a triple; `inverse` is the relation of the query for heads.
struct TripleRows {
    const float *head, *relation, *inverse, *tail;
};

TripleRows rows_of(const Step& s, int64_t b) {
    const int64_t width = s.entities.width;
    const float* relation = s.relations.values + s.relation[b] * s.relations.width;
    return {s.entities.values + s.head[b] * width, relation, relation + s.inverse_offset * s.relations.width,
            s.entities.values + s.tail[b] * width};
}

// A few columns of a row, held in registers.
template <int columns>
struct Strip {
    static_assert(columns % 8 == 0);
    Lanes lanes[columns / 16];
    Half half;

    // Calls work(register, column) for each register.
    template <class Work>
    INLINE void each(Work work) {
        for (int64_t v = 0; v < columns / 16; ++v) work(lanes[v], 16 * v);
        if (columns % 16) work(half, columns - 8);
    }
    INLINE void load_from(const float* from) {
        each([&](auto& x, int64_t j) INLINE_LAMBDA { x = load<std::decay_t<decltype(x)>>(from + j); });
    }
    INLINE void store_to(float* to) {
        each([&](auto& x, int64_t j) INLINE_LAMBDA { store(to + j, x); });
    }
    INLINE void add(const float* from) {
        each([&](auto& x, int64_t j) INLINE_LAMBDA { x += load<std::decay_t<decltype(x)>>(from + j); });
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

// Writes a row as row `index` of an array [blocks, rows, columns]. `update` reads these rows in the order of entities,
// one block of columns after the other, so that each block stays in the private cache of a core.
void store_blocked(const Step& s, float* blocks, int64_t rows, int64_t index, const float* row) {
    with_columns(s.block_columns, [&]<int columns>() {
        const int64_t width = s.entities.width;
        float* block = blocks + index * columns;
        int64_t from = 0;
        for (; from + columns <= width; from += columns, block += rows * columns) {
            Strip<columns> strip;
            strip.load_from(row + from);
            strip.store_to(block);
        }
        if (from < width) std::fill(std::copy(row + from, row + width, block), block + columns, 0.0f);
    });
}

// If there are few relations, each has many positives: their gradients are then summed immediately, separately for each
// of PARTS parts of the batch. One thread computes a part, so the order of the sums does not depend on the number of
// threads.
int64_t batch_part(const Step& s, int64_t b) { return b * PARTS / s.positives; }

// Returns the row of relation_gradient for a triple whose gradient is not summed immediately; the rows of auxiliary
// triples follow the sums.
int64_t relation_gradient_row(const Step& s, int64_t b) {
    return s.sum_relations ? PARTS * s.relations.rows + b - s.positives : b;
}

// Returns the first positive of part `share` of `shares`, for threads or for groups of positives.
int64_t first_positive(const Step& s, int share, int shares) {
    return (share_start(PARTS, share, shares) * s.positives + PARTS - 1) / PARTS;
}

void clear_relation_sums(const Step& s, int share, int shares) {
    const int64_t size = s.relations.rows * s.relations.width;
    if (s.sum_relations)
        std::fill(s.relation_gradient + share_start(PARTS, share, shares) * size,
                  s.relation_gradient + share_start(PARTS, share + 1, shares) * size, 0.0f);
}

INLINE void compute_query(const Step& s, int64_t b, const TripleRows& at, bool predicts_tail, float* query) {
    const int64_t width = s.entities.width;
    if (s.query_operation == PRECOMPUTED)
        std::copy_n(s.precomputed_queries + (predicts_tail ? b : s.positives + s.auxiliary + b) * width, width, query);
    else
        make_query(s.query_operation, predicts_tail || s.inverse_offset, predicts_tail ? at.head : at.tail,
                   predicts_tail ? at.relation : at.inverse, query, width);
}

// One predicted side of a triple: its query, the gradient of the query, and dL / d raw score of the triple on this
// side.
struct QuerySide {
    const float* query;
    float* gradient;
    float slope;
};

// Writes the gradients of precomputed queries and of the compared entities; Python backpropagates through the queries.
template <int similarity>
void write_query_gradients(const Step& s, int64_t b, const TripleRows& at, const QuerySide& for_tail,
                           const QuerySide& for_head, const float* tail_gradient) {
    const int64_t width = s.entities.width, triples = s.positives + s.auxiliary;
    float* head_gradient = s.entity_gradient + b * width;
    std::copy_n(tail_gradient, width, s.entity_gradient + (triples + b) * width);
    std::copy_n(for_tail.gradient, width, s.query_gradient + b * width);
    if (s.inverse_offset && for_head.query) {
        const float slope = divide_by_distance<similarity>(for_head.slope, s.raw_score[triples + b]);
        add_similarity_gradient<similarity>(slope, at.head, for_head.query, for_head.gradient, width);
        add_similarity_gradient<similarity, true>(slope, for_head.query, at.head, head_gradient, width);
    } else {
        std::fill_n(head_gradient, width, 0.0f);
    }
    if (for_head.query) std::copy_n(for_head.gradient, width, s.query_gradient + (triples + b) * width);
}

// Backpropagates the gradients of both queries and of the triple's raw score to the rows of head, relation and tail.
// `workspace` holds two rows. Auxiliary triples have no head query.
template <int similarity>
INLINE void backpropagate_triple(const Step& s, int64_t b, const TripleRows& at, const QuerySide& for_tail,
                                 const QuerySide& for_head, float* workspace) {
    const int64_t width = s.entities.width, triples = s.positives + s.auxiliary;
    const bool sum = s.sum_relations && b < s.positives;
    float *head_gradient = workspace, *tail_gradient = workspace + width;
    const float slope = divide_by_distance<similarity>(for_tail.slope, s.raw_score[b]);
    add_similarity_gradient<similarity>(slope, at.tail, for_tail.query, for_tail.gradient, width);
    add_similarity_gradient<similarity, true>(slope, for_tail.query, at.tail, tail_gradient, width);
    const int operation = s.query_operation;
    if (operation == PRECOMPUTED) return write_query_gradients<similarity>(s, b, at, for_tail, for_head, tail_gradient);
    const int64_t row = sum ? batch_part(s, b) * s.relations.rows + s.relation[b] : relation_gradient_row(s, b);
    float* relation_gradient = s.relation_gradient + row * width;
    if (sum)
        backpropagate_query<true, false>(operation, true, at.head, at.relation, for_tail.gradient, head_gradient,
                                         relation_gradient, width);
    else
        backpropagate_query<true, true>(operation, true, at.head, at.relation, for_tail.gradient, head_gradient,
                                        relation_gradient, width);
    if (for_head.query && !s.inverse_offset)
        backpropagate_query<false, false>(operation, false, at.tail, at.relation, for_head.gradient, tail_gradient,
                                          relation_gradient, width);
    if (for_head.query && s.inverse_offset) {
        const float other = divide_by_distance<similarity>(for_head.slope, s.raw_score[triples + b]);
        add_similarity_gradient<similarity>(other, at.head, for_head.query, for_head.gradient, width);
        add_similarity_gradient<similarity>(other, for_head.query, at.head, head_gradient, width);
        float* inverse_gradient = sum ? relation_gradient + s.inverse_offset * width
                                      : s.relation_gradient + (triples + b) * width;
        if (sum)
            backpropagate_query<false, false>(operation, true, at.tail, at.inverse, for_head.gradient, tail_gradient,
                                              inverse_gradient, width);
        else
            backpropagate_query<false, true>(operation, true, at.tail, at.inverse, for_head.gradient, tail_gradient,
                                             inverse_gradient, width);
    }
    store_blocked(s, s.entity_gradient, 2 * triples, b, head_gradient);
    store_blocked(s, s.entity_gradient, 2 * triples, triples + b, tail_gradient);
}

}  // namespace
