// One training step in few calls: `own_corruptions` or (`queries`, `pool_judge` a block, `positives`), then `update`. No array of positives × corruptions × width is ever made, and every sum runs in an order that does not
// depend on the number of threads: the same seed gives the same bits.

#include <barrier>

#include "objective.hpp"
#include "rows.hpp"
#include "sorting.hpp"
#include "optimiser.hpp"

constexpr int64_t PARTS = 64;    // of a batch, for sums over relations
constexpr int64_t COLUMNS = 32;  // of a block of queries: those of 4,000 positives take 1 MB

struct Table {
    float *values, *first, *second;  // embeddings, the optimiser's moments
    int64_t rows, width;
    int32_t power, scope;            // of the penalty, 0 for none
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
    int64_t count;
    const int64_t* pool;                // [pooled] or null: entities whose gradient stands in pool_gradient
    const float* pool_gradient;         // [pooled, width], or [entities, width] with pool null, or null
    int64_t pooled;
    float *query, *query_gradient;      // [2, positives, width]: for tails, for heads; own corruptions': in blocks
    float *comparison, *slope;          // [positives + hints]; [positives, count]
    float *of_end, *of_relation;        // gradients of heads and tails, in blocks; [positives + hints, width]
    float* of_positive;                 // [positives]: gradient of a positive's comparison
    double* loss;                       // [positives + hints]
    float* of_scale;                    // [positives + hints, 2]
    uint32_t* sorted;                   // 4 × entries and 4 × positives of room
    Objective objective;
    float hint_weight;
    int32_t turn, form, threads, summed;  // summed: of_relation is [PARTS, relations, width], then hints
    Optimiser optimiser;
};

EXPORT int64_t size_of_step() { return sizeof(Step); }

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

void ask(const Step& s, int64_t b, const Triple& at) {
    const int64_t width = s.entity.width;
    make_query(s.turn, true, at.head, at.relation, s.query + b * width, width);
    make_query(s.turn, false, at.tail, at.relation, s.query + (s.positives + b) * width, width);
}

// Rows that `update` reads in the order of entities are kept in blocks of columns, [blocks, rows, COLUMNS]: it goes
// through one block after the other, and each stays in a core's own cache meanwhile.
void keep(float* blocks, int64_t rows, int64_t place, const float* row, int64_t width) {
    for (int64_t from = 0; from < width; from += COLUMNS) {
        float* block = blocks + from * rows + place * COLUMNS;
        if (from + COLUMNS <= width) {
            store(block, load(row + from));
            store(block + 16, load(row + from + 16));
        } else {
            std::fill(std::copy(row + from, row + width, block), block + COLUMNS, 0.0f);
        }
    }
}

// Few relations have many positives each: their gradients are summed while they are made, in PARTS parts of the batch,
// each by one thread, so that the order of sums does not depend on how many threads there are.
int64_t part_of(const Step& s, int64_t b) { return b * PARTS / s.positives; }

// Where the gradient of a relation lies that is not summed: behind the sums, hints come first.
int64_t relation_place(const Step& s, int64_t b) {
    return s.summed ? PARTS * s.relation.rows + b - s.positives : b;
}

// The first positive of a thread's parts.
int64_t first_of(const Step& s, int thread) {
    return (part(PARTS, thread, s.threads) * s.positives + PARTS - 1) / PARTS;
}

void clear_sums(const Step& s, int thread) {
    const int64_t size = s.relation.rows * s.relation.width;
    if (s.summed)
        std::fill(s.of_relation + part(PARTS, thread, s.threads) * size,
                  s.of_relation + part(PARTS, thread + 1, s.threads) * size, 0.0f);
}

