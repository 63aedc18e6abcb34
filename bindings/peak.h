/* The most that one core computes, for rooflines. */
#pragma once

/* Float32 multiplications and additions a second, in registers alone, with the widest FMA this machine has: the best of many short runs
 * within `seconds`, since on a busy machine that is the one least disturbed. */
double peak_flops_per_s(double seconds);
