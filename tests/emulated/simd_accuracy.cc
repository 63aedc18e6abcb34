// tests/simd/accuracy.cc under Bochs 2.7, whose FPATAN, so the C library's arc functions in long double, is good for 13 digits only. They are what
// the double functions are compared with; here those of double are.
#include "../simd/check.h"

#define asinl(x) ::asin(double(x))
#define acosl(x) ::acos(double(x))
#define atanl(x) ::atan(double(x))
#include "../simd/accuracy.cc"
