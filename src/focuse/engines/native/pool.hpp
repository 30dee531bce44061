// The first walk where a batch shares its corruptions: blocks of positives against all of a pool, the objective between
// the products forth and back. A block's scores stay in a core's own cache, and none outlives its block.
#pragma once

#include "products.hpp"
#include "step.hpp"

// What replaces one side of every positive, as engines/cpu.py fills it.
struct Pool {
    const int64_t* entities;                // [size], or null for every entity
    int64_t size;
    const int64_t* target;                  // [positives]: the entity that does not count, or null
    const uint8_t* mask;                    // [positives, size] or null: 0 where a corruption does not count
    const int64_t *fact_rows, *facts;       // pairs (positive, entity) that do not count, by positive
    int64_t known;
    float* gradient;                        // [size, width]
    int32_t tails, shares;                  // which side; whether its rows are those of the pool before
};

namespace {

constexpr int64_t BLOCK_ROWS = 192;         // positives at once: a panel of their queries fits the innermost cache
constexpr int64_t BLOCK_SCORES = 1 << 20;   // scores that a thread holds, at most: 4 MB

// Where everything lies in the room that Python gives: the pools' rows, packed and plain, their gradients for each group
// of positives, then what each thread needs.
struct Plan {
    int64_t stride, rows, columns, piece, packed, of_pools, thread;
    Plan(const Step& s, const Pool* pools, int64_t count) {
        int64_t largest = 0, all = 0;
        for (int64_t p = 0; p < count; ++p) {
            largest = std::max(largest, pools[p].size);
            if (!pools[p].shares) all += up_to(pools[p].size, PANEL);
        }
        stride = up_to(s.entity.width, 16);
        piece = up_to(s.piece, PANEL);
        columns = up_to(std::min(largest, piece), PANEL);
        rows = std::clamp<int64_t>(BLOCK_SCORES / std::max<int64_t>(columns, 1) / 8 * 8, 8, BLOCK_ROWS);
        packed = all * s.entity.width;
        of_pools = all * stride;
        thread = rows * columns * (s.form == L2 ? 2 : 1) + 4 * rows * stride + 2 * stride;
    }
    int64_t size(const Step& s) const { return packed + (1 + s.groups) * of_pools + s.threads * thread; }
};

// A pool's rows: in panels [width, PANEL] for the products forth, whole [size, stride] for those back.
struct Packed {
    float *panels, *rows;
};

void pack(const Step& s, const Pool& pool, const Packed& to, int64_t stride, int thread) {
    const int64_t width = s.entity.width, panels = up_to(pool.size, PANEL) / PANEL;
    const int64_t end = part(panels, thread + 1, s.threads);
    for (int64_t p = part(panels, thread, s.threads); p < end; ++p)
        for (int64_t c = 0; c < PANEL; ++c) {
            const int64_t column = p * PANEL + c;
            float *panel = to.panels + p * width * PANEL + c, *row = to.rows + column * stride;
            std::fill_n(row, stride, 0.0f);
            if (column < pool.size) {
                const int64_t id = pool.entities ? pool.entities[column] : column;
                std::copy_n(s.entity.values + id * width, width, row);
            }
            for (int64_t j = 0; j < width; ++j) panel[j * PANEL] = row[j];
        }
}

// A thread's own memory.
struct PoolRoom {
    float *scores, *distances, *queries, *gradients, *ends;
    std::vector<Row> states;
    std::vector<float> of_positive;  // for tails, then for heads
    PoolRoom(const Plan& plan, int form, float* at)
        : scores(at), distances(form == L2 ? scores + plan.rows * plan.columns : nullptr),
          queries(scores + plan.rows * plan.columns * (form == L2 ? 2 : 1)),
          gradients(queries + 2 * plan.rows * plan.stride), ends(gradients + 2 * plan.rows * plan.stride),
          states(plan.rows), of_positive(2 * plan.rows) {}
};

// Positives [first, first + rows) against columns [from, from + columns) of a pool.
struct Piece {
    int64_t first, rows, from, columns;
};

void hide(const Pool& pool, const Piece& at, int64_t row, float* x) {
    const int64_t b = at.first + row;
    if (pool.target && !pool.entities) {
        const int64_t place = pool.target[b] - at.from;
        if (place >= 0 && place < at.columns) x[place] = HIDDEN;
    } else if (pool.target) {
        const int64_t target = pool.target[b], *entities = pool.entities + at.from;
#pragma omp simd
        for (int64_t j = 0; j < at.columns; ++j) x[j] = entities[j] == target ? HIDDEN : x[j];
    }
    if (pool.mask) {
        const uint8_t* mask = pool.mask + b * pool.size + at.from;
#pragma omp simd
        for (int64_t j = 0; j < at.columns; ++j) x[j] = mask[j] ? x[j] : HIDDEN;
    }
    if (!pool.known) return;
    const int64_t* end = pool.fact_rows + pool.known;
    for (const int64_t* r = std::lower_bound(pool.fact_rows, end, b); r < end && *r == b; ++r) {
        const int64_t place = pool.facts[r - pool.fact_rows] - at.from;
        if (place >= 0 && place < at.columns) x[place] = HIDDEN;
    }
}

// One pool against a block of positives: comparisons, objective, gradients of the queries and of the pool's rows.
template <int form>
struct PoolBlock {
    const Step& s;
    const Stages& stages;
    const Plan& plan;
    const Pool& pool;
    const Packed& packed;
    PoolRoom& room;
    const float *queries, *positives;  // positives: their comparisons, as this side finds them
    float *gradients, *of_positive, *of_pool;

