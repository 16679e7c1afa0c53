/* SPDX-License-Identifier: Apache-2.0 */
/* The distribution of |z| for a discrete Gaussian z with a standard deviation of 16 (Canonne,
 * Kamath and Steinke, 2020): 2^63 times the probability of at most 0, 1, 2, ... */
#ifndef WHET_GAUSSIAN_H
#define WHET_GAUSSIAN_H

#include <stdint.h>

#define WHET_GAUSSIAN_COUNT 146

static const uint64_t whet_gaussian[WHET_GAUSSIAN_COUNT] = {
    0x033108a67a86ca12u, 0x098fe9b6e93cb011u, 0x0fe5439ce87804e4u, 0x162adbdc6da901b6u,
    0x1c5aa6c4aed8b4d2u, 0x226ed8e234ceb770u, 0x2861f735e5277785u, 0x2e2ee5e5bc102f24u,
    0x33d0f5264431da2eu, 0x3943ec27bf1781e8u, 0x3e8411defb0d73f8u, 0x438e338f97418955u,
    0x485fa90b828e8e78u, 0x4cf656a9649500f0u, 0x5150ad00f091a25bu, 0x556da6887bea5a37u,
    0x594cc33a424d4125u, 0x5cee0271404d8b4fu, 0x6051db35469679fcu, 0x63793333b845a78fu,
    0x666554a63e83c084u, 0x6917e36a9bdafd08u, 0x6b92d18ec5cfaeafu, 0x6dd85392a4aede38u,
    0x6fead49d7ef2aec5u, 0x71cceae05faca394u, 0x73814c58f5f7c475u, 0x750ac421c2a45b80u,
    0x766c28752e95be3cu, 0x77a851819bcc341bu, 0x78c21124ed39e1e5u, 0x79bc2b9e98efb7d2u,
    0x7a99514050318e75u, 0x7b5c191ecc62a827u, 0x7c06fcbe801c80a8u, 0x7c9c54b2e1567d62u,
    0x7d1e5622cb448a70u, 0x7d8f11211abaafadu, 0x7df06fc624c7efddu, 0x7e4435f4f44c747au,
    0x7e8c01b64a49bdd2u, 0x7ec94c131ad65fdbu, 0x7efd6a589810c46au, 0x7f298fb0b545c18du,
    0x7f4ecefb4e0c4555u, 0x7f6e1cd5aecfcb36u, 0x7f8851c006a8996cu, 0x7f9e2c5237abce91u,
    0x7fb0537377834519u, 0x7fbf588a2d29256au, 0x7fcbb99b63e69805u, 0x7fd5e352fbd705eeu,
    0x7fde32ef6c9c19feu, 0x7fe4f80d71a6c1cfu, 0x7fea76514ce0e09du, 0x7feee6ec731084ddu,
    0x7ff279ff6d3981a1u, 0x7ff557d88535a4c6u, 0x7ff7a210747b06bbu, 0x7ff97486c625cbd5u,
    0x7ffae63ff4f0764eu, 0x7ffc0a278734d161u, 0x7ffcefb88acb61b3u, 0x7ffda38edd034605u,
    0x7ffe2fe3a4194baau, 0x7ffe9cf74b58851au, 0x7ffef16b34d39c54u, 0x7fff328d2e6adafcu,
    0x7fff64968e26ac95u, 0x7fff8ae0adf30455u, 0x7fffa81052378b3eu, 0x7fffbe395afd30f4u,
    0x7fffcefbf5506e00u, 0x7fffdb9c5b124165u, 0x7fffe5160aeb2b4du, 0x7fffec2b40d8e6ceu,
    0x7ffff17159f4d591u, 0x7ffff55ab390550fu, 0x7ffff83e7e7f3c70u, 0x7ffffa5eeb2fb18fu,
    0x7ffffbee01c5fe1fu, 0x7ffffd116a9921e1u, 0x7ffffde55edcedc1u, 0x7ffffe7eeebc3164u,
    0x7ffffeedc15f29feu, 0x7fffff3d6c1a31ceu, 0x7fffff76780df28fu, 0x7fffff9f28a9e1d1u,
    0x7fffffbc11961af6u, 0x7fffffd08762e7ceu, 0x7fffffdef3d7fd6fu, 0x7fffffe914be23b0u,
    0x7ffffff02a6ab6c5u, 0x7ffffff51a184c08u, 0x7ffffff88721625cu, 0x7ffffffae57323dbu,
    0x7ffffffc86fb3398u, 0x7ffffffda562e0b7u, 0x7ffffffe69144dcfu, 0x7ffffffeee451eb4u,
    0x7fffffff489148ceu, 0x7fffffff858bf1bdu, 0x7fffffffae90ef6eu, 0x7fffffffca0d3601u,
    0x7fffffffdc658b6cu, 0x7fffffffe897df7eu, 0x7ffffffff0aba408u, 0x7ffffffff5ffaf5cu,
    0x7ffffffff97ffef8u, 0x7ffffffffbcaaa02u, 0x7ffffffffd4929a4u, 0x7ffffffffe4192d6u,
    0x7ffffffffee245f6u, 0x7fffffffff49d38cu, 0x7fffffffff8c4b6du, 0x7fffffffffb6caf1u,
    0x7fffffffffd1dbe6u, 0x7fffffffffe3079fu, 0x7fffffffffede163u, 0x7ffffffffff4b5e2u,
    0x7ffffffffff8fe34u, 0x7ffffffffffbaaedu, 0x7ffffffffffd54e9u, 0x7ffffffffffe5ce4u,
    0x7ffffffffffeffd9u, 0x7fffffffffff640bu, 0x7fffffffffffa169u, 0x7fffffffffffc6dau,
    0x7fffffffffffdd9bu, 0x7fffffffffffeb61u, 0x7ffffffffffff3afu, 0x7ffffffffffff8acu,
    0x7ffffffffffffba8u, 0x7ffffffffffffd70u, 0x7ffffffffffffe7eu, 0x7fffffffffffff1eu,
    0x7fffffffffffff7cu, 0x7fffffffffffffb3u, 0x7fffffffffffffd4u, 0x7fffffffffffffe6u,
    0x7ffffffffffffff1u, 0x7ffffffffffffff8u, 0x7ffffffffffffffbu, 0x7ffffffffffffffdu,
    0x7ffffffffffffffeu, 0x7fffffffffffffffu,
};

#endif
