// One training step in few calls: `own_corruptions` or (`queries`, `pool_judge` a block, `positives`), then `update`. No array of positives × corruptions × width is ever made, and every sum runs in an order that does not
// depend on the number of threads: the same seed gives the same bits.

#include <barrier>

#include "own.hpp"
#include "step.hpp"
#include "update.hpp"

EXPORT int64_t size_of_step() { return sizeof(Step); }

// Entities and sides of corruptions: number i is the i-th output of SplitMix64 from `key`, as negatives.py has it.
EXPORT void draw_corruptions(uint64_t key, int64_t count, uint64_t below, int64_t* entities, uint8_t* tails) {
    for (int64_t i = 0; i < count; ++i) {
        uint64_t bits = key + static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
        bits ^= bits >> 31;
        const uint64_t both = ((bits >> 33) * below) >> 31;
        entities[i] = both >> 1;
        tails[i] = both & 1;
    }
}

// Everything about each positive's own corruptions, up to the gradients that `update` gathers.
EXPORT void own_corruptions(const Step* step) {
    const Step& s = *step;
    const Stages stages = stages_of(s.objective);
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            Room room(s.entity.width, s.count);
            clear_sums(s, thread);
            const int64_t end = first_of(s, thread + 1);
            for (int64_t b = first_of(s, thread); b < end; ++b) own<form>(s, stages, b, room);
        });
    });
}

// Both queries and the comparison of each positive, for a pool that all share.
EXPORT void queries(const Step* step) {
    const Step& s = *step;
    const int64_t width = s.entity.width;
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            const int64_t end = part(s.positives, thread + 1, s.threads);
            for (int64_t b = part(s.positives, thread, s.threads); b < end; ++b) {
                const Triple at = triple(s, b);
                ask(s, b, at);
                s.comparison[b] = compare<form>(s.query + b * width, at.tail, width);
                s.loss[b] = 0.0;
                s.of_positive[b] = s.of_scale[2 * b] = s.of_scale[2 * b + 1] = 0.0f;
            }
        });
    });
}

// A block of comparisons [rows, columns] of the positives from `first` on with the pool's columns from `from` on.
struct Block {
    float* values;
    int64_t first, rows, from, columns;
    const int32_t* ids;       // [columns], or null: column j is entity from + j
    const int64_t* target;    // [positives]: the entity that does not count, or null
    const uint8_t* mask;      // [positives, mask_columns] or null
    int64_t mask_columns;
    Row* states;              // [positives]
    int32_t begins, ends;     // whether this is a row's first or last piece
};

EXPORT int64_t size_of_block() { return sizeof(Block); }
EXPORT int64_t size_of_row() { return sizeof(Row); }

namespace {

void hide(const Block& k, int64_t row, float* x) {
    const int64_t b = k.first + row;
    if (k.target && !k.ids) {
        const int64_t place = k.target[b] - k.from;
        if (place >= 0 && place < k.columns) x[place] = HIDDEN;
    } else if (k.target) {
        const int32_t target = k.target[b];
#pragma omp simd
        for (int64_t j = 0; j < k.columns; ++j) x[j] = k.ids[j] == target ? HIDDEN : x[j];
    }
    if (k.mask) {
        const uint8_t* mask = k.mask + b * k.mask_columns + k.from;
#pragma omp simd
        for (int64_t j = 0; j < k.columns; ++j) x[j] = mask[j] ? x[j] : HIDDEN;
    }
}

template <class Work>
void each_row(const Step& s, const Block& k, Work work) {
    in_parallel(s.threads, [&](int thread) {
        const int64_t end = part(k.rows, thread + 1, s.threads);
        for (int64_t row = part(k.rows, thread, s.threads); row < end; ++row) work(row, k.values + row * k.columns);
    });
}

void finish_row(const Step& s, const Block& k, const Stages& stages, int64_t b) {
    Row& state = k.states[b];
    s.of_positive[b] += stages.finish(s.objective, state, s.comparison[b], s.weight[b]);
    s.loss[b] += state.loss;
    s.of_scale[2 * b] += state.of_slope;
    s.of_scale[2 * b + 1] += state.of_offset;
}

}  // namespace