    void compare(const Piece& at) {
        const int64_t width = s.entity.width, row = plan.columns;
        const int64_t panels = up_to(at.columns, PANEL) / PANEL;
        forth<form>(queries, plan.stride, at.rows, packed.panels + at.from * width, panels, width, room.scores, row);
        if (form == DOT) return;
        for (int64_t i = 0; i < at.rows; ++i)
            for (int64_t j = 0; j < at.columns; ++j) {
                float& x = room.scores[i * row + j];
                x = comparison_of<form>(x);
                if (form == L2) room.distances[i * row + j] = x;
            }
    }

    // `judge` or one of its halves on each row, then back.
    void judge(const Piece& at, bool whole, bool last) {
        for (int64_t i = 0; i < at.rows; ++i) {
            const int64_t b = at.first + i;
            float* x = room.scores + i * plan.columns;
            Row& state = room.states[i];
            hide(pool, at, i, x);
            if (whole) {
                state = stages.begin(s.objective, positives[b], s.weight[b]);
                stages.judge(s.objective, state, x, at.columns);
            } else {
                stages.slopes(s.objective, state, x, at.columns);
            }
            if (form == L2)
                for (int64_t j = 0; j < at.columns; ++j)
                    x[j] = by_distance<form>(x[j], room.distances[i * plan.columns + j]);
            if (last) finish(b, i);
        }
        const int64_t stride = plan.stride, place = at.from * stride;
        const Matrix<false> slopes{room.scores, plan.columns};
        const Matrix<true> turned{room.scores, plan.columns};
        const float* rows = packed.rows + place;
        back<form>(slopes, rows, queries, stride, at.rows, at.columns, gradients);
        back<form>(turned, queries, rows, stride, at.columns, at.rows, of_pool + place);
    }

    void measure(const Piece& at) {
        for (int64_t i = 0; i < at.rows; ++i) {
            const int64_t b = at.first + i;
            float* x = room.scores + i * plan.columns;
            hide(pool, at, i, x);
            if (at.from == 0) room.states[i] = stages.begin(s.objective, positives[b], s.weight[b]);
            stages.measure(s.objective, room.states[i], x, at.columns);
        }
    }

    void finish(int64_t b, int64_t i) {
        Row& state = room.states[i];
        of_positive[i] += stages.finish(s.objective, state, positives[b], s.weight[b]);
        s.loss[b] += state.loss;
        s.of_scale[2 * b] += state.of_slope;
        s.of_scale[2 * b + 1] += state.of_offset;
    }

