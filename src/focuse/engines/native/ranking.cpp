// Ranking on a CPU: distances between all queries and all rows, and the number of competitors of each target.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common.hpp"

namespace {

// The sums of a tile must fit into the vector registers: 32 with AVX-512, otherwise 16.
#if defined(__AVX512F__)
constexpr int lanes = 16, tile_queries = 6, vectors = 3;
#elif defined(__AVX__)
constexpr int lanes = 8, tile_queries = 3, vectors = 4;
#else
constexpr int lanes = 4, tile_queries = 3, vectors = 4;
#endif
constexpr int panel = vectors * lanes;  // rows next to each other in a tile

typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
typedef int32_t Bits __attribute__((vector_size(lanes * sizeof(int32_t))));

// ---- distances -----------------------------------------------------------------------------------------------------

struct Task {
    const float *queries, *rows;
    int64_t query_count, row_count, width;
    float sign;
    float* out;
};

// Transposes `count` rows into a panel [width, panel], so that one vector instruction reads adjacent values. Unused
// columns repeat the last row.
void pack(const float* rows, int64_t count, int64_t width, float* packed) {
    constexpr int64_t strip = 16;  // columns at a time, so that written cache lines are completed before eviction
    for (int64_t begin = 0; begin < width; begin += strip)
        for (int64_t row = 0; row < panel; ++row) {
            const float* from = rows + std::min(row, count - 1) * width;
            for (int64_t j = begin; j < std::min(begin + strip, width); ++j) packed[j * panel + row] = from[j];
        }
}

template <int similarity>
inline Floats add(Floats total, Floats rows, float query) {
    const Floats apart = rows - query;
    if constexpr (similarity == L1) return total + (Floats)((Bits)apart & 0x7fffffff);
    return total + apart * apart;
}

// Computes the distances of some queries to one panel. The terms of a pair are always added in the order of the
// columns, so that equal rows have bitwise equal distances.
template <int similarity, int queries>
void tile(const Task& task, const float* packed, int64_t first_query, int64_t first_row) {
    const float* query = task.queries + first_query * task.width;
    Floats totals[queries][vectors] = {};
    for (int64_t j = 0; j < task.width; ++j) {
#pragma GCC unroll 8
        for (int q = 0; q < queries; ++q)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) {
                Floats rows;
                std::memcpy(&rows, packed + j * panel + v * lanes, sizeof rows);
                totals[q][v] = add<similarity>(totals[q][v], rows, query[q * task.width + j]);
            }
    }
    const int64_t count = std::min<int64_t>(panel, task.row_count - first_row);
    float found[panel];
#pragma GCC unroll 8
    for (int q = 0; q < queries; ++q) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) std::memcpy(found + v * lanes, &totals[q][v], sizeof(Floats));
        for (int row = 0; row < panel; ++row)
            found[row] = task.sign * (similarity == L1 ? found[row] : std::sqrt(found[row]));
        float* out = task.out + (first_query + q) * task.row_count + first_row;
        if (count == panel)
            std::memcpy(out, found, sizeof found);
        else
            std::memcpy(out, found, count * sizeof(float));
    }
}

// Computes the distances of queries [begin, end) to panels [first, last).
template <int similarity>
void fill_panels(const Task& task, int64_t begin, int64_t end, int64_t first, int64_t last) {
    std::vector<float> packed(task.width * panel);
    for (int64_t row = first * panel; row < std::min(last * panel, task.row_count); row += panel) {
        pack(task.rows + row * task.width, task.row_count - row, task.width, packed.data());
        int64_t query = begin;
        for (; query + tile_queries <= end; query += tile_queries)
            tile<similarity, tile_queries>(task, packed.data(), query, row);
        for (; query < end; ++query) tile<similarity, 1>(task, packed.data(), query, row);
    }
}

template <int similarity>
void all_distances(const Task& task, int threads) {
    const int64_t panels = (task.row_count + panel - 1) / panel;
    in_parallel(threads, [=](int thread) {
        if (panels >= 8 * threads)  // enough panels to balance the threads, and each panel is packed only once
            fill_panels<similarity>(task, 0, task.query_count, share_start(panels, thread, threads),
                                    share_start(panels, thread + 1, threads));
        else
            fill_panels<similarity>(task, share_start(task.query_count, thread, threads),
                                    share_start(task.query_count, thread + 1, threads), 0, panels);
    });
}

// ---- competitors ---------------------------------------------------------------------------------------------------

bool all_finite(const float* scores, int64_t entities) {
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t e = 0; e < entities; ++e) most = std::max(most, std::bit_cast<int32_t>(scores[e]) & 0x7fffffff);
    return most < 0x7f800000;  // infinity's bits; above them are those of NaN
}

struct Competitors {
    int32_t higher, same;
};

Competitors count_all(const float* scores, int64_t entities, float own) {
    int32_t higher = 0, same = 0;
#pragma omp simd reduction(+ : higher, same)
    for (int64_t e = 0; e < entities; ++e) {
        higher += scores[e] > own;
        same += scores[e] == own;
    }
    return {higher, same};
}

// Counts the competitors among the known answers, given as keys c · entities + entity with a constant c.
Competitors count_known(const float* scores, int64_t entities, int64_t target, const int64_t* fact,
                        const int64_t* end) {
    int32_t higher = 0, same = 0;
    const int64_t first_key = fact < end ? *fact - *fact % entities : 0;
    for (; fact < end; ++fact) {
        const int64_t entity = *fact - first_key;
        higher += scores[entity] > scores[target];
        same += scores[entity] == scores[target] && entity != target;
    }
    return {higher, same};
}

}  // namespace

// Writes sign · distance of queries [query_count, width] and rows [row_count, width] to out [query_count, row_count].
EXPORT void distances(const float* queries, const float* rows, int64_t query_count, int64_t row_count, int64_t width,
                      int similarity, float sign, float* out, int threads) {
    const Task task{queries, rows, query_count, row_count, width, sign, out};
    if (similarity == L1)
        all_distances<L1>(task, threads);
    else
        all_distances<L2>(task, threads);
}

// Counts the competitors of each target. `scores` is [queries, entities]; query q has the targets [first[q], first[q +
// 1]) and the known answers [start[q], stop[q]). The four counts of a target are: higher and equal among all entities,
// then higher and equal without known answers. They are -1 if a score of the query is not finite.
EXPORT void count_competitors(const float* scores, int64_t queries, int64_t entities, const int64_t* first,
                              const int64_t* targets, const int64_t* start, const int64_t* stop, const int64_t* facts,
                              int64_t* counts, int threads) {
    in_parallel(threads, [=](int thread) {
        // The targets, not the queries, are divided evenly, because some queries have many targets.
        auto from = [=](int share) {
            return std::lower_bound(first, first + queries, share_start(first[queries], share, threads)) - first;
        };
        for (int64_t query = from(thread); query < from(thread + 1); ++query) {
            const float* row = scores + query * entities;
            const bool finite = all_finite(row, entities);
            for (int64_t i = first[query]; i < first[query + 1]; ++i) {
                const int64_t target = targets[i];
                const auto [higher, same] = count_all(row, entities, row[target]);
                const auto known = count_known(row, entities, target, facts + start[query], facts + stop[query]);
                const int64_t found[] = {higher, same - 1, higher - known.higher, same - 1 - known.same};
                for (int c = 0; c < 4; ++c) counts[4 * i + c] = finite ? found[c] : -1;
            }
        }
    });
}
