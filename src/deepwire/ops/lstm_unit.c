/* What a unit of a depth-wise LSTM does between its products, row by row: see lstm_unit.py.

Matrices are float, or bfloat16 where `narrow` is set; `mapped` has rows of `span` numbers, of which these
functions read and write the first or last n. Gates are `groups` vectors with a mean and variance each.
Masks are bytes; NULL: nothing is dropped. Each call adds to sums of its own: of gains, then of biases.
Where `output` is NULL, there is no output gate, and `direct` is added to the cell. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t size;
typedef const unsigned char *bytes;

static inline float bits_to_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint32_t float_to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

static void load(float *to, const void *from, size first, size n, size narrow) {
    if (!narrow) { memcpy(to, (const float *)from + first, n * 4); return; }
    const uint16_t *x = (const uint16_t *)from + first;
    for (size j = 0; j < n; j++) to[j] = bits_to_float((uint32_t)x[j] << 16);
}

static void store(void *to, size first, const float *x, size n, size narrow) {
    if (!narrow) { memcpy((float *)to + first, x, n * 4); return; }
    uint16_t *y = (uint16_t *)to + first;
    for (size j = 0; j < n; j++) {
        uint32_t bits = float_to_bits(x[j]), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        y[j] = x[j] != x[j] ? 0x7fc0 : rounded;
    }
}

static inline float sigmoid(float x) {
    /* e^-|x| = 2^k 2^r with r from -1/2 to 1/2, whose power is a polynomial. */
    float t = fabsf(x) * -1.44269504f;
    t = t < -126.0f ? -126.0f : t;
    float k = rintf(t), r = (t - k) * 0.69314718f;
    float p = 1 + r * (1 + r * (0.5f + r * (0.16666667f + r * (0.041666667f + r * (0.0083333333f + r * 0.0013888889f)))));
    float e = p * bits_to_float((uint32_t)((int32_t)k + 127) << 23), s = 1 / (1 + e);
    return x < 0 ? e * s : s;
}

static void drop(float *x, bytes mask, size first, size n, float scale) {
    if (mask) for (size j = 0; j < n; j++) x[j] *= scale * mask[first + j];
}

/* Normalise n numbers in place and put gain and bias into y; the factor of all. */
static float norm(float *x, float *y, const float *gain, const float *shift, size n, float eps) {
    float mean = 0, square = 0;
    for (size j = 0; j < n; j++) mean += x[j];
    mean /= n;
    for (size j = 0; j < n; j++) { x[j] -= mean; square += x[j] * x[j]; }
    float rate = 1 / sqrtf(square / n + eps);
    for (size j = 0; j < n; j++) { x[j] *= rate; y[j] = x[j] * gain[j] + shift[j]; }
    return rate;
}

/* From the gradient z of what `norm` gave to that of what it read, in z; sums are n apart from `apart`. */
static void norm_back(float *z, const float *x, const float *gain, float rate, size n, float *sums, size apart) {
    float mean = 0, along = 0;
    for (size j = 0; j < n; j++) {
        sums[j] += z[j] * x[j];
        sums[apart + j] += z[j];
        z[j] *= gain[j];
        mean += z[j];
        along += z[j] * x[j];
    }
    mean /= n, along /= n;
    for (size j = 0; j < n; j++) z[j] = rate * (z[j] - mean - x[j] * along);
}

static void gates(float *x, float *y, float *rates, const float *gain, const float *shift, size n, size groups, float eps) {
    size m = n / groups;
    for (size g = 0; g < groups; g++) rates[g] = norm(x + g * m, y + g * m, gain + g * m, shift + g * m, m, eps);
    for (size j = 0; j < n; j++) y[j] = sigmoid(y[j]);
}

void glu(size from, size to, size n, size span, size groups, size narrow, float eps, float scale, const void *mapped,
         const float *gain, const float *shift, bytes mask, void *inner) {
    float *x = malloc(n * 8), *y = x + n;
    for (size i = from; i < to; i++) {
        load(x, mapped, (i + 1) * span - n, n, narrow);
        norm(x, y, gain, shift, n, eps);
        for (size j = 0; j < n / 2; j++) y[j] *= sigmoid(y[n / 2 + j]);
        drop(y, mask, i * (n / 2), n / 2, scale);
        store(inner, i * (n / 2), y, n / 2, narrow);
    }
    free(x);
}