    void run(int64_t first, int64_t rows) {
        const int64_t step = plan.piece;
        const bool whole = pool.size <= step;
        auto at = [&](int64_t from) { return Piece{first, rows, from, std::min(pool.size - from, step)}; };
        for (int64_t from = 0; !whole && from < pool.size; from += step) {
            compare(at(from));
            measure(at(from));
        }
        for (int64_t from = 0; from < pool.size; from += step) {
            compare(at(from));
            judge(at(from), whole, from + step >= pool.size);
        }
    }
};

// Queries of a block of positives, both sides; comparisons and losses begin.
template <int form>
void ask(const Step& s, const Plan& plan, PoolRoom& room, int64_t first, int64_t rows) {
    const int64_t width = s.entity.width, stride = plan.stride;
    std::fill_n(room.queries, 4 * plan.rows * stride, 0.0f);  // and their gradients, which lie behind
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t b = first + i;
        const Triple at = triple(s, b);
        float *for_tails = room.queries + i * stride, *for_heads = for_tails + plan.rows * stride;
        query_of(s, b, at, true, for_tails);
        query_of(s, b, at, false, for_heads);
        s.comparison[b] = compare<form>(for_tails, at.tail, width);
        if (s.sided) s.comparison[s.positives + s.hints + b] = compare<form>(for_heads, at.head, width);
        s.loss[b] = 0.0;
        s.of_scale[2 * b] = s.of_scale[2 * b + 1] = 0.0f;
        room.of_positive[i] = room.of_positive[plan.rows + i] = 0.0f;
    }
}

// One group of positives against all pools, whose gradients it sums in `of_pools`.
template <int form>
void walk_pools(const Step& s, const Pool* pools, int64_t count, const Plan& plan, const Packed* packed, PoolRoom& room,
                float* of_pools, int group) {
    const Stages stages = stages_of(s.objective);
    const int64_t stride = plan.stride, begin = first_of(s, group, s.groups), end = first_of(s, group + 1, s.groups);
    const int64_t blocks = (end - begin + plan.rows - 1) / plan.rows;
    std::fill_n(of_pools, plan.of_pools, 0.0f);
    clear_sums(s, group, s.groups);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = begin + part(end - begin, block, blocks);
        const int64_t rows = begin + part(end - begin, block + 1, blocks) - first;
        ask<form>(s, plan, room, first, rows);
        for (int64_t p = 0; p < count; ++p) {
            const int64_t side = pools[p].tails ? 0 : plan.rows * stride;
            const bool other = s.sided && !pools[p].tails;  // held against the positive's other score
            PoolBlock<form>{s, stages, plan, pools[p], packed[p], room, room.queries + side,
                            s.comparison + (other ? s.positives + s.hints : 0), room.gradients + side,
                            room.of_positive.data() + (other ? plan.rows : 0),
                            of_pools + (packed[p].rows - packed[0].rows)}
                .run(first, rows);
        }
        auto asked = [&](int64_t i) {
            return Asked{room.queries + i * stride, room.gradients + i * stride, room.of_positive[i]};
        };
        for (int64_t i = 0; i < rows; ++i)
            settle<form>(s, first + i, triple(s, first + i), asked(i), asked(plan.rows + i), room.ends);
    }
}

// The groups' sums, in their order.
void sum_pools(const Step& s, const Pool& pool, const Plan& plan, const float* first, int thread) {
    const int64_t width = s.entity.width, end = part(pool.size, thread + 1, s.threads);
    for (int64_t row = part(pool.size, thread, s.threads); row < end; ++row) {
        float* to = pool.gradient + row * width;
        const float* from = first + row * plan.stride;
        std::copy_n(from, width, to);
        for (int group = 1; group < s.groups; ++group)
#pragma omp simd
            for (int64_t j = 0; j < width; ++j) to[j] += from[group * plan.of_pools + j];
    }
}

}  // namespace
