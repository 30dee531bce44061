// Arithmetic on rows of embeddings: queries, comparisons and their gradients, as in models/.
#pragma once

#include "common.hpp"

// Sixteen numbers at once; where a processor has shorter registers the compiler uses several.
typedef float Lanes __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));

// Columns that a loop may keep in registers, as numbers of Lanes, with two sums each.
#ifdef __AVX512F__
constexpr int TOGETHER = 6;
#else
constexpr int TOGETHER = 2;
#endif

template <class Number = Lanes>
INLINE Number load(const float* from) {
    Number numbers;
    __builtin_memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

template <class Number>
INLINE void store(float* to, Number numbers) {
    __builtin_memcpy(to, &numbers, sizeof numbers);
}

INLINE Lanes spread(float x) { return x - Lanes{}; }

// Added up by halves: few steps, and always the same order.
INLINE float sum_of(Lanes lanes, Half rest) {
    const Half eight = rest + __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
    const Half four = eight + __builtin_shufflevector(eight, eight, 4, 5, 6, 7, 0, 1, 2, 3);
    const Half two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5);
    return two[0] + two[1];
}

#define ROW float* __restrict
#define CONST_ROW const float* __restrict

// What to look for on a side, given the other side's row.
inline void make_query(int turn, bool of_tail, CONST_ROW known, CONST_ROW relation, ROW query, int64_t width) {
    const float sign = of_tail ? 1.0f : -1.0f;
    if (turn == COMPLEX) {
        const int64_t half = width / 2;
#pragma omp simd
        for (int64_t j = 0; j < half; ++j) {
            const float a = known[j], b = known[half + j], c = relation[j], e = sign * relation[half + j];
            query[j] = a * c - b * e;
            query[half + j] = a * e + b * c;
        }
    } else if (turn == SUM) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) query[j] = known[j] + sign * relation[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) query[j] = known[j] * relation[j];
    }
}

// From a query's gradient to those of the rows it was made of, added or, being the first (the known row's) or fresh (the
// relation's), set.
template <bool first, bool fresh>
inline void query_gradient(int turn, bool of_tail, CONST_ROW known, CONST_ROW relation, CONST_ROW gradient,
                           ROW of_known, ROW of_relation, int64_t width) {
    const float sign = of_tail ? 1.0f : -1.0f;
    if (turn == COMPLEX) {
        const int64_t half = width / 2;
#pragma omp simd
        for (int64_t j = 0; j < half; ++j) {
            const float a = known[j], b = known[half + j], c = relation[j], e = sign * relation[half + j];
            const float real = gradient[j], imaginary = gradient[half + j];
            of_known[j] = (first ? 0.0f : of_known[j]) + (real * c + imaginary * e);
            of_known[half + j] = (first ? 0.0f : of_known[half + j]) + (imaginary * c - real * e);
            of_relation[j] = (fresh ? 0.0f : of_relation[j]) + (real * a + imaginary * b);
            of_relation[half + j] = (fresh ? 0.0f : of_relation[half + j]) + sign * (imaginary * a - real * b);
        }
    } else if (turn == SUM) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            of_known[j] = (first ? 0.0f : of_known[j]) + gradient[j];
            of_relation[j] = (fresh ? 0.0f : of_relation[j]) + sign * gradient[j];
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            of_known[j] = (first ? 0.0f : of_known[j]) + gradient[j] * relation[j];
            of_relation[j] = (fresh ? 0.0f : of_relation[j]) + gradient[j] * known[j];
        }
    }
}

template <int form, class Number>
INLINE Number apart(Number query, Number row) {
    if constexpr (form == DOT) return query * row;
    const Number step = query - row;
    if constexpr (form == L2) return step * step;
    return step < 0.0f ? -step : step;
}

template <int form>
INLINE float comparison_of(float sum) {
    if constexpr (form == DOT) return sum;
    return form == L1 ? -sum : -std::sqrt(sum);
}

// `count` queries with a row each at once, which do not wait for each other's sums.
template <int form, int count>
INLINE void compare(const float* const queries[count], const float* const rows[count], float results[count],
                    int64_t width) {
    Lanes sums[count] = {};
    Half halves[count] = {};
    float rest[count] = {};
    int64_t j = 0;
    for (; j + 16 <= width; j += 16)
        for (int c = 0; c < count; ++c) sums[c] += apart<form>(load(queries[c] + j), load(rows[c] + j));
    if (j + 8 <= width) {
        for (int c = 0; c < count; ++c) halves[c] += apart<form>(load<Half>(queries[c] + j), load<Half>(rows[c] + j));
        j += 8;
    }
    for (; j < width; ++j)
        for (int c = 0; c < count; ++c) rest[c] += apart<form>(queries[c][j], rows[c][j]);
    for (int c = 0; c < count; ++c) results[c] = comparison_of<form>(sum_of(sums[c], halves[c]) + rest[c]);
}

template <int form>
INLINE float compare(const float* query, const float* row, int64_t width) {
    float result;
    compare<form, 1>(&query, &row, &result, width);
    return result;
}

// How a comparison of two rows changes with the one of them that is `own`. For L2 times the distance.
template <int form, class Number>
INLINE Number pull(Number own, Number other) {
    if constexpr (form == DOT) return other;
    const Number step = other - own, nothing = step - step, one = nothing + 1.0f;
    if constexpr (form == L2) return step;
    return (step > nothing ? one : nothing) - (step < nothing ? one : nothing);
}

template <int form, bool first = false>
inline void add_pull(float slope, CONST_ROW other, CONST_ROW own, ROW gradient, int64_t width) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j)
        gradient[j] = (first ? 0.0f : gradient[j]) + slope * pull<form>(own[j], other[j]);
}

// As torch has it, a distance of 0 pulls nowhere.
template <int form>
inline float by_distance(float slope, float comparison) {
    if constexpr (form != L2) return slope;
    return comparison < 0.0f ? slope / -comparison : 0.0f;
}
