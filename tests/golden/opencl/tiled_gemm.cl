#pragma OPENCL FP_CONTRACT OFF
__kernel void kernel_tiled_gemm(__global float *restrict b_C, __global const float *restrict b_A, __global const float *restrict b_B)
{
  __local float b_As[256] __attribute__((aligned(32)));
  __local float b_Bs[256] __attribute__((aligned(32)));
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  {
    const int i_m0 = group / 4;
    {
      const int i_n0 = group % 4;
      float4 r_acc;
      const float4 v1 = (float4)(0x0.0p+0f);
      r_acc = v1;
      for (int i_k0 = 0; i_k0 < 4; ++i_k0) {
        {
          const int i_y = item / 4;
          {
            const int i_x = item % 4;
            const float4 v10 = *(__global const float4 *)(b_A + 16 * i_k0 + 1024 * i_m0 + 4 * i_x + 64 * i_y);
            *(__local float4 *)(b_As + 4 * i_x + 16 * i_y) = v10;
            const float4 v11 = *(__global const float4 *)(b_B + 1024 * i_k0 + 16 * i_n0 + 4 * i_x + 64 * i_y);
            *(__local float4 *)(b_Bs + 4 * i_x + 16 * i_y) = v11;
          }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        {
          const int i_y = item / 4;
          {
            const int i_x = item % 4;
            for (int i_k1 = 0; i_k1 < 16; ++i_k1) {
              const float v20 = b_As[i_k1 + 16 * i_y];
              const float4 v21 = (float4)(v20);
              const float4 v22 = *(__local const float4 *)(b_Bs + 16 * i_k1 + 4 * i_x);
              const float4 v23 = r_acc;
              const float4 v24 = fma(v21, v22, v23);
              r_acc = v24;
            }
          }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
      }
      {
        const int i_y = item / 4;
        {
          const int i_x = item % 4;
          const float4 v30 = r_acc;
          *(__global float4 *)(b_C + 1024 * i_m0 + 16 * i_n0 + 4 * i_x + 64 * i_y) = v30;
        }
      }
    }
  }
}