void glu_back(size from, size to, size n, size span, size groups, size narrow, float eps, float scale, const void *mapped,
              const float *gain, const float *shift, bytes mask, void *inner, const void *of_inner, void *of_mapped,
              float *sums) {
    size h = n / 2;
    float *x = malloc(n * 12), *y = x + n, *z = y + n;
    for (size i = from; i < to; i++) {
        load(x, mapped, (i + 1) * span - n, n, narrow);
        float rate = norm(x, y, gain, shift, n, eps);
        load(z, of_inner, i * h, h, narrow);
        drop(z, mask, i * h, h, scale);
        for (size j = 0; j < h; j++) {
            float s = sigmoid(y[h + j]);
            z[h + j] = z[j] * y[j] * s * (1 - s);
            z[j] *= s;
            y[j] *= s;
        }
        drop(y, mask, i * h, h, scale);
        store(inner, i * h, y, h, narrow);
        norm_back(z, x, gain, rate, n, sums, n);
        store(of_mapped, (i + 1) * span - n, z, n, narrow);
    }
    free(x);
}

void cell(size from, size to, size d, size span, size groups, size narrow, float eps, float scale, const void *mapped,
          const float *gain, const float *shift, bytes mask, void *state, const void *direct, const float *before,
          float *output, float *after) {
    size n = output ? 3 * d : 2 * d;
    float *x = malloc(d * 28), *y = x + n, *h = y + n, rates[3];
    for (size i = from; i < to; i++) {
        load(x, mapped, i * span, n, narrow);
        gates(x, y, rates, gain, shift, n, groups, eps);
        load(h, state, i * d, d, narrow);
        if (mask) {
            drop(h, mask, i * d, d, scale);
            store(state, i * d, h, d, narrow);
            load(h, state, i * d, d, narrow);
        }
        for (size j = 0; j < d; j++) h[j] = before[i * d + j] * y[d + j] + h[j] * y[j];
        if (output) for (size j = 0; j < d; j++) output[i * d + j] = h[j] * y[2 * d + j];
        else {
            load(x, direct, i * d, d, narrow);
            for (size j = 0; j < d; j++) h[j] += x[j];
        }
        memcpy(after + i * d, h, d * 4);
    }
    free(x);
}

void cell_back(size from, size to, size d, size span, size groups, size narrow, float eps, float scale, const void *mapped,
               const float *gain, const float *shift, bytes mask, const void *state, const float *before,
               const float *of_output, const float *of_after, float *of_before, void *of_state, void *of_mapped,
               float *sums) {
    size n = of_output ? 3 * d : 2 * d, m = n / groups;
    float *x = malloc(d * 40), *y = x + n, *z = y + n, *h = z + n, rates[3];
    for (size i = from; i < to; i++) {
        load(x, mapped, i * span, n, narrow);
        gates(x, y, rates, gain, shift, n, groups, eps);
        load(h, state, i * d, d, narrow);
        for (size j = 0; j < d; j++) {
            float in = y[j], keep = y[d + j], came = before[i * d + j], total = of_after[i * d + j];
            if (of_output) {
                float out = y[2 * d + j], arrived = of_output[i * d + j];
                total += arrived * out;
                z[2 * d + j] = arrived * (came * keep + h[j] * in) * out * (1 - out);
            }
            z[j] = total * h[j] * in * (1 - in);
            z[d + j] = total * came * keep * (1 - keep);
            of_before[i * d + j] = total * keep;
            h[j] = total * in;
        }
        drop(h, mask, i * d, d, scale);
        store(of_state, i * d, h, d, narrow);
        for (size g = 0; g < groups; g++) norm_back(z + g * m, x + g * m, gain + g * m, rates[g], m, sums + g * m, n);
        store(of_mapped, i * span, z, n, narrow);
    }
    free(x);
}
