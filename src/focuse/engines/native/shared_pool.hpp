// Scores, losses and gradients of positives with shared negatives. A block of positives is scored against a whole pool
// by a matrix product, the objective turns the scores into gradients, and further matrix products give the gradients of
// the rows. The scores of a block stay in the private cache of a core and are discarded after the block.
#pragma once

#include "gemm.hpp"
#include "step.hpp"

// The entities that replace one side of every positive. The fields have the same order as in native/__init__.py.
struct SharedPool {
    const int64_t* entities;        // [size], or null for every entity
    int64_t size;
    const int64_t* target;          // [positives] or null: the entity of the positive itself, which does not count
    const uint8_t* mask;            // [positives, size] or null: 0 where a negative does not count
    const int64_t* known_rows;      // [known_count], ascending: positives; with known_entities, the pairs that are
    const int64_t* known_entities;  // [known_count]: known triples, which do not count
    int64_t known_count;
    float* gradient;                // [size, width]
    int32_t replaces_tail, same_as_previous;  // same_as_previous: whether it has the rows of the previous pool
};

namespace {

constexpr int64_t BLOCK_ROWS = 192;        // positives per block; a panel of their queries fits into the L1 cache
constexpr int64_t BLOCK_SCORES = 1 << 20;  // maximum number of scores per thread, 4 MB

// The layout of the workspace that Python allocates: the rows of the pools, packed and plain, their gradients per group
// of positives, then the memory of each thread. Sizes are in floats.
struct PoolLayout {
    int64_t stride, rows, columns, piece, packed, pool_gradients, thread;
    PoolLayout(const Step& s, const SharedPool* pools, int64_t count) {
        int64_t largest = 0, total = 0;
        for (int64_t p = 0; p < count; ++p) {
            largest = std::max(largest, pools[p].size);
            if (!pools[p].same_as_previous) total += round_up(pools[p].size, PANEL);
        }
        stride = round_up(s.entities.width, 16);
        piece = round_up(s.pool_piece, PANEL);
        columns = round_up(std::min(largest, piece), PANEL);
        rows = std::clamp<int64_t>(BLOCK_SCORES / std::max<int64_t>(columns, 1) / 8 * 8, 8, BLOCK_ROWS);
        packed = total * s.entities.width;
        pool_gradients = total * stride;
        thread = rows * columns * (s.similarity == L2 ? 2 : 1) + 4 * rows * stride + 2 * stride;
    }
    int64_t size(const Step& s) const { return packed + (1 + s.groups) * pool_gradients + s.threads * thread; }
};

// The rows of a pool, in panels [width, PANEL] for the scores and row by row [size, stride] for the gradients.
struct PackedPool {
    float *panels, *rows;
};

void pack(const Step& s, const SharedPool& pool, const PackedPool& to, int64_t stride, int thread) {
    const int64_t width = s.entities.width, panels = round_up(pool.size, PANEL) / PANEL;
    const int64_t end = share_start(panels, thread + 1, s.threads);
    for (int64_t p = share_start(panels, thread, s.threads); p < end; ++p)
        for (int64_t c = 0; c < PANEL; ++c) {
            const int64_t column = p * PANEL + c;
            float *panel = to.panels + p * width * PANEL + c, *row = to.rows + column * stride;
            std::fill_n(row, stride, 0.0f);
            if (column < pool.size) {
                const int64_t id = pool.entities ? pool.entities[column] : column;
                std::copy_n(s.entities.values + id * width, width, row);
            }
            for (int64_t j = 0; j < width; ++j) panel[j * PANEL] = row[j];
        }
}

// Memory of one thread.
struct PoolWorkspace {
    float *scores, *distances, *queries, *gradients, *row_gradients;
    std::vector<RowState> states;
    std::vector<float> positive_gradient;  // for tails, then for heads
    PoolWorkspace(const PoolLayout& layout, int similarity, float* at)
        : scores(at), distances(similarity == L2 ? scores + layout.rows * layout.columns : nullptr),
          queries(scores + layout.rows * layout.columns * (similarity == L2 ? 2 : 1)),
          gradients(queries + 2 * layout.rows * layout.stride),
          row_gradients(gradients + 2 * layout.rows * layout.stride), states(layout.rows),
          positive_gradient(2 * layout.rows) {}
};

// The scores of positives [first, first + rows) against columns [from, from + columns) of a pool.
struct Piece {
    int64_t first, rows, from, columns;
};

void mask_scores(const SharedPool& pool, const Piece& at, int64_t row, float* x) {
    const int64_t b = at.first + row;
    if (pool.target && !pool.entities) {
        const int64_t column = pool.target[b] - at.from;
        if (column >= 0 && column < at.columns) x[column] = MASKED;
    } else if (pool.target) {
        const int64_t target = pool.target[b], *entities = pool.entities + at.from;
#pragma omp simd
        for (int64_t j = 0; j < at.columns; ++j) x[j] = entities[j] == target ? MASKED : x[j];
    }
    if (pool.mask) {
        const uint8_t* mask = pool.mask + b * pool.size + at.from;
#pragma omp simd
        for (int64_t j = 0; j < at.columns; ++j) x[j] = mask[j] ? x[j] : MASKED;
    }
    if (!pool.known_count) return;
    const int64_t* end = pool.known_rows + pool.known_count;
    for (const int64_t* r = std::lower_bound(pool.known_rows, end, b); r < end && *r == b; ++r) {
        const int64_t column = pool.known_entities[r - pool.known_rows] - at.from;
        if (column >= 0 && column < at.columns) x[column] = MASKED;
    }
}

// Computes the scores of a block of positives against one pool, the objective, and the gradients of the queries and of
// the rows of the pool.
template <int similarity>
struct PoolBlock {
    const Step& s;
    const ObjectiveFunctions& functions;
    const PoolLayout& layout;
    const SharedPool& pool;
    const PackedPool& packed;
    PoolWorkspace& workspace;
    const float *queries, *positives;  // positives: raw scores of the triples as answers on the side of this pool
    float *gradients, *positive_gradient, *pool_gradient;

