// Gathers the gradient of each row from its entries, and takes the optimizer step on the row.
#pragma once

#include "sorting.hpp"
#include "step.hpp"

namespace {

// The contribution of an entry to the gradient of its entity. If `source` is below 2 · positives, it is a query, whose
// term is multiplied by `factor`. Higher numbers are rows of entity_gradient, then of pool_gradient, which are added
// unchanged.
struct Contribution {
    uint32_t source;
    float factor;
};

// The entries and the entity of each: the negatives first, then the heads, the tails and the pool.
struct EntityEntries {
    const Step& s;
    int64_t negatives, triples;
    explicit EntityEntries(const Step& step)
        : s(step), negatives(step.negatives ? step.positives * step.negatives_per_positive : 0),
          triples(step.positives + step.auxiliary) {}
    int64_t size() const { return negatives + 2 * triples + (s.pool ? s.pool_size : 0); }
    uint32_t operator[](int64_t entry) const {
        if (entry < negatives) return s.negatives[entry];
        entry -= negatives;
        if (entry < triples) return s.head[entry];
        return entry < 2 * triples ? s.tail[entry - triples] : s.pool[entry - 2 * triples];
    }
    Contribution contribution(uint32_t entry) const {
        const uint32_t positives = s.positives;
        if (entry >= negatives) return {entry - static_cast<uint32_t>(negatives) + 2 * positives, 1.0f};
        const uint32_t b = entry / static_cast<uint32_t>(s.negatives_per_positive);
        return {b + (1u - s.replaces_tail[entry]) * positives, s.negative_gradient[entry]};
    }
};

// The entries and the relation of each: the relations of all triples, then the inverse relations of the positives.
struct RelationEntries {
    const Step& s;
    int64_t triples() const { return s.positives + s.auxiliary; }
    int64_t size() const { return triples() + (s.inverse_offset ? s.positives : 0); }
    uint32_t operator[](int64_t entry) const {
        return entry < triples() ? s.relation[entry] : s.relation[entry - triples()] + s.inverse_offset;
    }
    bool is_positive(int64_t entry) const { return entry < s.positives || entry >= triples(); }
};

// The moduli |z| of the numbers of a row, for the regularizer Σ|z|³. A number has `components` columns (2 if it is
// complex), which are `stride` columns apart within one of the `spans` of the row. The moduli are computed before any
// column of the row is updated.
struct Moduli {
    const Table& t;
    int64_t stride;
    explicit Moduli(const Table& table) : t(table), stride(table.width / (table.components * table.spans)) {}
    bool needed() const { return t.components > 1 && t.strength != 0.0f; }
    int64_t count() const { return stride * t.spans; }
    void compute(int64_t id, float* moduli) const {
        const float* row = t.values + id * t.width;
        for (int64_t span = 0; span < t.spans; ++span, row += t.components * stride, moduli += stride) {
            std::fill_n(moduli, stride, 0.0f);
            for (int64_t p = 0; p < t.components; ++p)
#pragma omp simd
                for (int64_t j = 0; j < stride; ++j) moduli[j] += row[p * stride + j] * row[p * stride + j];
#pragma omp simd
            for (int64_t j = 0; j < stride; ++j) moduli[j] = std::sqrt(moduli[j]);
        }
    }
    // Adds the regularizer's gradient in columns [from, from + count) of a row.
    void add_gradient(int64_t id, int64_t from, int64_t count, float strength, const float* moduli,
                      float* gradient) const {
        const float* row = t.values + id * t.width + from;
        for (int64_t j = 0; j < count;) {  // one component at a time, in which columns and moduli are aligned
            const int64_t column = from + j, begin = column % stride, end = j + std::min(stride - begin, count - j);
            const float* modulus = moduli + column / (t.components * stride) * stride + begin;
#pragma omp simd
            for (int64_t i = j; i < end; ++i) gradient[i] += strength * 3.0f * row[i] * modulus[i - j];
            j = end;
        }
    }
};

// Updates the relation table. There are few relations with many entries each, so the threads divide the columns.
void update_relations(const Step& s, const uint32_t* keys, const uint32_t* order, const float* moduli, int thread,
                      float* gradient) {
    const Moduli row_moduli(s.relations);
    const Table& t = s.relations;
    const int64_t from = share_start(t.width, thread, s.threads), to = share_start(t.width, thread + 1, s.threads);
    const RelationEntries entries{s};
    const int64_t count = entries.size();
    for (int64_t i = 0, id = 0; id < t.rows; ++id) {
        if (!s.optimizer.whole) {
            if (i == count) break;
            id = keys[i];
        }
        std::fill(gradient + from, gradient + to, 0.0f);
        for (int64_t p = 0; s.sum_relations && p < PARTS; ++p) {
            const float* sums = s.relation_gradient + (p * t.rows + id) * t.width;
#pragma omp simd
            for (int64_t j = from; j < to; ++j) gradient[j] += sums[j];
        }
        int64_t occurrences = 0;
        for (; i < count && keys[i] == id; ++i) {
            occurrences += entries.is_positive(order[i]);
            if (s.sum_relations && entries.is_positive(order[i])) continue;
            const float* more = s.relation_gradient + relation_gradient_row(s, order[i]) * t.width;
#pragma omp simd
            for (int64_t j = from; j < to; ++j) gradient[j] += more[j];
        }
        const int64_t at = id * t.width + from;
        const float strength = row_penalty(t.scope, t.strength, occurrences);
        if (moduli)
            row_moduli.add_gradient(id, from, to - from, strength, moduli + id * row_moduli.count(), gradient + from);
        optimizer_step(s.optimizer, t.values + at, t.moment1 + at, t.moment2 + at, gradient + from, to - from,
                       moduli ? 0.0f : strength, t.power);
    }
}

// A row to update and its entries: negatives [from, middle), then heads, tails and rows of the pool [middle, to).
struct Segment {
    int64_t id, from, middle, to;
};

// The entries, stably sorted by entity.
struct SortedEntries {
    uint32_t* ids;
    Contribution* contributions;
};

// Returns the rows of a thread. The entries are divided evenly, and the boundaries are moved to the next entity.
std::vector<Segment> segments(const Step& s, const SortedEntries& sorted, int64_t entries, int thread) {
    auto border = [&](int t) {
        int64_t at = share_start(entries, t, s.threads);
        while (at > 0 && at < entries && sorted.ids[at] == sorted.ids[at - 1]) ++at;
        return at;
    };
    int64_t at = border(thread);
    const int64_t end = border(thread + 1);
    const bool every = s.optimizer.whole || (s.pool_gradient && !s.pool);  // whether rows without entries are updated
    int64_t id = every && thread > 0 ? (at < entries ? sorted.ids[at] : s.entities.rows) : 0;
    const int64_t last = thread + 1 == s.threads || end == entries ? s.entities.rows : sorted.ids[end];
    std::vector<Segment> result;
    while (every ? id < last : at < end) {
        if (!every) id = sorted.ids[at];
        Segment segment{id, at, at, at};
        for (; at < end && sorted.ids[at] == id; ++at)
            segment.middle += sorted.contributions[at].source < 2 * s.positives;
        segment.to = at;
        result.push_back(segment);
        ++id;
    }
    return result;
}

// Computes the gradient of one row in one block of columns and updates them. `moduli` is null if they are not needed.
template <int similarity, int columns>
void update_block(const Step& s, const Segment& segment, const Contribution* contributions, int64_t from,
                  const float* moduli) {
    const Table& t = s.entities;
    const int64_t triples = s.positives + s.auxiliary, width = std::min<int64_t>(columns, t.width - from);
    const int64_t at = segment.id * t.width + from;
    alignas(64) float gradient[columns] = {}, own[columns] = {};
    if (s.pool_gradient && !s.pool) std::copy_n(s.pool_gradient + at, width, gradient);
    if (similarity != DOT) std::copy_n(t.values + at, width, own);
    const bool whole = s.query_operation == PRECOMPUTED;  // then entity_gradient is not divided into blocks
    const float *queries = s.queries + from * 2 * s.positives;
    const float *entity_gradient = s.entity_gradient + from * (whole ? 1 : 2 * triples);
    const int64_t stride = whole ? t.width : columns;
    Strip<columns> sum, other = {};
    sum.load_from(gradient);
    auto add_negative = [&](Strip<columns>& strip, const Contribution& entry) INLINE_LAMBDA {
        const float* query = queries + static_cast<int64_t>(entry.source) * columns;
        strip.each([&](auto& x, int64_t j) INLINE_LAMBDA {
            using Number = std::decay_t<decltype(x)>;
            x += entry.factor * similarity_gradient<similarity>(load<Number>(own + j), load<Number>(query + j));
        });
    };
    int64_t i = segment.from;
    for (; i + 2 <= segment.middle; i += 2) {
        add_negative(sum, contributions[i]);
        add_negative(other, contributions[i + 1]);
    }
    if (i < segment.middle) add_negative(sum, contributions[i]);
    other.store_to(gradient);
    sum.add(gradient);
    int64_t occurrences = 0;
    for (i = segment.middle; i < segment.to; ++i) {
        const int64_t row = contributions[i].source - 2 * s.positives;
        if (row < 2 * triples) {
            occurrences += (row < triples ? row : row - triples) < s.positives;
            sum.add(entity_gradient + row * stride);
        } else {
            const float* pooled = s.pool_gradient + (row - 2 * triples) * t.width + from;
            std::fill(std::copy_n(pooled, width, gradient), gradient + columns, 0.0f);
            sum.add(gradient);
        }
    }
    sum.store_to(gradient);
    float strength = row_penalty(t.scope, t.strength, occurrences);
    if (moduli) Moduli(t).add_gradient(segment.id, from, width, std::exchange(strength, 0.0f), moduli, gradient);
    float *values = t.values + at, *moment1 = t.moment1 + at, *moment2 = t.moment2 + at;
    if (width == columns)
        optimizer_step(s.optimizer, values, moment1, moment2, gradient, columns, strength, t.power);
    else
        optimizer_step(s.optimizer, values, moment1, moment2, gradient, width, strength, t.power);
}

// Updates the rows of a thread, block by block. If moduli are needed, a limited number of rows is updated at a time,
// because their moduli are kept in memory.
template <int similarity>
void update_rows(const Step& s, const std::vector<Segment>& rows, const Contribution* contributions) {
    const Moduli moduli(s.entities);
    const size_t some = moduli.needed() ? 8192 : rows.size();
    std::vector<float> found(moduli.needed() ? std::min(some, rows.size()) * moduli.count() : 0);
    for (size_t begin = 0; begin < rows.size(); begin += some) {
        const size_t end = std::min(begin + some, rows.size());
        for (size_t i = begin; i < end && moduli.needed(); ++i)
            moduli.compute(rows[i].id, found.data() + (i - begin) * moduli.count());
        with_columns(s.block_columns, [&]<int columns>() {
            for (int64_t from = 0; from < s.entities.width; from += columns)
                for (size_t i = begin; i < end; ++i)
                    update_block<similarity, columns>(
                        s, rows[i], contributions, from,
                        moduli.needed() ? found.data() + (i - begin) * moduli.count() : nullptr);
        });
    }
}

}  // namespace