// From the gradients of both queries and of the positive's comparison to those of head, relation and tail; `room` for
// two rows.
template <int form>
void settle(const Step& s, int64_t b, const Triple& at, float slope, const float* query, float* for_tail,
            const float* for_head, float* room) {
    const int64_t width = s.entity.width, all = s.positives + s.hints;
    const bool summed = s.summed && b < s.positives;
    float *of_head = room, *of_tail = room + width;
    float* of_kind = s.of_relation + (summed ? part_of(s, b) * s.relation.rows + s.kind[b] : relation_place(s, b)) * width;
    slope = by_distance<form>(slope, s.comparison[b]);
    add_pull<form>(slope, at.tail, query, for_tail, width);
    add_pull<form, true>(slope, query, at.tail, of_tail, width);
    if (summed)
        query_gradient<true, false>(s.turn, true, at.head, at.relation, for_tail, of_head, of_kind, width);
    else
        query_gradient<true, true>(s.turn, true, at.head, at.relation, for_tail, of_head, of_kind, width);
    if (for_head) query_gradient<false, false>(s.turn, false, at.tail, at.relation, for_head, of_tail, of_kind, width);
    keep(s.of_end, 2 * all, b, of_head, width);
    keep(s.of_end, 2 * all, all + b, of_tail, width);
}

// Room of one thread, for one positive at a time. Its scores are filled up to whole vectors with hidden ones.
struct Room {
    std::vector<float> tail_query, head_query, for_tail, for_head, ends, comparisons, scores;
    std::vector<int32_t> by_side, rest;
    Room(int64_t width, int64_t count)
        : tail_query(width), head_query(width), for_tail(width), for_head(width), ends(2 * width), comparisons(count),
          scores((count + 15) / 16 * 16), by_side(count + 1), rest(count + 1) {}
};

// Corruptions [from, to) of `by_side` replace the same side, so they meet one query.
template <int form>
void compare_all(const Step& s, const int64_t* ids, const Room& room, int64_t from, int64_t to, const float* query,
                 float* results) {
    const int64_t width = s.entity.width;
    auto row = [&](int64_t i) { return s.entity.values + ids[room.by_side[i]] * width; };
    int64_t i = from;
    for (; i + 4 <= to; i += 4) {
        const float* rows[4] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
        float found[4];
        compare<form, 4>(query, rows, found, width);
        for (int c = 0; c < 4; ++c) results[room.by_side[i + c]] = found[c];
    }
    for (; i < to; ++i) results[room.by_side[i]] = compare<form>(query, row(i), width);
}

template <int form>
void pull_all(const Step& s, const int64_t* ids, const Room& room, int64_t from, int64_t to, const float* query,
              const float* slopes, float* gradient) {
    const int64_t width = s.entity.width;
    auto row = [&](int64_t i) { return s.entity.values + ids[room.by_side[i]] * width; };
    auto slope = [&](int64_t i) { return slopes[room.by_side[i]]; };
    int64_t i = from;
    for (; i + 4 <= to; i += 4) {
        const float* rows[4] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
        const float four[4] = {slope(i), slope(i + 1), slope(i + 2), slope(i + 3)};
        add_pull<form>(four, rows, query, gradient, width);
    }
    for (; i < to; ++i) add_pull<form>(slope(i), row(i), query, gradient, width);
}

// The places of corrupted tails, then those of corrupted heads; the number of the first. Sides are tosses of a coin,
// which no processor predicts: no branch here.
int64_t split_sides(const uint8_t* tails, int64_t count, int32_t* by_side, int32_t* rest) {
    int64_t left = 0, right = 0;
    for (int64_t n = 0; n < count; ++n) {
        by_side[left] = rest[right] = n;
        left += tails[n] != 0;
        right += tails[n] == 0;
    }
    std::copy_n(rest, right, by_side + left);
    return left;
}

