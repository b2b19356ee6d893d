// CUDA C++ on a CPU: what stands before a kernel's text, after numbers.hpp. What it asks for is
// done by a runtime that is built once (runtime.cpp): these are only the words, so that a kernel
// builds in a tenth of a second.
//
// Not here: kernels whose arguments are no pointers, `extern __shared__` but by TG_SHARED,
// `__shared__` in templates, blocks and grids of more than one dimension, half-precision types.
#define TG_HOST 1

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
// `used`: others write to it, too, so nothing is known of what it holds.
#define __shared__ static __attribute__((section("tg_shared"), used))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define warpSize 32

typedef unsigned int tg_u32;
typedef unsigned short tg_u16;
typedef unsigned long long tg_u64;

struct tg_dim { tg_u32 x, y, z; };

extern "C" {
extern const tg_dim tg_host_thread, tg_host_block, tg_host_items, tg_host_groups;
extern char *const tg_host_dynamic;
tg_u32 tg_host_shared_address(const void *pointer);
void tg_host_syncthreads();
void tg_host_bar_sync(tg_u32 id, tg_u32 count);
void tg_host_bar_arrive(tg_u32 id, tg_u32 count);
void tg_host_yield();
[[noreturn]] void tg_host_trap();
void tg_host_sync_warp(tg_u32 mask);
tg_u32 tg_host_vote(tg_u32 mask, tg_u32 value, tg_u32 vote);
void tg_host_shuffle(tg_u32 mask, const void *value, void *result, tg_u32 bytes, int by, int width,
                     tg_u32 way);
void tg_host_ldmatrix(tg_u32 *registers, tg_u32 address, tg_u32 number, tg_u32 transposed,
                      const char *what);
void tg_host_multiply(tg_u32 kind, tg_u32 highs, tg_u32 steps, void *d, const void *a,
                      const void *b, const char *what);
void tg_host_cp_async(tg_u32 to, const void *from, tg_u32 bytes, int given, const char *what);
void tg_host_cp_commit();
void tg_host_cp_wait(tg_u32 left);
void tg_host_cp_wait_all();
// Of the section of shared arrays: the linker's own, or between guards, of build.py's script.
#define TG_PLACE(name) extern char name[] __attribute__((weak, visibility("hidden")))
TG_PLACE(__start_tg_shared);
TG_PLACE(__stop_tg_shared);
TG_PLACE(tg_shared_before);
TG_PLACE(tg_shared_first);
TG_PLACE(tg_shared_last);
TG_PLACE(tg_shared_beyond);
#undef TG_PLACE
}
#define threadIdx tg_host_thread
#define blockIdx tg_host_block
#define blockDim tg_host_items
#define gridDim tg_host_groups
// Shared memory that the launch gives.
#define TG_SHARED char *const tg_shared = tg_host_dynamic

// ---- types of neighbours

#define TG_VECTORS(T, name, a2, a4)                                                                \
  struct __align__(a2) name##2 { T x, y; };                                                        \
  struct name##3 { T x, y, z; };                                                                   \
  struct __align__(a4) name##4 { T x, y, z, w; };                                                  \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                        \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TG_VECTORS(signed char, char, 2, 4)
TG_VECTORS(unsigned char, uchar, 2, 4)
TG_VECTORS(short, short, 4, 8)
TG_VECTORS(unsigned short, ushort, 4, 8)
TG_VECTORS(int, int, 8, 16)
TG_VECTORS(unsigned int, uint, 8, 16)
TG_VECTORS(float, float, 8, 16)
TG_VECTORS(long long, longlong, 16, 16)
TG_VECTORS(unsigned long long, ulonglong, 16, 16)
TG_VECTORS(double, double, 16, 16)
#undef TG_VECTORS

// ---- functions of numbers