    void compute_scores(const Piece& at) {
        const int64_t width = s.entities.width, row = layout.columns;
        const int64_t panels = round_up(at.columns, PANEL) / PANEL;
        similarity_matrix<similarity>(queries, layout.stride, at.rows, packed.panels + at.from * width, panels, width,
                                      workspace.scores, row);
        if (similarity == DOT) return;
        for (int64_t i = 0; i < at.rows; ++i)
            for (int64_t j = 0; j < at.columns; ++j) {
                float& x = workspace.scores[i * row + j];
                x = similarity_of_sum<similarity>(x);
                if (similarity == L2) workspace.distances[i * row + j] = x;
            }
    }

    void accumulate_softmax(const Piece& at) {
        for (int64_t i = 0; i < at.rows; ++i) {
            const int64_t b = at.first + i;
            float* x = workspace.scores + i * layout.columns;
            mask_scores(pool, at, i, x);
            if (at.from == 0) workspace.states[i] = functions.begin_row(s.objective, positives[b], s.weight[b]);
            functions.accumulate_softmax(s.objective, workspace.states[i], x, at.columns);
        }
    }

    // Replaces the scores by their gradients, and accumulates the gradients of the queries and of the rows of the pool.
    void differentiate(const Piece& at, bool whole, bool last) {
        for (int64_t i = 0; i < at.rows; ++i) {
            const int64_t b = at.first + i;
            float* x = workspace.scores + i * layout.columns;
            RowState& state = workspace.states[i];
            mask_scores(pool, at, i, x);
            if (whole) {
                state = functions.begin_row(s.objective, positives[b], s.weight[b]);
                functions.loss_and_gradient(s.objective, state, x, at.columns);
            } else {
                functions.differentiate(s.objective, state, x, at.columns);
            }
            if (similarity == L2)
                for (int64_t j = 0; j < at.columns; ++j)
                    x[j] = divide_by_distance<similarity>(x[j], workspace.distances[i * layout.columns + j]);
            if (last) finish_row(b, i);
        }
        const int64_t stride = layout.stride, offset = at.from * stride;
        const Matrix<false> slopes{workspace.scores, layout.columns};
        const Matrix<true> transposed{workspace.scores, layout.columns};
        const float* rows = packed.rows + offset;
        gradient_matrix<similarity>(slopes, rows, queries, stride, at.rows, at.columns, gradients);
        gradient_matrix<similarity>(transposed, queries, rows, stride, at.columns, at.rows, pool_gradient + offset);
    }

    void finish_row(int64_t b, int64_t i) {
        RowState& state = workspace.states[i];
        positive_gradient[i] += functions.finish_row(s.objective, state, positives[b], s.weight[b]);
        s.loss[b] += state.loss;
        s.scale_gradient[2 * b] += state.gain_gradient;
        s.scale_gradient[2 * b + 1] += state.offset_gradient;
    }

