// Shared by all loops of the fused CPU engine: threads, stable functions, codes that Python and C++ agree on.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

// Loops become vector instructions only if what they call is inlined, which compilers do not always see.
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define EXPORT extern "C" __attribute__((visibility("default")))

// The same codes as in engines/base.py.
enum Loss { MULTICLASS = 0, PAIRWISE, NLL, BCE, MARGIN, SELF_ADVERSARIAL, SQUARED, LABEL };
enum Nonlinearity { LINEAR = 0, SOFTPLUS, SIGMOID, TANH };
enum Similarity { DOT = 0, L1, L2 };
enum QueryOperation { PRODUCT = 0, COMPLEX, SUM, PRECOMPUTED };  // PRECOMPUTED: Python computed the queries

constexpr float MASKED = -std::numeric_limits<float>::infinity();  // the score of a negative that does not count

// Calls work(thread) on each of `threads` threads. Starting a thread takes about 20 µs, little compared to a batch, and
// unlike a standing thread pool it neither spins on a core that torch needs nor dies in a forked child.
template <class Work>
void in_parallel(int threads, Work work) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (auto& other : others) other.join();
}

// Where share number `share` of [0, count) begins, if it is divided into `shares` even shares.
inline int64_t share_start(int64_t count, int share, int shares) { return count * share / shares; }

// A product that compilers must not fuse with the sum it goes into: equal terms stay equal wherever they are computed.
INLINE float rounded(float x) {
#if defined(__has_builtin) && __has_builtin(__builtin_assoc_barrier)
    return __builtin_assoc_barrier(x);
#else
    return x;
#endif
}

// eˣ within 2 units in the last place; results are clamped to about [1e-38, 3e38]. Unlike the standard library's, it is
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

// ln(1 + eˣ) and its derivative, the logistic function. With u = e^−|x| in (0, 1] the logarithm is 2·artanh(u / (2 +
// u)), so that small u keep their digits. Both need a reciprocal; divisions are expensive, so it comes from a cubic
// polynomial within 0.4 %, whose error is squared by each of two Newton steps.
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
