// Ranking on a CPU: distances between all queries and all rows, and how many rivals stand before a target.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common.hpp"

namespace {

// A tile's sums must fit the registers: 32 with AVX-512, else 16.
#if defined(__AVX512F__)
constexpr int lanes = 16, tile_queries = 6, vectors = 3;
#elif defined(__AVX__)
constexpr int lanes = 8, tile_queries = 3, vectors = 4;
#else
constexpr int lanes = 4, tile_queries = 3, vectors = 4;
#endif
constexpr int panel = vectors * lanes;  // rows side by side in a tile

typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
typedef int32_t Bits __attribute__((vector_size(lanes * sizeof(int32_t))));

// ---- distances -----------------------------------------------------------------------------------------------------

struct Task {
    const float *queries, *rows;
    int64_t query_count, row_count, width;
    float sign;
    float* out;
};

// `count` rows as columns side by side, [width, panel]: what one instruction takes lies together. Places that are left
// over hold the last row again.
void pack(const float* rows, int64_t count, int64_t width, float* packed) {
    constexpr int64_t strip = 16;  // columns at a time: what is written stays in the cache until it is full
    for (int64_t begin = 0; begin < width; begin += strip)
        for (int64_t row = 0; row < panel; ++row) {
            const float* from = rows + std::min(row, count - 1) * width;
            for (int64_t j = begin; j < std::min(begin + strip, width); ++j) packed[j * panel + row] = from[j];
        }
}

template <int form>
inline Floats add(Floats total, Floats rows, float query) {
    const Floats apart = rows - query;
    if constexpr (form == L1) return total + (Floats)((Bits)apart & 0x7fffffff);
    return total + apart * apart;
}

// Some queries against one panel. A pair's terms are added one after the other, in the order of the columns, wherever
// the pair stands: equal rows are equally far, to the last bit.
template <int form, int queries>
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
                totals[q][v] = add<form>(totals[q][v], rows, query[q * task.width + j]);
            }
    }
    const int64_t count = std::min<int64_t>(panel, task.row_count - first_row);
    float found[panel];
#pragma GCC unroll 8
    for (int q = 0; q < queries; ++q) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) std::memcpy(found + v * lanes, &totals[q][v], sizeof(Floats));
        for (int row = 0; row < panel; ++row) found[row] = task.sign * (form == L1 ? found[row] : std::sqrt(found[row]));
        float* out = task.out + (first_query + q) * task.row_count + first_row;
        if (count == panel)
            std::memcpy(out, found, sizeof found);
        else
            std::memcpy(out, found, count * sizeof(float));
    }
}

// Queries begin..end against the panels first..last.
template <int form>
void compare(const Task& task, int64_t begin, int64_t end, int64_t first, int64_t last) {
    std::vector<float> packed(task.width * panel);
    for (int64_t row = first * panel; row < std::min(last * panel, task.row_count); row += panel) {
        pack(task.rows + row * task.width, task.row_count - row, task.width, packed.data());
        int64_t query = begin;
        for (; query + tile_queries <= end; query += tile_queries)
            tile<form, tile_queries>(task, packed.data(), query, row);
        for (; query < end; ++query) tile<form, 1>(task, packed.data(), query, row);
    }
}

template <int form>
void compare_all(const Task& task, int threads) {
    const int64_t panels = (task.row_count + panel - 1) / panel;
    in_parallel(threads, [=](int thread) {
        if (panels >= 8 * threads)  // enough for even shares, and each is packed but once
            compare<form>(task, 0, task.query_count, part(panels, thread, threads), part(panels, thread + 1, threads));
        else
            compare<form>(task, part(task.query_count, thread, threads), part(task.query_count, thread + 1, threads), 0,
                          panels);
    });
}

// ---- rivals --------------------------------------------------------------------------------------------------------

bool all_finite(const float* scores, int64_t entities) {
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t e = 0; e < entities; ++e) most = std::max(most, std::bit_cast<int32_t>(scores[e]) & 0x7fffffff);
    return most < 0x7f800000;  // infinity's bits; above them are those of NaN
}

struct Rivals {
    int32_t higher, same;
};

Rivals count(const float* scores, int64_t entities, float own) {
    int32_t higher = 0, same = 0;
#pragma omp simd reduction(+ : higher, same)
    for (int64_t e = 0; e < entities; ++e) {
        higher += scores[e] > own;
        same += scores[e] == own;
    }
    return {higher, same};
}

// Rivals among the known answers, given as keys of which the first tells where the entities' numbers begin.
Rivals count_facts(const float* scores, int64_t entities, int64_t target, const int64_t* fact, const int64_t* end) {
    int32_t higher = 0, same = 0;
    const int64_t zero = fact < end ? *fact - *fact % entities : 0;
    for (; fact < end; ++fact) {
        const int64_t entity = *fact - zero;
        higher += scores[entity] > scores[target];
        same += scores[entity] == scores[target] && entity != target;
    }
    return {higher, same};
}

}  // namespace

// queries [query_count, width], rows [row_count, width] -> out [query_count, row_count], sign · distance.
EXPORT void distances(const float* queries, const float* rows, int64_t query_count, int64_t row_count, int64_t width,
                      int form, float sign, float* out, int threads) {
    const Task task{queries, rows, query_count, row_count, width, sign, out};
    if (form == L1)
        compare_all<L1>(task, threads);
    else
        compare_all<L2>(task, threads);
}

// scores [queries, entities]; query q has the targets first[q]..first[q + 1] and the known answers start[q]..stop[q].
// For each target counts [4]: higher and same among all, higher and same among those not known; -1 where a score of
// its query is not finite.
EXPORT void count_rivals(const float* scores, int64_t queries, int64_t entities, const int64_t* first,
                         const int64_t* targets, const int64_t* start, const int64_t* stop, const int64_t* facts,
                         int64_t* counts, int threads) {
    in_parallel(threads, [=](int thread) {
        // Even shares of the targets, not of the queries: some have many.
        auto from = [=](int share) {
            return std::lower_bound(first, first + queries, part(first[queries], share, threads)) - first;
        };
        for (int64_t query = from(thread); query < from(thread + 1); ++query) {
            const float* row = scores + query * entities;
            const bool finite = all_finite(row, entities);
            for (int64_t place = first[query]; place < first[query + 1]; ++place) {
                const int64_t target = targets[place];
                const auto [higher, same] = count(row, entities, row[target]);
                const auto known = count_facts(row, entities, target, facts + start[query], facts + stop[query]);
                const int64_t found[] = {higher, same - 1, higher - known.higher, same - 1 - known.same};
                for (int i = 0; i < 4; ++i) counts[4 * place + i] = finite ? found[i] : -1;
            }
        }
    });
}
