// What the 32 lanes of a warp do together: shuffles, votes, sums; matrices from shared memory, and
// their products.
#include <cmath>
#include <cstring>

#include "numbers.hpp"
#include "runtime.hpp"

namespace tg {

// ---- shuffles and votes

enum Way : u32 { INDEX, UP, DOWN, XOR };
constexpr const char *WAYS[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                "__shfl_xor_sync"};

struct Shuffled {
  const void *value;
  void *result;
  u32 bytes, way;
  int by, width;
};

// The lane whose value a lane gets, as PTX says of shfl.sync; itself where it would leave its part.
static u32 source(u32 lane, const Shuffled &s) {
  const u32 by = (u32)s.by & 31, width = (u32)s.width, first = lane & ~(width - 1);
  switch (s.way) {
    case INDEX: return first | (by & (width - 1));
    case UP: return (int)(lane - by) >= (int)first ? lane - by : lane;
    case DOWN: return lane + by < first + width ? lane + by : lane;
    default: return (lane ^ by) < first + width ? lane ^ by : lane;
  }
}

static void shuffle(void *const *held, u32 lanes) {
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    const Shuffled &mine = *(const Shuffled *)held[lane];
    const u32 from = source(lane, mine);
    // Of a lane that is not there the value is undefined: no number, and a large one.
    if (lanes >> from & 1) memcpy(mine.result, ((const Shuffled *)held[from])->value, mine.bytes);
    else memset(mine.result, 0xff, mine.bytes);
  }
}

API void tg_host_shuffle(u32 mask, const void *value, void *result, u32 bytes, int by, int width,
                         u32 way) {
  if (width < 1 || width > 32 || (width & (width - 1)))
    fault("%s: width %d is no power of two up to 32", WAYS[way], width);
  Shuffled mine = {value, result, bytes, way, by, width};
  meet(mask, WAYS[way], &mine, shuffle);
}

enum Vote : u32 { BALLOT, ANY, ALL, SYNC, ADD, MIN, MAX, ADD_UNSIGNED, MIN_UNSIGNED, MAX_UNSIGNED };
constexpr const char *VOTES[] = {
    "__ballot_sync",     "__any_sync",        "__all_sync",        "__syncwarp",
    "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_add_sync",
    "__reduce_min_sync", "__reduce_max_sync"};

struct Voted {
  u32 value, vote, result;
};

static u32 both(u32 vote, u32 a, u32 b) {
  switch (vote) {
    case MIN: return (int)b < (int)a ? b : a;
    case MAX: return (int)b > (int)a ? b : a;
    case MIN_UNSIGNED: return b < a ? b : a;
    case MAX_UNSIGNED: return b > a ? b : a;
    default: return a + b;
  }
}

static void count(void *const *held, u32 lanes) {
  u32 yes = 0, sum = 0, vote = 0;
  bool first = true;
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    const Voted &v = *(const Voted *)held[lane];
    vote = v.vote;
    if (v.value) yes |= 1u << lane;
    sum = first ? v.value : both(vote, sum, v.value);
    first = false;
  }
  const u32 answers[] = {yes, yes != 0, yes == lanes, 0};
  for (u32 lane = 0; lane < WARP; ++lane)
    if (lanes >> lane & 1) ((Voted *)held[lane])->result = vote < ADD ? answers[vote] : sum;
}

API u32 tg_host_vote(u32 mask, u32 value, u32 vote) {
  Voted mine = {value, vote, 0};
  meet(mask, VOTES[vote], &mine, count);
  return mine.result;
}

API void tg_host_sync_warp(u32 mask) { meet(mask, VOTES[SYNC], nullptr, nullptr); }

// ---- matrices of 8 rows of 16 bytes from shared memory: ldmatrix

struct Loaded {
  u32 *registers;
  u32 address, count, transposed;
  const char *what;
};

static void load(void *const *held, u32) {
  const Loaded &all = *(const Loaded *)held[0];
  u16 matrix[8][8];
  for (u32 k = 0; k < all.count; ++k) {
    for (u32 row = 0; row < 8; ++row) {  // whose addresses are those of lanes 8k and on
      const Loaded &theirs = *(const Loaded *)held[8 * k + row];
      const u32 thread = current / WARP * WARP + 8 * k + row;
      memcpy(matrix[row], shared_at(theirs.address, 16, 16, all.what, thread), 16);
    }
    for (u32 lane = 0; lane < WARP; ++lane) {
      const u32 r = lane / 4, c = lane % 4 * 2;
      const u16 low = all.transposed ? matrix[c][r] : matrix[r][c];
      const u16 high = all.transposed ? matrix[c + 1][r] : matrix[r][c + 1];
      ((const Loaded *)held[lane])->registers[k] = (u32)low | (u32)high << 16;
    }
  }
}

API void tg_host_ldmatrix(u32 *registers, u32 address, u32 number, u32 transposed,
                          const char *what) {
  Loaded mine = {registers, address, number, transposed, what};
  meet_whole(what, &mine, load);
}

// ---- products: D += A * B, as mma.sync has it

enum Kind : u32 { F16_F32, BF16_F32, TF32_F32, F32_F32, F64_F64, S8_S32, U8_S32, F16_F16 };

