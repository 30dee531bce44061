// Threads, numerically stable functions and the codes shared with Python, for all C++ code of the fused CPU engine.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

// Compilers vectorize a loop only if the functions that it calls are inlined, which they do not always do on their own.
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define EXPORT extern "C" __attribute__((visibility("default")))

// The same codes as in engines/base.py.
enum Loss { MULTICLASS = 0, PAIRWISE, NLL, BCE, MARGIN, SELF_ADVERSARIAL, SQUARED, LABEL, CROSS_ENTROPY };
enum Nonlinearity { LINEAR = 0, SOFTPLUS, SIGMOID, TANH };
enum Similarity { DOT = 0, L1, L2 };
enum QueryOperation { PRODUCT = 0, COMPLEX, SUM, PRECOMPUTED };  // PRECOMPUTED: Python has computed the queries

constexpr float MASKED = -std::numeric_limits<float>::infinity();  // the score of a negative that does not count

// Calls work(thread) on each of `threads` threads. Starting a thread takes about 20 µs, which is short compared to a
// batch. A persistent thread pool would spin on cores that torch needs, and would not exist in a forked child.
template <class Work>
void in_parallel(int threads, Work work) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (auto& other : others) other.join();
}

// Returns where part `share` begins if [0, count) is divided into `shares` parts of equal size.
inline int64_t share_start(int64_t count, int share, int shares) { return count * share / shares; }

// Prevents the compiler from fusing a product into a following sum, so that equal terms are rounded equally everywhere.
INLINE float rounded(float x) {
#if defined(__has_builtin) && __has_builtin(__builtin_assoc_barrier)
    return __builtin_assoc_barrier(x);
#else
    return x;
#endif
}

// Computes eˣ within 2 units in the last place; results are clamped to about [1e-38, 3e38]. Unlike std::exp, it is
// written so that compilers vectorize loops that call it.
INLINE float fast_exp(float x) {
    x = std::min(std::max(x, -87.0f), 88.3f);
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounded to a whole number
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// A function's value and its derivative.
struct ValueSlope {
    float value, slope;
};

// Computes ln(1 + eˣ) and its derivative, the logistic function. With u = e^−|x| in (0, 1] the logarithm is
// 2·artanh(u / (2 + u)), which is accurate for small u. Both need a reciprocal. Divisions are expensive, so it is
// approximated by a cubic polynomial within 0.4 %, whose error is squared by each of two Newton steps.
INLINE ValueSlope softplus(float x) {
    const float u = fast_exp(-std::fabs(x)), d = (1.0f + u) * (2.0f + u);
    float inverse = ((-0.18846915f * u + 0.54826979f) * u - 0.69185063f) * u + 0.49807505f;
    inverse *= 2.0f - d * inverse;
    inverse *= 2.0f - d * inverse;
    const float s = u * inverse * (1.0f + u), z = s * s, rest = inverse * (2.0f + u);
    float p = 1.0f / 13.0f;
    p = p * z + 1.0f / 11.0f;
    p = p * z + 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 1.0f / 5.0f;
    p = p * z + 1.0f / 3.0f;
    return {std::max(x, 0.0f) + 2.0f * (s + s * z * p), x >= 0.0f ? rest : u * rest};
}

INLINE float logistic(float x) {
    const float u = fast_exp(-std::fabs(x)), inverse = 1.0f / (1.0f + u);
    return x >= 0.0f ? inverse : u * inverse;
}

template <int nonlinearity>
INLINE ValueSlope apply_nonlinearity(float x) {
    if constexpr (nonlinearity == SOFTPLUS) return softplus(x);
    if constexpr (nonlinearity == SIGMOID) {
        const float s = logistic(x);
        return {s, s * (1.0f - s)};
    }
    if constexpr (nonlinearity == TANH) {
        const float t = 2.0f * logistic(2.0f * x) - 1.0f;
        return {t, 1.0f - t * t};
    }
    return {x, 1.0f};
}
