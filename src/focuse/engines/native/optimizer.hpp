// The steps of Adam and Adagrad on rows, as in engines/optimizers.py; they also add the gradient of the regularizer.
#pragma once

#include "common.hpp"

enum Method { ADAM = 0, ADAGRAD };
enum Scope { TABLES = 0, TOUCHED, ROWS };

struct Optimizer {
    int32_t method, whole;  // whole: whether rows without a gradient are updated too
    float lr, beta1, beta2, eps;
    float bias1, bias2;     // 1 − βᵗ
};

// Returns the strength of the regularizer for one row; with scope ROWS it is multiplied by the occurrences of the row.
inline float row_penalty(int scope, float strength, int64_t occurrences) {
    return scope == ROWS ? strength * static_cast<float>(occurrences) : strength;
}

inline float penalty_slope(int power, float x) {
    if (power == 1) return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    return power == 2 ? 2.0f * x : 3.0f * x * std::fabs(x);
}

// Updates x by one optimizer step, after adding the gradient of the regularizer. Adagrad stores its sum of squares in
// `moment1`.
INLINE void optimizer_step(const Optimizer& o, float* __restrict x, float* __restrict moment1,
                           float* __restrict moment2, float* __restrict gradient, int64_t columns, float strength,
                           int power) {
    if (strength != 0.0f && power == 3) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) gradient[j] += strength * 3.0f * x[j] * std::fabs(x[j]);
    } else if (strength != 0.0f && power) {
        for (int64_t j = 0; j < columns; ++j) gradient[j] += strength * penalty_slope(power, x[j]);
    }
    if (o.method == ADAGRAD) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
            moment1[j] += gradient[j] * gradient[j];
            x[j] -= o.lr * gradient[j] / (std::sqrt(moment1[j]) + o.eps);
        }
        return;
    }
    const float rate = o.lr / o.bias1, root = 1.0f / std::sqrt(o.bias2);
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
        moment1[j] += (1.0f - o.beta1) * (gradient[j] - moment1[j]);
        moment2[j] += (1.0f - o.beta2) * (gradient[j] * gradient[j] - moment2[j]);
        x[j] -= rate * moment1[j] / (std::sqrt(moment2[j]) * root + o.eps);
    }
}