template <int form>
void own(const Step& s, const Stages& stages, int64_t b, Room& room) {
    const int64_t width = s.entity.width, count = s.count;
    const int64_t* ids = s.corruptions + b * count;
    const uint8_t* tails = s.tails + b * count;
    float* slope = s.slope + b * count;
    const Triple at = triple(s, b);
    const float *for_tails = room.tail_query.data(), *for_heads = room.head_query.data();
    make_query(s.turn, true, at.head, at.relation, room.tail_query.data(), width);
    make_query(s.turn, false, at.tail, at.relation, room.head_query.data(), width);
    keep(s.query, 2 * s.positives, b, for_tails, width);
    keep(s.query, 2 * s.positives, s.positives + b, for_heads, width);
    s.comparison[b] = compare<form>(for_tails, at.tail, width);
    const int64_t heads = split_sides(tails, count, room.by_side.data(), room.rest.data());
    float* scores = room.scores.data();
    const int64_t padded = room.scores.size();
    std::fill(scores + count, scores + padded, HIDDEN);
    compare_all<form>(s, ids, room, 0, heads, for_tails, scores);
    compare_all<form>(s, ids, room, heads, count, for_heads, scores);
    if (form == L2) std::copy_n(scores, count, room.comparisons.data());
    if (s.mask)
        for (int64_t n = 0; n < count; ++n)
            if (!s.mask[b * count + n]) scores[n] = HIDDEN;
    Row row = stages.begin(s.objective, s.comparison[b], s.weight[b]);
    stages.judge(s.objective, row, scores, padded);
    const float of_positive = stages.finish(s.objective, row, s.comparison[b], s.weight[b]);
    s.loss[b] = row.loss;
    s.of_scale[2 * b] = row.of_slope;
    s.of_scale[2 * b + 1] = row.of_offset;
    if (form == L2)
        for (int64_t n = 0; n < count; ++n) scores[n] = by_distance<form>(scores[n], room.comparisons[n]);
    std::copy_n(scores, count, slope);
    std::fill(room.for_tail.begin(), room.for_tail.end(), 0.0f);
    std::fill(room.for_head.begin(), room.for_head.end(), 0.0f);
    pull_all<form>(s, ids, room, 0, heads, for_tails, slope, room.for_tail.data());
    pull_all<form>(s, ids, room, heads, count, for_heads, slope, room.for_head.data());
    settle<form>(s, b, at, of_positive, for_tails, room.for_tail.data(), room.for_head.data(), room.ends.data());
}

// A triple that rules infer with confidence s: its shortfall max(0, s − φ(f))², times `hint_weight`.
template <int form>
void hint(const Step& s, const Stages& stages, int64_t b, float* room) {
    const int64_t width = s.entity.width;
    float *query = room, *for_tail = room + width;
    const Triple at = triple(s, b);
    make_query(s.turn, true, at.head, at.relation, query, width);
    s.comparison[b] = compare<form>(query, at.tail, width);
    Row row = stages.begin(s.objective, s.comparison[b], 0.0f);
    const float lacking = std::max(s.weight[b] - row.positive, 0.0f);
    s.loss[b] = s.hint_weight * lacking * lacking;
    const float bent = s.objective.scale * s.hint_weight * -2.0f * lacking * row.positive_bend;
    s.of_scale[2 * b] = bent * s.comparison[b];
    s.of_scale[2 * b + 1] = bent;
    std::fill_n(for_tail, width, 0.0f);
    settle<form>(s, b, at, bent * s.objective.slope, query, for_tail, nullptr, room + 2 * width);
}

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
    Ids kinds{s.kind};
    Sorter<Ids> by_relation(kinds, all, s.relation.rows, s.threads, s.sorted + 4 * entries);
    with_form(s.form, [&]<int form>() {
        in_parallel(s.threads, [&](int thread) {
            std::vector<float> room(s.relation.width);
            by_entity.sort(thread, together);
            by_relation.sort(thread, together);
            // The sorter's other halves are free now.
            const Pulls pulls{by_entity.other_keys, reinterpret_cast<float*>(by_entity.other_order)};
            gather_pulls(s, pulls, by_entity.order, entries, thread);
            const auto rows = segments(s, by_entity.keys, by_entity.order, entries, thread);
            together.arrive_and_wait();
            for (int64_t from = 0; from < s.entity.width; from += COLUMNS)
                for (const Segment& segment : rows) update_block<form>(s, segment, pulls, from);
            update_relations(s, by_relation.keys, by_relation.order, thread, room.data());
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