    void run(int64_t first, int64_t rows) {
        const int64_t step = layout.piece;
        const bool whole = pool.size <= step;
        auto at = [&](int64_t from) { return Piece{first, rows, from, std::min(pool.size - from, step)}; };
        for (int64_t from = 0; !whole && from < pool.size; from += step) {
            compute_scores(at(from));
            accumulate_softmax(at(from));
        }
        for (int64_t from = 0; from < pool.size; from += step) {
            compute_scores(at(from));
            differentiate(at(from), whole, from + step >= pool.size);
        }
    }
};

// Computes the queries and raw scores of a block of positives, and sets their losses and gradients to 0.
template <int similarity>
void begin_block(const Step& s, const PoolLayout& layout, PoolWorkspace& workspace, int64_t first, int64_t rows) {
    const int64_t width = s.entities.width, stride = layout.stride;
    std::fill_n(workspace.queries, 4 * layout.rows * stride, 0.0f);  // their gradients follow the queries in memory
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t b = first + i;
        const TripleRows at = rows_of(s, b);
        float *tail_query = workspace.queries + i * stride, *head_query = tail_query + layout.rows * stride;
        compute_query(s, b, at, true, tail_query);
        compute_query(s, b, at, false, head_query);
        s.raw_score[b] = similarity_of<similarity>(tail_query, at.tail, width);
        if (s.inverse_offset)
            s.raw_score[s.positives + s.auxiliary + b] = similarity_of<similarity>(head_query, at.head, width);
        s.loss[b] = 0.0;
        s.scale_gradient[2 * b] = s.scale_gradient[2 * b + 1] = 0.0f;
        workspace.positive_gradient[i] = workspace.positive_gradient[layout.rows + i] = 0.0f;
    }
}

// Computes the losses and gradients of one group of positives against all pools; `pool_gradients` receives the sums of
// the gradients of the pools.
template <int similarity>
void differentiate_group(const Step& s, const SharedPool* pools, int64_t count, const PoolLayout& layout,
                         const PackedPool* packed, PoolWorkspace& workspace, float* pool_gradients, int group) {
    const ObjectiveFunctions functions = objective_functions(s.objective);
    const int64_t stride = layout.stride;
    const int64_t begin = first_positive(s, group, s.groups), end = first_positive(s, group + 1, s.groups);
    const int64_t blocks = (end - begin + layout.rows - 1) / layout.rows;
    std::fill_n(pool_gradients, layout.pool_gradients, 0.0f);
    clear_relation_sums(s, group, s.groups);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = begin + share_start(end - begin, block, blocks);
        const int64_t rows = begin + share_start(end - begin, block + 1, blocks) - first;
        begin_block<similarity>(s, layout, workspace, first, rows);
        for (int64_t p = 0; p < count; ++p) {
            const int64_t side = pools[p].replaces_tail ? 0 : layout.rows * stride;
            const bool other = s.inverse_offset && !pools[p].replaces_tail;  // use the score of the inverse relation
            PoolBlock<similarity>{s, functions, layout, pools[p], packed[p], workspace, workspace.queries + side,
                                  s.raw_score + (other ? s.positives + s.auxiliary : 0), workspace.gradients + side,
                                  workspace.positive_gradient.data() + (other ? layout.rows : 0),
                                  pool_gradients + (packed[p].rows - packed[0].rows)}
                .run(first, rows);
        }
        auto side = [&](int64_t i) {
            return QuerySide{workspace.queries + i * stride, workspace.gradients + i * stride,
                             workspace.positive_gradient[i]};
        };
        for (int64_t i = 0; i < rows; ++i)
            backpropagate_triple<similarity>(s, first + i, rows_of(s, first + i), side(i), side(layout.rows + i),
                                             workspace.row_gradients);
    }
}

// Adds up the gradients of a pool over all groups, always in the same order.
void sum_groups(const Step& s, const SharedPool& pool, const PoolLayout& layout, const float* first, int thread) {
    const int64_t width = s.entities.width, end = share_start(pool.size, thread + 1, s.threads);
    for (int64_t row = share_start(pool.size, thread, s.threads); row < end; ++row) {
        float* to = pool.gradient + row * width;
        const float* from = first + row * layout.stride;
        std::copy_n(from, width, to);
        for (int group = 1; group < s.groups; ++group)
#pragma omp simd
            for (int64_t j = 0; j < width; ++j) to[j] += from[group * layout.pool_gradients + j];
    }
}

}  // namespace
