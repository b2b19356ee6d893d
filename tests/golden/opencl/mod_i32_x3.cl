#pragma OPENCL FP_CONTRACT OFF
inline int tg_mod_i32(int a, int b) { if (b == 0) return 0; if (b == -1) return 0; const int r = (int)(a % b); return (int)(r + ((r != 0 && (a < 0) != (b < 0)) ? b : 0)); }
__kernel void kernel_mod_i32(__global int *restrict b_y, __global const int *restrict b_a, __global const int *restrict b_b)
{
  const int group = (int)get_group_id(0);
  const int item = (int)get_local_id(0);
  (void)group; (void)item;
  for (int i_i = 0; i_i < 3; ++i_i) {
    const int v0_0 = b_a[3 * i_i];
    const int v0_1 = b_a[3 * i_i + 1];
    const int v0_2 = b_a[3 * i_i + 2];
    const int v1_0 = b_b[3 * i_i];
    const int v1_1 = b_b[3 * i_i + 1];
    const int v1_2 = b_b[3 * i_i + 2];
    const int v9_0 = tg_mod_i32(v0_0, v1_0);
    const int v9_1 = tg_mod_i32(v0_1, v1_1);
    const int v9_2 = tg_mod_i32(v0_2, v1_2);
    b_y[3 * i_i] = v9_0;
    b_y[3 * i_i + 1] = v9_1;
    b_y[3 * i_i + 2] = v9_2;
  }
}
