// Optimisers of rows, as in training/optimisers.py, with the penalty's gradient added on the way.
#pragma once

#include "common.hpp"

enum Method { ADAM = 0, ADAGRAD };
enum Scope { TABLES = 0, TOUCHED, ROWS };

struct Optimiser {
    int32_t method, whole;       // whole: rows without an entry move as well
    float lr, first, second, tiny;
    float first_bias, second_bias;  // 1 − βᵗ
};

// γ for this row: once, or once for each time that a positive has it at an end.
inline float penalty_of(int scope, float strength, int64_t ends) {
    return scope == ROWS ? strength * static_cast<float>(ends) : strength;
}

inline float penalty_slope(int power, float x) {
    if (power == 1) return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    return power == 2 ? 2.0f * x : 3.0f * x * std::fabs(x);
}

INLINE void move_row(const Optimiser& o, float* __restrict x, float* __restrict first, float* __restrict second,
                     float* __restrict gradient, int64_t columns, float strength, int power) {
    if (strength != 0.0f && power == 3) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) gradient[j] += strength * 3.0f * x[j] * std::fabs(x[j]);
    } else if (strength != 0.0f && power) {
        for (int64_t j = 0; j < columns; ++j) gradient[j] += strength * penalty_slope(power, x[j]);
    }
    if (o.method == ADAGRAD) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
            first[j] += gradient[j] * gradient[j];
            x[j] -= o.lr * gradient[j] / (std::sqrt(first[j]) + o.tiny);
        }
        return;
    }
    const float rate = o.lr / o.first_bias, root = 1.0f / std::sqrt(o.second_bias);
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
        first[j] += (1.0f - o.first) * (gradient[j] - first[j]);
        second[j] += (1.0f - o.second) * (gradient[j] * gradient[j] - second[j]);
        x[j] -= rate * first[j] / (std::sqrt(second[j]) * root + o.tiny);
    }
}
