#pragma OPENCL FP_CONTRACT OFF
__kernel void kernel_max_f64(__global double *restrict b_y, __global const double *restrict b_a, __global const double *restrict b_b)
{
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  for (int i_i = 0; i_i < 2; ++i_i) {
    const double4 v0 = *(__global const double4 *)(b_a + 4 * i_i);
    const double4 v1 = *(__global const double4 *)(b_b + 4 * i_i);
    const double4 v9 = select(v1, v0, isnan(v0) | (v0 > v1));
    *(__global double4 *)(b_y + 4 * i_i) = v9;
  }
}
