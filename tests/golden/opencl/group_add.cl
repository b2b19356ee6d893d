#pragma OPENCL FP_CONTRACT OFF
__kernel void kernel_group_add(__global float *restrict b_c, __global const float *restrict b_a, __global const float *restrict b_b)
{
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  {
    const int i_g = group;
    {
      const int i_l = item;
      const bool v1_0 = (16 * i_g + 4 * i_l) < 37;
      const bool v1_1 = (16 * i_g + 4 * i_l) < 36;
      const bool v1_2 = (16 * i_g + 4 * i_l) < 35;
      const bool v1_3 = (16 * i_g + 4 * i_l) < 34;
      const float4 v2 = (float4)(v1_0 ? b_a[16 * i_g + 4 * i_l] : 0x0.0p+0f, v1_1 ? b_a[16 * i_g + 4 * i_l + 1] : 0x0.0p+0f, v1_2 ? b_a[16 * i_g + 4 * i_l + 2] : 0x0.0p+0f, v1_3 ? b_a[16 * i_g + 4 * i_l + 3] : 0x0.0p+0f);
      const float4 v3 = (float4)(v1_0 ? b_b[16 * i_g + 4 * i_l] : 0x0.0p+0f, v1_1 ? b_b[16 * i_g + 4 * i_l + 1] : 0x0.0p+0f, v1_2 ? b_b[16 * i_g + 4 * i_l + 2] : 0x0.0p+0f, v1_3 ? b_b[16 * i_g + 4 * i_l + 3] : 0x0.0p+0f);
      const float4 v4 = (v2 + v3);
      if (v1_0) b_c[16 * i_g + 4 * i_l] = v4.s0;
      if (v1_1) b_c[16 * i_g + 4 * i_l + 1] = v4.s1;
      if (v1_2) b_c[16 * i_g + 4 * i_l + 2] = v4.s2;
      if (v1_3) b_c[16 * i_g + 4 * i_l + 3] = v4.s3;
    }
  }
}
