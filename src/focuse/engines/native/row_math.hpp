// Arithmetic on embedding rows: queries, their similarity to rows, and the gradients of both, as in models/.
#pragma once

#include "common.hpp"

// A vector of sixteen floats; on a processor with shorter registers the compiler uses several of them.
typedef float Lanes __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));

// Number of Lanes of columns that a loop keeps in registers, with two sums for each.
#ifdef __AVX512F__
constexpr int LANES_TOGETHER = 6;
#else
constexpr int LANES_TOGETHER = 2;
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

// Sums all lanes by halving, in few steps and always in the same order.
INLINE float sum_of(Lanes lanes, Half rest) {
    const Half eight = rest + __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
    const Half four = eight + __builtin_shufflevector(eight, eight, 4, 5, 6, 7, 0, 1, 2, 3);
    const Half two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5);
    return two[0] + two[1];
}

#define ROW float* __restrict
#define CONST_ROW const float* __restrict

// Computes the query of one side of a triple: the vector to which the entity on that side should be similar.
inline void make_query(int operation, bool predicts_tail, CONST_ROW known, CONST_ROW relation, ROW query,
                       int64_t width) {
    const float sign = predicts_tail ? 1.0f : -1.0f;
    if (operation == COMPLEX) {
        const int64_t half = width / 2;
#pragma omp simd
        for (int64_t j = 0; j < half; ++j) {
            const float a = known[j], b = known[half + j], c = relation[j], e = sign * relation[half + j];
            query[j] = a * c - b * e;
            query[half + j] = a * e + b * c;
        }
    } else if (operation == SUM) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) query[j] = known[j] + sign * relation[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) query[j] = known[j] * relation[j];
    }
}

// Backpropagates the gradient of a query to the rows it was computed from. The gradients are added to the outputs, or
// overwrite them if `set_known` or `set_relation` is true.
template <bool set_known, bool set_relation>
inline void backpropagate_query(int operation, bool predicts_tail, CONST_ROW known, CONST_ROW relation,
                                CONST_ROW gradient, ROW known_gradient, ROW relation_gradient, int64_t width) {
    const float sign = predicts_tail ? 1.0f : -1.0f;
    if (operation == COMPLEX) {
        const int64_t half = width / 2;
#pragma omp simd
        for (int64_t j = 0; j < half; ++j) {
            const float a = known[j], b = known[half + j], c = relation[j], e = sign * relation[half + j];
            const float real = gradient[j], imaginary = gradient[half + j];
            known_gradient[j] = (set_known ? 0.0f : known_gradient[j]) + (real * c + imaginary * e);
            known_gradient[half + j] = (set_known ? 0.0f : known_gradient[half + j]) + (imaginary * c - real * e);
            relation_gradient[j] = (set_relation ? 0.0f : relation_gradient[j]) + (real * a + imaginary * b);
            relation_gradient[half + j] =
                (set_relation ? 0.0f : relation_gradient[half + j]) + sign * (imaginary * a - real * b);
        }
    } else if (operation == SUM) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            known_gradient[j] = (set_known ? 0.0f : known_gradient[j]) + gradient[j];
            relation_gradient[j] = (set_relation ? 0.0f : relation_gradient[j]) + sign * gradient[j];
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            known_gradient[j] = (set_known ? 0.0f : known_gradient[j]) + gradient[j] * relation[j];
            relation_gradient[j] = (set_relation ? 0.0f : relation_gradient[j]) + gradient[j] * known[j];
        }
    }
}

// Returns the term of one column in the sum from which `similarity_of_sum` computes the similarity.
template <int similarity, class Number>
INLINE Number similarity_term(Number query, Number row) {
    if constexpr (similarity == DOT) return query * row;
    const Number step = query - row;
    if constexpr (similarity == L2) return step * step;
    return step < 0.0f ? -step : step;
}

template <int similarity>
INLINE float similarity_of_sum(float sum) {
    if constexpr (similarity == DOT) return sum;
    return similarity == L1 ? -sum : -std::sqrt(sum);
}

// Computes the similarities of `count` pairs of a query and a row. They are interleaved to hide the latency of the
// sums.
template <int similarity, int count>
INLINE void similarity_of(const float* const queries[count], const float* const rows[count], float results[count],
                          int64_t width) {
    Lanes sums[count] = {};
    Half halves[count] = {};
    float rest[count] = {};
    int64_t j = 0;
    for (; j + 16 <= width; j += 16)
        for (int c = 0; c < count; ++c) sums[c] += similarity_term<similarity>(load(queries[c] + j), load(rows[c] + j));
    if (j + 8 <= width) {
        for (int c = 0; c < count; ++c)
            halves[c] += similarity_term<similarity>(load<Half>(queries[c] + j), load<Half>(rows[c] + j));
        j += 8;
    }
    for (; j < width; ++j)
        for (int c = 0; c < count; ++c) rest[c] += similarity_term<similarity>(queries[c][j], rows[c][j]);
    for (int c = 0; c < count; ++c) results[c] = similarity_of_sum<similarity>(sum_of(sums[c], halves[c]) + rest[c]);
}

template <int similarity>
INLINE float similarity_of(const float* query, const float* row, int64_t width) {
    float result;
    similarity_of<similarity, 1>(&query, &row, &result, width);
    return result;
}

// Returns the derivative of the similarity of two rows with respect to the row `own`; for L2 multiplied by their
// distance.
template <int similarity, class Number>
INLINE Number similarity_gradient(Number own, Number other) {
    if constexpr (similarity == DOT) return other;
    const Number step = other - own, nothing = step - step, one = nothing + 1.0f;
    if constexpr (similarity == L2) return step;
    return (step > nothing ? one : nothing) - (step < nothing ? one : nothing);
}

template <int similarity, bool set = false>
inline void add_similarity_gradient(float slope, CONST_ROW other, CONST_ROW own, ROW gradient, int64_t width) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j)
        gradient[j] = (set ? 0.0f : gradient[j]) + slope * similarity_gradient<similarity>(own[j], other[j]);
}

// Divides by the distance that `similarity_gradient` leaves out for L2. As in torch, the gradient is 0 at distance 0.
template <int similarity>
inline float divide_by_distance(float slope, float raw_score) {
    if constexpr (similarity != L2) return slope;
    return raw_score < 0.0f ? slope / -raw_score : 0.0f;
}
