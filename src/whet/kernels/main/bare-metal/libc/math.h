/* The parts of the C library that programs use, for compilers without one. The compiler in ziglang
 * provides the first group itself; a program that needs one of the others fails to link. */
#ifndef WHET_MATH_H
#define WHET_MATH_H

#define NAN         __builtin_nanf("")
#define INFINITY    __builtin_inff()
#define isfinite(x) __builtin_isfinite(x)

float cosf(float x);
float expf(float x);
float fabsf(float x);
float floorf(float x);
float logf(float x);
float sinf(float x);
float sqrtf(float x);
float truncf(float x);

float erfcf(float x);
float erff(float x);
float expm1f(float x);
float log1pf(float x);
float tanhf(float x);
float powf(float x, float y);

static inline float copysignf(float x, float y) { return __builtin_copysignf(x, y); }

/* Round to nearest, ties to even: floats from 2^23 on have no fraction. */
static inline float rintf(float x) {
    const float size = x < 0.0f ? -x : x, big = 8388608.0f;
    if (!(size < big)) return x;
    const float rounded = (size + big) - big;
    return __builtin_copysignf(rounded, x);
}

#endif
