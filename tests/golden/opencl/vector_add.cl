#pragma OPENCL FP_CONTRACT OFF
__kernel void kernel_vector_add(__global float *restrict b_c, __global const float *restrict b_a, __global const float *restrict b_b)
{
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  for (int i_i0 = 10 * (group) / 2; i_i0 < 10 * (group + 1) / 2; ++i_i0) {
    const bool v1_0 = 1;
    const bool v1_1 = i_i0 < 9;
    const bool v1_2 = i_i0 < 9;
    const bool v1_3 = i_i0 < 9;
    const float4 v2 = (float4)(v1_0 ? b_a[4 * i_i0] : 0x0.0p+0f, v1_1 ? b_a[4 * i_i0 + 1] : 0x0.0p+0f, v1_2 ? b_a[4 * i_i0 + 2] : 0x0.0p+0f, v1_3 ? b_a[4 * i_i0 + 3] : 0x0.0p+0f);
    const float4 v3 = (float4)(v1_0 ? b_b[4 * i_i0] : 0x0.0p+0f, v1_1 ? b_b[4 * i_i0 + 1] : 0x0.0p+0f, v1_2 ? b_b[4 * i_i0 + 2] : 0x0.0p+0f, v1_3 ? b_b[4 * i_i0 + 3] : 0x0.0p+0f);
    const float4 v4 = (v2 + v3);
    if (v1_0) b_c[4 * i_i0] = v4.s0;
    if (v1_1) b_c[4 * i_i0 + 1] = v4.s1;
    if (v1_2) b_c[4 * i_i0 + 2] = v4.s2;
    if (v1_3) b_c[4 * i_i0 + 3] = v4.s3;
  }
}
