// One training step in few calls: `own_corruptions` or `pool_corruptions`, `hints`, then `update`. No array of positives
// × corruptions × width is ever made, and every sum has an order that no number of
// threads changes: the same seed gives the same bits.

#include <barrier>

#include "own.hpp"
#include "pool.hpp"
#include "update.hpp"

EXPORT int64_t size_of_step() { return sizeof(Step); }

// Entities and sides of corruptions: number i is the i-th output of SplitMix64 from `key`, as negatives.py has it.
EXPORT void draw_corruptions(uint64_t key, int64_t count, uint64_t below, int64_t* __restrict entities,
                             uint8_t* __restrict tails) {
#pragma omp simd
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
            clear_sums(s, thread, s.threads);
            const int64_t end = first_of(s, thread + 1, s.threads);
            for (int64_t b = first_of(s, thread, s.threads); b < end; ++b) own<form>(s, stages, b, room);
        });
    });
}

EXPORT int64_t size_of_pool() { return sizeof(Pool); }

// Floats of room that `pool_corruptions` needs.
EXPORT int64_t room_of_pools(const Step* step, const Pool* pools, int64_t count) {
    return Plan(*step, pools, count).size(*step);
}

// Everything about corruptions that the whole batch shares, up to the gradients that `update` gathers.
EXPORT void pool_corruptions(const Step* step, const Pool* pools, int64_t count, float* room) {
    const Step& s = *step;
    const Plan plan(s, pools, count);
    std::vector<Packed> packed;
    Packed next{room, room + plan.packed};
    for (int64_t p = 0; p < count; ++p) {
        if (pools[p].shares) {
            packed.push_back(packed.back());
            continue;
        }
        packed.push_back(next);
        const int64_t rows = up_to(pools[p].size, PANEL);
        next = {next.panels + rows * s.entity.width, next.rows + rows * plan.stride};
    }
    float *of_pools = next.rows, *own = of_pools + s.groups * plan.of_pools;
    std::barrier<> together(s.threads);
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            for (int64_t p = 0; p < count; ++p)
                if (!pools[p].shares) pack(s, pools[p], packed[p], plan.stride, thread);
            together.arrive_and_wait();
            PoolRoom mine(plan, s.form, own + thread * plan.thread);
            const int64_t end = part(s.groups, thread + 1, s.threads);
            for (int64_t group = part(s.groups, thread, s.threads); group < end; ++group)
                walk_pools<form>(s, pools, count, plan, packed.data(), mine, of_pools + group * plan.of_pools, group);
            together.arrive_and_wait();
            for (int64_t p = 0; p < count; ++p)
                if (!pools[p].shares)
                    sum_pools(s, pools[p], plan, of_pools + (packed[p].rows - packed[0].rows), thread);
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
    const Sizes sizes(s.relation);
    std::vector<float> of_kinds(sizes.asked() ? s.relation.rows * sizes.count() : 0);
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            std::vector<float> gradient(s.relation.width);
            const int64_t last = sizes.asked() ? part(s.relation.rows, thread + 1, s.threads) : 0;
            for (int64_t id = part(s.relation.rows, thread, s.threads); id < last; ++id)
                sizes.measure(id, of_kinds.data() + id * sizes.count());
            by_entity.sort(thread, together, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                sorted.ids[place] = id;
                sorted.pulls[place] = entities.pull(entry);
            });
            by_relation.sort(thread, together, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                kind_ids[place] = id;
                kind_entries[place] = entry;
            });
            update_rows<form>(s, segments(s, sorted, entries, thread), sorted.pulls);
            update_relations(s, kind_ids, kind_entries, sizes.asked() ? of_kinds.data() : nullptr, thread, gradient.data());
        });
    });
}

// Adds the gradient of the slope and offset that all triples share: the sum over them, in their order.
EXPORT void add_scale(const Step* step, float* gradient) {
    double sums[2] = {0.0, 0.0};
    for (int64_t b = 0; b < step->positives + step->hints; ++b)
        for (int c = 0; c < 2; ++c) sums[c] += step->of_scale[2 * b + c];
    for (int c = 0; c < 2; ++c) gradient[c] += static_cast<float>(sums[c]);
}

// A tensor that all triples share.
EXPORT void update_dense(const Step* step, float* values, float* first, float* second, float* gradient, int64_t count) {
    move_row(step->optimiser, values, first, second, gradient, count, 0.0f, 0);
}
