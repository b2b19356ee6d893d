// The words of hip/hip_runtime.h that kernels of ours use, by clang's own functions and those of
// AMD's device library (ocml): what stands before a text that tests compile without that header, in
// a tenth of a second rather than one.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define TG_HIP static __device__ __forceinline__

struct tg_dim { unsigned int x; };
#define threadIdx tg_dim{__builtin_amdgcn_workitem_id_x()}
#define blockIdx tg_dim{__builtin_amdgcn_workgroup_id_x()}

TG_HIP unsigned int __float_as_uint(float x) { return __builtin_bit_cast(unsigned int, x); }
TG_HIP float __uint_as_float(unsigned int x) { return __builtin_bit_cast(float, x); }

#define TG_MATH(name, given, f32s, f64s)                                                           \
  extern "C" __device__ float __ocml_##name##_f32 f32s;                                            \
  extern "C" __device__ double __ocml_##name##_f64 f64s;                                           \
  TG_HIP float name##f f32s { return __ocml_##name##_f32 given; }                                  \
  TG_HIP double name f64s { return __ocml_##name##_f64 given; }
#define TG_ONE(name) TG_MATH(name, (x), (float x), (double x))
#define TG_TWO(name) TG_MATH(name, (x, y), (float x, float y), (double x, double y))
TG_ONE(exp) TG_ONE(log) TG_ONE(sqrt) TG_ONE(tanh) TG_ONE(erf) TG_ONE(sin) TG_ONE(floor) TG_ONE(fabs)
TG_TWO(pow) TG_TWO(fmod) TG_TWO(copysign)
TG_MATH(fma, (x, y, z), (float x, float y, float z), (double x, double y, double z))

TG_HIP void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Of the item of this wave, of 32 or 64, whose number differs in the bits of `by`.
template <class T> TG_HIP T __shfl_xor(T value, int by) {
  struct words { int at[sizeof(T) / 4]; } moved = __builtin_bit_cast(words, value);
  const unsigned int self = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  for (int &word : moved.at) word = __builtin_amdgcn_ds_bpermute((int)(self ^ by) << 2, word);
  return __builtin_bit_cast(T, moved);
}
