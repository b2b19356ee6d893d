#pragma OPENCL FP_CONTRACT OFF
__kernel void kernel_row_sum(__global float *restrict b_y, __global const float *restrict b_x)
{
  __local float b_s[4] __attribute__((aligned(32)));
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  {
    const int i_r = group;
    {
      const int i_l = item;
      float r_acc;
      const float v1 = 0x0.0p+0f;
      r_acc = v1;
      for (int i_j = 0; i_j < 25; ++i_j) {
        const bool v2 = 1;
        const float v3 = v2 ? b_x[4 * i_j + i_l + 100 * i_r] : 0x0.0p+0f;
        const float v4 = r_acc;
        const float v5 = (v4 + v3);
        r_acc = v5;
      }
      const float v6 = r_acc;
      b_s[i_l] = v6;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    {
      const int i_l = item;
      if (i_l < 2) {
        const float v10 = b_s[i_l];
        const float v11 = b_s[i_l + 2];
        const float v12 = (v10 + v11);
        b_s[i_l] = v12;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    {
      const int i_l = item;
      if (i_l < 1) {
        const float v13 = b_s[i_l];
        const float v14 = b_s[i_l + 1];
        const float v15 = (v13 + v14);
        b_s[i_l] = v15;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    {
      const int i_l = item;
      if (i_l < 1) {
        const float v8 = b_s[0];
        b_y[i_r] = v8;
      }
    }
  }
}
