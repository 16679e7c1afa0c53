/* For compilers without a C library: what the program uses of it, which they bring themselves. */
#ifndef WHET_MATH_H
#define WHET_MATH_H

#define NAN      __builtin_nanf("")
#define INFINITY __builtin_inff()

float cosf(float x);
float erfcf(float x);
float erff(float x);
float expf(float x);
float expm1f(float x);
float fabsf(float x);
float floorf(float x);
float log1pf(float x);
float logf(float x);
float rintf(float x);
float sinf(float x);
float sqrtf(float x);
float tanhf(float x);
float truncf(float x);
float powf(float x, float y);

#endif
