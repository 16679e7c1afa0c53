/* For compilers without a C library: what programs use of it. The compiler in ziglang has the first
 * of these itself; a program that needs one of the others is refused by its linker. */
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

/* To the nearest, halves to even: from 2^23 on there are no fractions. */
static inline float rintf(float x) {
    const float size = x < 0.0f ? -x : x, big = 8388608.0f;
    if (!(size < big)) return x;
    const float rounded = (size + big) - big;
    return __builtin_copysignf(rounded, x);
}

#endif