// All of a pool in one block: comparisons become slopes.
EXPORT void pool_judge(const Step* step, const Block* block) {
    const Step& s = *step;
    const Stages stages = stages_of(s.objective);
    each_row(s, *block, [&](int64_t row, float* x) {
        const int64_t b = block->first + row;
        hide(*block, row, x);
        block->states[b] = stages.begin(s.objective, s.comparison[b], s.weight[b]);
        stages.judge(s.objective, block->states[b], x, block->columns);
        finish_row(s, *block, stages, b);
    });
}

// A piece of a pool too large for one block, met for the first time,
EXPORT void pool_measure(const Step* step, const Block* block) {
    const Step& s = *step;
    const Stages stages = stages_of(s.objective);
    each_row(s, *block, [&](int64_t row, float* x) {
        const int64_t b = block->first + row;
        hide(*block, row, x);
        if (block->begins) block->states[b] = stages.begin(s.objective, s.comparison[b], s.weight[b]);
        stages.measure(s.objective, block->states[b], x, block->columns);
    });
}

// and, computed again, for the second.
EXPORT void pool_slopes(const Step* step, const Block* block) {
    const Step& s = *step;
    const Stages stages = stages_of(s.objective);
    each_row(s, *block, [&](int64_t row, float* x) {
        const int64_t b = block->first + row;
        hide(*block, row, x);
        stages.slopes(s.objective, block->states[b], x, block->columns);
        if (block->ends) finish_row(s, *block, stages, b);
    });
}

// From the queries' gradients to those of heads, relations and tails.
EXPORT void positives(const Step* step) {
    const Step& s = *step;
    const int64_t width = s.entity.width;
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            const int64_t end = first_of(s, thread + 1);
            std::vector<float> room(2 * width);
            clear_sums(s, thread);
            for (int64_t b = first_of(s, thread); b < end; ++b)
                settle<form>(s, b, triple(s, b), s.of_positive[b], s.query + b * width, s.query_gradient + b * width,
                             s.query_gradient + (s.positives + b) * width, room.data());
        });
    });
}

// What rules infer: few triples, one thread.
EXPORT void hints(const Step* step) {
    const Step& s = *step;
    const int64_t width = s.entity.width;
    const Stages stages = stages_of(s.objective);
    std::vector<float> room(4 * width);
    with_form(s.form, [&]<int form>() {
        for (int64_t b = s.positives; b < s.positives + s.hints; ++b) hint<form>(s, stages, b, room.data());
    });
}

// Gradients gathered row by row, and the optimiser's step on each: there is no table of gradients.
EXPORT void update(const Step* step) {
    const Step& s = *step;
    const Entities entities(s);
    const int64_t entries = entities.size(), all = s.positives + s.hints;
    std::barrier<> together(s.threads);
    Sorter<Entities> by_entity(entities, entries, s.entity.rows, s.threads, s.sorted);
    const Sorted sorted{s.sorted + 4 * entries, reinterpret_cast<Pull*>(s.sorted + 5 * entries)};
    Kinds kinds{s.kind};
    uint32_t* room = s.sorted + 7 * entries;
    Sorter<Kinds> by_relation(kinds, all, s.relation.rows, s.threads, room);
    uint32_t *kind_ids = room + 4 * all, *kind_entries = room + 5 * all;
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            std::vector<float> gradient(s.relation.width);
            by_entity.sort(thread, together, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                sorted.ids[place] = id;
                sorted.pulls[place] = entities.pull(entry);
            });
            by_relation.sort(thread, together, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                kind_ids[place] = id;
                kind_entries[place] = entry;
            });
            const auto rows = segments(s, sorted, entries, thread);
            with_columns(s.columns, [&]<int columns>() {
                for (int64_t from = 0; from < s.entity.width; from += columns)
                    for (const Segment& segment : rows) update_block<form, columns>(s, segment, sorted.pulls, from);
            });
            update_relations(s, kind_ids, kind_entries, thread, gradient.data());
        });
    });
}

// The table that all triples share: its gradient is the sum over them, in their order.
EXPORT void update_dense(const Step* step, float* values, float* first, float* second) {
    float gradient[2] = {0.0f, 0.0f};
    double sums[2] = {0.0, 0.0};
    for (int64_t b = 0; b < step->positives + step->hints; ++b)
        for (int c = 0; c < 2; ++c) sums[c] += step->of_scale[2 * b + c];
    for (int c = 0; c < 2; ++c) gradient[c] = sums[c];
    move_row(step->optimiser, values, first, second, gradient, 2, 0.0f, 0);
}