extern "C" {
#define TG_ONE(name) float name##f(float); double name(double);
#define TG_TWO(name) float name##f(float, float); double name(double, double);
TG_ONE(exp) TG_ONE(exp2) TG_ONE(expm1) TG_ONE(log) TG_ONE(log2) TG_ONE(log10) TG_ONE(log1p)
TG_ONE(sqrt) TG_ONE(cbrt) TG_ONE(sin) TG_ONE(cos) TG_ONE(tan) TG_ONE(asin) TG_ONE(acos) TG_ONE(atan)
TG_ONE(sinh) TG_ONE(cosh) TG_ONE(tanh) TG_ONE(erf) TG_ONE(erfc) TG_ONE(floor) TG_ONE(ceil)
TG_ONE(trunc) TG_ONE(round) TG_ONE(rint) TG_ONE(nearbyint) TG_ONE(fabs)
TG_TWO(pow) TG_TWO(fmod) TG_TWO(fmax) TG_TWO(fmin) TG_TWO(atan2) TG_TWO(hypot) TG_TWO(copysign)
#undef TG_ONE
#undef TG_TWO
float fmaf(float, float, float);
double fma(double, double, double);
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }

#define TG_EXTREMES(T)                                                                             \
  static inline T min(T a, T b) { return b < a ? b : a; }                                          \
  static inline T max(T a, T b) { return b > a ? b : a; }
TG_EXTREMES(int)
TG_EXTREMES(unsigned int)
TG_EXTREMES(long long)
TG_EXTREMES(unsigned long long)
#undef TG_EXTREMES
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

#define __expf expf
#define __logf logf
#define __log2f log2f
#define __sinf sinf
#define __cosf cosf
#define __powf powf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