struct Product {
  void *d;
  const void *a, *b;
  u32 highs, steps;
};

// Item l is (r, c) = (l / 4, l % 4). For every h, j and p, `packed` values to a register, it holds
//     A[8h + r, packed*c + j + 4*packed*s]   in register s*highs + h      h < m/8, j < packed
//     B[packed*c + j + 4*packed*s, r]        in register s                s < steps
//     C[8h + r, 2c + p]                      in register 2h + p           p < 2
// Each sum is one of the result's own type, from k = 0 on; a GPU's adds are of other widths.
template <class Sum, class Value, class Register, u32 PACKED, Value (*value)(Register, u32)>
struct Unit {
  static constexpr u32 MOST = 4, MOST_K = 4 * PACKED * 2;  // registers of a lane; k

  static void run(void *const *held, u32) {
    const Product &all = *(const Product *)held[0];
    const u32 highs = all.highs, steps = all.steps, k = 4 * PACKED * steps;
    Register ra[WARP * MOST], rb[WARP * MOST];
    for (u32 lane = 0; lane < WARP; ++lane) {
      const Product &mine = *(const Product *)held[lane];
      if (mine.highs != highs || mine.steps != steps)
        fault("lanes of its warp multiply other shapes");
      memcpy(ra + lane * highs * steps, mine.a, highs * steps * sizeof(Register));
      memcpy(rb + lane * steps, mine.b, steps * sizeof(Register));
    }
    // All values of a register's part j at once, and then to their places.
    Value va[PACKED][WARP * MOST], vb[PACKED][WARP * MOST], a[16][MOST_K], b[MOST_K][8];
    for (u32 j = 0; j < PACKED; ++j) {
      for (u32 i = 0; i < WARP * highs * steps; ++i) va[j][i] = value(ra[i], j);
      for (u32 i = 0; i < WARP * steps; ++i) vb[j][i] = value(rb[i], j);
    }
    for (u32 lane = 0; lane < WARP; ++lane)
      for (u32 s = 0; s < steps; ++s)
        for (u32 j = 0; j < PACKED; ++j) {
          const u32 inner = PACKED * (lane % 4) + j + 4 * PACKED * s;
          for (u32 h = 0; h < highs; ++h)
            a[8 * h + lane / 4][inner] = va[j][(lane * steps + s) * highs + h];
          b[inner][lane / 4] = vb[j][lane * steps + s];
        }
    for (u32 row = 0; row < 8 * highs; ++row) {
      Sum sums[8];
      for (u32 n = 0; n < 8; ++n) sums[n] = *place(held, row, n);
      for (u32 i = 0; i < k; ++i)
        for (u32 n = 0; n < 8; ++n) sums[n] += (Sum)a[row][i] * (Sum)b[i][n];
      for (u32 n = 0; n < 8; ++n) *place(held, row, n) = sums[n];
    }
  }
  static Sum *place(void *const *held, u32 row, u32 n) {
    return (Sum *)((const Product *)held[row % 8 * 4 + n / 2])->d + row / 8 * 2 + n % 2;
  }
};

static float f16(u32 x, u32 j) { return from_f16((u16)(x >> 16 * j)); }
static float bf16(u32 x, u32 j) { return from_bf16((u16)(x >> 16 * j)); }
static float tf32(u32 x, u32) { return bits<float>(x & 0xffffe000u); }  // what the unit reads of it
static float f32(float x, u32) { return x; }
static double f64(double x, u32) { return x; }
// Sums wrap around: they are made of unsigned numbers.
static u32 s8(u32 x, u32 j) { return (u32)(int8_t)(x >> 8 * j); }
static u32 unsigned8(u32 x, u32 j) { return (u8)(x >> 8 * j); }

constexpr Work *UNITS[] = {
    Unit<float, float, u32, 2, f16>::run, Unit<float, float, u32, 2, bf16>::run,
    Unit<float, float, u32, 1, tf32>::run, Unit<float, float, float, 1, f32>::run,
    Unit<double, double, double, 1, f64>::run, Unit<u32, u32, u32, 4, s8>::run,
    Unit<u32, u32, u32, 4, unsigned8>::run};

API void tg_host_multiply(u32 kind, u32 highs, u32 steps, void *d, const void *a, const void *b,
                          const char *what) {
  if (kind != F16_F16) {
    Product mine = {d, a, b, highs, steps};
    meet_whole(what, &mine, UNITS[kind]);
    return;
  }
  // Sums of 16 bits, two to a register: added up in 32 bits, rounded once.
  u32 *packed = (u32 *)d;
  float sums[4];
  for (u32 h = 0; h < highs; ++h)
    for (u32 p = 0; p < 2; ++p) sums[2 * h + p] = f16(packed[h], p);
  Product mine = {sums, a, b, highs, steps};
  meet_whole(what, &mine, UNITS[F16_F32]);
  for (u32 h = 0; h < highs; ++h)
    packed[h] = (u32)to_f16(sums[2 * h]) | (u32)to_f16(sums[2 * h + 1]) << 16;
}
}  // namespace tg
