// f16 and bf16 as their 16 bits, by integers: as a GPU converts them, but for the bits of a NaN.
#ifndef TG_NUMBERS
#define TG_NUMBERS

namespace tg {
template <class To, class From> static inline To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To y;
  __builtin_memcpy(&y, &x, sizeof x);
  return y;
}

static inline float from_bf16(unsigned short x) { return bits<float>((unsigned)x << 16); }

// To the nearest, ties to even.
static inline unsigned short to_bf16(float x) {
  const unsigned u = bits<unsigned>(x);
  return x != x ? 0x7fc0 : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float from_f16(unsigned short x) {
  const unsigned m = x & 0x7fff, s = (unsigned)(x & 0x8000) << 16, n = (m << 13) + 0x38000000u;
  const unsigned small = bits<unsigned>((float)m * 0x1p-24f), special = n + 0x38000000u;
  return bits<float>(s | (m < 0x400 ? small : m < 0x7c00 ? n : special));
}

// To the nearest, ties to even.
static inline unsigned short to_f16(float x) {
  const unsigned u = bits<unsigned>(x), a = u & 0x7fffffff, s = u >> 16 & 0x8000;
  const unsigned n = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  const unsigned small = bits<unsigned>(bits<float>(a) + 0.5f) - 0x3f000000u;
  const unsigned special = a > 0x7f800000u ? 0x7e00 : 0x7c00;
  return (unsigned short)(s | (a < 0x38800000u ? small : a < 0x47800000u ? n : special));
}

// To the nearest with 10 bits of a fraction, ties away from zero, as cvt.rna does.
static inline unsigned to_tf32(float x) {
  const unsigned u = bits<unsigned>(x);
  if (x != x) return 0x7fffffff;
  return (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & 0xffffe000u;
}
}  // namespace tg
#endif