static inline float __int_as_float(int x) { return tg::bits<float>(x); }
static inline int __float_as_int(float x) { return tg::bits<int>(x); }
static inline float __uint_as_float(tg_u32 x) { return tg::bits<float>(x); }
static inline tg_u32 __float_as_uint(float x) { return tg::bits<tg_u32>(x); }
static inline double __longlong_as_double(long long x) { return tg::bits<double>(x); }
static inline long long __double_as_longlong(double x) { return tg::bits<long long>(x); }
static inline int __popc(tg_u32 x) { return __builtin_popcount(x); }
static inline int __popcll(tg_u64 x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((tg_u32)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((tg_u64)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline tg_u32 __umulhi(tg_u32 a, tg_u32 b) { return (tg_u32)((tg_u64)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T x) { *p = x; }
template <class T> static inline tg_u64 __cvta_generic_to_shared(const T *p) {
  return tg_host_shared_address(p);
}

static inline float tg_from_f16(tg_u16 x) { return tg::from_f16(x); }
static inline tg_u16 tg_to_f16(float x) { return tg::to_f16(x); }
static inline float tg_from_bf16(tg_u16 x) { return tg::from_bf16(x); }
static inline tg_u16 tg_to_bf16(float x) { return tg::to_bf16(x); }
static inline float tg_tf32_f32(float x) { return tg::bits<float>(tg::to_tf32(x)); }

// ---- threads of a block, and of a warp

static inline void __syncthreads() { tg_host_syncthreads(); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __nanosleep(tg_u32) { tg_host_yield(); }
[[noreturn]] static inline void __trap() { tg_host_trap(); }
static inline void tg_bar_sync(int id, int count) { tg_host_bar_sync((tg_u32)id, (tg_u32)count); }
static inline void tg_bar_arrive(int id, int count) {
  tg_host_bar_arrive((tg_u32)id, (tg_u32)count);
}

static inline void __syncwarp(tg_u32 mask = ~0u) { tg_host_sync_warp(mask); }
static inline tg_u32 __ballot_sync(tg_u32 mask, int x) { return tg_host_vote(mask, x != 0, 0); }
static inline int __any_sync(tg_u32 mask, int x) { return (int)tg_host_vote(mask, x != 0, 1); }
static inline int __all_sync(tg_u32 mask, int x) { return (int)tg_host_vote(mask, x != 0, 2); }
#define TG_REDUCTION(name, at)                                                                     \
  static inline int name(tg_u32 mask, int x) { return (int)tg_host_vote(mask, (tg_u32)x, at); }    \
  static inline tg_u32 name(tg_u32 mask, tg_u32 x) { return tg_host_vote(mask, x, at + 3); }
TG_REDUCTION(__reduce_add_sync, 4)
TG_REDUCTION(__reduce_min_sync, 5)
TG_REDUCTION(__reduce_max_sync, 6)
#undef TG_REDUCTION
#define TG_SHUFFLE(name, way)                                                                      \
  template <class T> static inline T name(tg_u32 mask, T value, int by, int width = 32) {          \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, #name " moves 4 or 8 bytes");                  \
    T result;                                                                                      \
    tg_host_shuffle(mask, &value, &result, sizeof(T), by, width, way);                             \
    return result;                                                                                 \
  }
TG_SHUFFLE(__shfl_sync, 0)
TG_SHUFFLE(__shfl_up_sync, 1)
TG_SHUFFLE(__shfl_down_sync, 2)
TG_SHUFFLE(__shfl_xor_sync, 3)
#undef TG_SHUFFLE
// HIP's, among the 32 that meet here.
template <class T> static inline T __shfl_xor(T value, int by) {
  return __shfl_xor_sync(~0u, value, by);
}

// ---- atomics: threads take turns, so they are plain. One that may be waited for lets others run.

template <class T> static inline T tg_host_exchange(T *p, T x) {
  const T old = *(volatile T *)p;
  *(volatile T *)p = x;
  return old;
}
#define TG_ATOMICS(T)                                                                              \
  static inline T atomicAdd(T *p, T x) { return tg_host_exchange(p, (T)(*p + x)); }                \
  static inline T atomicExch(T *p, T x) { tg_host_yield(); return tg_host_exchange(p, x); }
#define TG_ATOMICS_OF_INTEGERS(T)                                                                  \
  TG_ATOMICS(T)                                                                                    \
  static inline T atomicMin(T *p, T x) { return tg_host_exchange(p, min(*p, x)); }                 \
  static inline T atomicMax(T *p, T x) { return tg_host_exchange(p, max(*p, x)); }                 \
  static inline T atomicCAS(T *p, T is, T x) {                                                     \
    tg_host_yield();                                                                               \
    return tg_host_exchange(p, *p == is ? x : *p);                                                 \
  }
TG_ATOMICS_OF_INTEGERS(int)
TG_ATOMICS_OF_INTEGERS(unsigned int)
TG_ATOMICS_OF_INTEGERS(unsigned long long)
TG_ATOMICS(float)
TG_ATOMICS(double)
#undef TG_ATOMICS_OF_INTEGERS
#undef TG_ATOMICS

// ---- copies to shared memory

static inline tg_u32 tg_shared_address(const void *p) { return tg_host_shared_address(p); }
#define TG_COPY(n)                                                                                 \
  static inline void tg_cp_async##n(tg_u32 to, const void *from, int given) {                      \
    tg_host_cp_async(to, from, n, given, "tg_cp_async" #n);                                        \
  }
TG_COPY(4)
TG_COPY(8)
TG_COPY(16)
#undef TG_COPY
static inline void tg_cp_commit() { tg_host_cp_commit(); }
template <int LEFT> static inline void tg_cp_wait() { tg_host_cp_wait(LEFT); }
static inline void tg_cp_wait_all() { tg_host_cp_wait_all(); }

// ---- matrices

#define TG_LDMATRIX(n)                                                                             \
  static inline void tg_ldmatrix_x##n(tg_u32 *r, tg_u32 at) {                                      \
    tg_host_ldmatrix(r, at, n, 0, "tg_ldmatrix_x" #n);                                             \
  }                                                                                                \
  static inline void tg_ldmatrix_x##n##_trans(tg_u32 *r, tg_u32 at) {                              \
    tg_host_ldmatrix(r, at, n, 1, "tg_ldmatrix_x" #n "_trans");                                    \
  }
TG_LDMATRIX(1)
TG_LDMATRIX(2)
TG_LDMATRIX(4)
#undef TG_LDMATRIX

// Templates, so that a text may have functions of these names of its own: those are taken.
enum {  // `Kind` of warp.cpp
  TG_F16_F32, TG_BF16_F32, TG_TF32_F32, TG_F32_F32, TG_F64_F64, TG_S8_S32, TG_U8_S32, TG_F16_F16
};
#define TG_MMA(name, D, R, kind, highs, steps)                                                     \
  template <int = 0> static inline void tg_mma_##name(D *d, const R *a, const R *b) {              \
    tg_host_multiply(kind, highs, steps, d, a, b, "tg_mma_" #name);                                \
  }
TG_MMA(m16n8k8_f16_f32, float, tg_u32, TG_F16_F32, 2, 1)
TG_MMA(m16n8k16_f16_f32, float, tg_u32, TG_F16_F32, 2, 2)
TG_MMA(m16n8k16_f16_f16, tg_u32, tg_u32, TG_F16_F16, 2, 2)
TG_MMA(m16n8k8_bf16_f32, float, tg_u32, TG_BF16_F32, 2, 1)
TG_MMA(m16n8k16_bf16_f32, float, tg_u32, TG_BF16_F32, 2, 2)
TG_MMA(m16n8k4_tf32_f32, float, tg_u32, TG_TF32_F32, 2, 1)
TG_MMA(m16n8k8_tf32_f32, float, tg_u32, TG_TF32_F32, 2, 2)
TG_MMA(m16n8k16_s8_s32, int, tg_u32, TG_S8_S32, 2, 1)
TG_MMA(m16n8k32_s8_s32, int, tg_u32, TG_S8_S32, 2, 2)
TG_MMA(m16n8k32_u8_s32, int, tg_u32, TG_U8_S32, 2, 2)
TG_MMA(m8n8k4_f64_f64, double, double, TG_F64_F64, 1, 1)
#undef TG_MMA

// ---- what a loader finds in the image

struct tg_host_image {
  void (*run)(void *const *arguments);
  char *shared[4];   // from a guard page, the arrays' own start and end, to another one; or null
  char *section[2];  // where there are no guards
  tg_u32 arguments, most_items;
};
template <int... I> struct tg_ints {};
template <int N, int... I> struct tg_count : tg_count<N - 1, N - 1, I...> {};
template <int... I> struct tg_count<0, I...> { typedef tg_ints<I...> type; };
template <class T> struct tg_is_pointer { static const bool value = false; };
template <class T> struct tg_is_pointer<T *> { static const bool value = true; };
template <class T> struct tg_is_pointer<T *const> { static const bool value = true; };
template <class T> struct tg_is_pointer<T *__restrict> { static const bool value = true; };
template <class T> static inline T tg_argument(void *p) {
  static_assert(tg_is_pointer<T>::value, "a kernel's arguments are pointers");
  return (T)p;
}
template <class... A, int... I>
static inline void tg_apply(void (*kernel)(A...), void *const *a, tg_ints<I...>) {
  kernel(tg_argument<A>(a[I])...);
}
template <class... A> static inline void tg_call(void (*kernel)(A...), void *const *a) {
  tg_apply(kernel, a, typename tg_count<sizeof...(A)>::type());
}
template <class... A> constexpr tg_u32 tg_arguments(void (*)(A...)) { return sizeof...(A); }
#define TG_ENTRY(name, most)                                                                       \
  static void tg_run(void *const *a) { tg_call(name, a); }                                         \
  extern "C" __attribute__((visibility("default"))) const tg_host_image tg_kernel_##name = {       \
      tg_run,                                                                                      \
      {tg_shared_before, tg_shared_first, tg_shared_last, tg_shared_beyond},                       \
      {__start_tg_shared, __stop_tg_shared},                                                       \
      tg_arguments(name),                                                                          \
      most};
