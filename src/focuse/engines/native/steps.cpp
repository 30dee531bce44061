// The exported functions of a training step: `per_triple_negatives` or `shared_negatives`, `auxiliary_triples`, then
// `update`. No array of size positives × negatives × width is allocated. The order of every sum is independent of the
// number of threads, so the same seed gives bitwise equal results.

#include <barrier>

#include "per_triple.hpp"
#include "shared_pool.hpp"
#include "sparse_update.hpp"

EXPORT int64_t size_of_step() { return sizeof(Step); }

// Draws the entities and sides of negatives; negative i uses output i of SplitMix64 from `key`, as in
// objective/negatives.py.
EXPORT void draw_negatives(uint64_t key, int64_t count, uint64_t below, int64_t* __restrict entities,
                           uint8_t* __restrict replaces_tail) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
        uint64_t bits = key + static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
        bits ^= bits >> 31;
        const uint64_t both = ((bits >> 33) * below) >> 31;
        entities[i] = both >> 1;
        replaces_tail[i] = both & 1;
    }
}

// Computes the losses of positives with per-triple negatives, and all gradients that `update` gathers.
EXPORT void per_triple_negatives(const Step* step) {
    const Step& s = *step;
    const ObjectiveFunctions functions = objective_functions(s.objective);
    with_similarity(s.similarity, [&]<int similarity>() {
        in_parallel(s.threads, [&](int thread) {
            Workspace workspace(s.entities.width, s.negatives_per_positive);
            clear_relation_sums(s, thread, s.threads);
            const int64_t end = first_positive(s, thread + 1, s.threads);
            for (int64_t b = first_positive(s, thread, s.threads); b < end; ++b)
                differentiate_triple<similarity>(s, functions, b, workspace);
        });
    });
}

EXPORT int64_t size_of_pool() { return sizeof(SharedPool); }

// Returns the size of the workspace that `shared_negatives` needs, in floats.
EXPORT int64_t pool_workspace_size(const Step* step, const SharedPool* pools, int64_t count) {
    return PoolLayout(*step, pools, count).size(*step);
}

// Computes the losses of positives with shared negatives, and all gradients that `update` gathers.
EXPORT void shared_negatives(const Step* step, const SharedPool* pools, int64_t count, float* workspace) {
    const Step& s = *step;
    const PoolLayout layout(s, pools, count);
    std::vector<PackedPool> packed;
    PackedPool next{workspace, workspace + layout.packed};
    for (int64_t p = 0; p < count; ++p) {
        if (pools[p].same_as_previous) {
            packed.push_back(packed.back());
            continue;
        }
        packed.push_back(next);
        const int64_t rows = round_up(pools[p].size, PANEL);
        next = {next.panels + rows * s.entities.width, next.rows + rows * layout.stride};
    }
    float *pool_gradients = next.rows, *of_threads = pool_gradients + s.groups * layout.pool_gradients;
    std::barrier<> barrier(s.threads);
    with_similarity(s.similarity, [&]<int similarity>() {
        in_parallel(s.threads, [&](int thread) {
            for (int64_t p = 0; p < count; ++p)
                if (!pools[p].same_as_previous) pack(s, pools[p], packed[p], layout.stride, thread);
            barrier.arrive_and_wait();
            PoolWorkspace mine(layout, s.similarity, of_threads + thread * layout.thread);
            const int64_t end = share_start(s.groups, thread + 1, s.threads);
            for (int64_t group = share_start(s.groups, thread, s.threads); group < end; ++group)
                differentiate_group<similarity>(s, pools, count, layout, packed.data(), mine,
                                                pool_gradients + group * layout.pool_gradients, group);
            barrier.arrive_and_wait();
            for (int64_t p = 0; p < count; ++p)
                if (!pools[p].same_as_previous)
                    sum_groups(s, pools[p], layout, pool_gradients + (packed[p].rows - packed[0].rows), thread);
        });
    });
}

// Computes the losses and gradients of auxiliary triples on one thread, because there are few of them.
EXPORT void auxiliary_triples(const Step* step) {
    const Step& s = *step;
    const int64_t width = s.entities.width;
    const ObjectiveFunctions functions = objective_functions(s.objective);
    std::vector<float> workspace(4 * width);
    with_similarity(s.similarity, [&]<int similarity>() {
        for (int64_t b = s.positives; b < s.positives + s.auxiliary; ++b)
            differentiate_auxiliary<similarity>(s, functions, b, workspace.data());
    });
}

// Gathers the gradient of each row and updates the row; no gradient table is stored.
EXPORT void update(const Step* step) {
    const Step& s = *step;
    const EntityEntries entity_entries(s);
    const RelationEntries relation_entries{s};
    const int64_t entries = entity_entries.size(), relations = relation_entries.size();
    std::barrier<> barrier(s.threads);
    Sorter<EntityEntries> by_entity(entity_entries, entries, s.entities.rows, s.threads, s.sort_buffer);
    const SortedEntries sorted{s.sort_buffer + 4 * entries,
                               reinterpret_cast<Contribution*>(s.sort_buffer + 5 * entries)};
    uint32_t* buffer = s.sort_buffer + 7 * entries;
    Sorter<RelationEntries> by_relation(relation_entries, relations, s.relations.rows, s.threads, buffer);
    uint32_t *relation_ids = buffer + 4 * relations, *relation_order = buffer + 5 * relations;
    const Moduli moduli(s.relations);
    std::vector<float> relation_moduli(moduli.needed() ? s.relations.rows * moduli.count() : 0);
    with_similarity(s.similarity, [&]<int similarity>() {
        in_parallel(s.threads, [&](int thread) {
            std::vector<float> gradient(s.relations.width);
            const int64_t last = moduli.needed() ? share_start(s.relations.rows, thread + 1, s.threads) : 0;
            for (int64_t id = share_start(s.relations.rows, thread, s.threads); id < last; ++id)
                moduli.compute(id, relation_moduli.data() + id * moduli.count());
            by_entity.sort(thread, barrier, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                sorted.ids[place] = id;
                sorted.contributions[place] = entity_entries.contribution(entry);
            });
            by_relation.sort(thread, barrier, [&](uint32_t place, uint32_t id, uint32_t entry) INLINE_LAMBDA {
                relation_ids[place] = id;
                relation_order[place] = entry;
            });
            update_rows<similarity>(s, segments(s, sorted, entries, thread), sorted.contributions);
            update_relations(s, relation_ids, relation_order, moduli.needed() ? relation_moduli.data() : nullptr,
                             thread, gradient.data());
        });
    });
}

// Adds the gradients of the gain and the offset of all scores, summed in the order of the triples.
EXPORT void add_scale_gradient(const Step* step, float* gradient) {
    double sums[2] = {0.0, 0.0};
    for (int64_t b = 0; b < step->positives + step->auxiliary; ++b)
        for (int c = 0; c < 2; ++c) sums[c] += step->scale_gradient[2 * b + c];
    for (int c = 0; c < 2; ++c) gradient[c] += static_cast<float>(sums[c]);
}

// Takes the optimizer step on a shared parameter.
EXPORT void update_dense(const Step* step, float* values, float* moment1, float* moment2, float* gradient,
                         int64_t count) {
    optimizer_step(step->optimizer, values, moment1, moment2, gradient, count, 0.0f, 0);
}
