@group(0) @binding(0) var<storage, read_write> b_C: array<f32, 4096>;
@group(0) @binding(1) var<storage, read> b_A: array<f32, 4096>;
@group(0) @binding(2) var<storage, read> b_B: array<f32, 4096>;
var<workgroup> b_As: array<f32, 256>;
var<workgroup> b_Bs: array<f32, 256>;
@compute @workgroup_size(64)
fn kernel_tiled_gemm(@builtin(workgroup_id) tg_group: vec3<u32>, @builtin(local_invocation_index) tg_item: u32) {
  let group: i32 = i32(tg_group.x);
  let item: i32 = i32(tg_item);
  {
    let i_m0: i32 = group / 4;
    {
      let i_n0: i32 = group % 4;
      var r_acc_0: f32; var r_acc_1: f32; var r_acc_2: f32; var r_acc_3: f32;
      let v1_0: f32 = 0x0.0p+0f;
      let v1_1: f32 = 0x0.0p+0f;
      let v1_2: f32 = 0x0.0p+0f;
      let v1_3: f32 = 0x0.0p+0f;
      r_acc_0 = v1_0;
      r_acc_1 = v1_1;
      r_acc_2 = v1_2;
      r_acc_3 = v1_3;
      for (var i_k0: i32 = 0; i_k0 < 4; i_k0++) {
        {
          let i_y: i32 = item / 4;
          {
            let i_x: i32 = item % 4;
            let v10_0: f32 = b_A[16 * i_k0 + 1024 * i_m0 + 4 * i_x + 64 * i_y];
            let v10_1: f32 = b_A[16 * i_k0 + 1024 * i_m0 + 4 * i_x + 64 * i_y + 1];
            let v10_2: f32 = b_A[16 * i_k0 + 1024 * i_m0 + 4 * i_x + 64 * i_y + 2];
            let v10_3: f32 = b_A[16 * i_k0 + 1024 * i_m0 + 4 * i_x + 64 * i_y + 3];
            b_As[4 * i_x + 16 * i_y] = v10_0;
            b_As[4 * i_x + 16 * i_y + 1] = v10_1;
            b_As[4 * i_x + 16 * i_y + 2] = v10_2;
            b_As[4 * i_x + 16 * i_y + 3] = v10_3;
            let v11_0: f32 = b_B[1024 * i_k0 + 16 * i_n0 + 4 * i_x + 64 * i_y];
            let v11_1: f32 = b_B[1024 * i_k0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 1];
            let v11_2: f32 = b_B[1024 * i_k0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 2];
            let v11_3: f32 = b_B[1024 * i_k0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 3];
            b_Bs[4 * i_x + 16 * i_y] = v11_0;
            b_Bs[4 * i_x + 16 * i_y + 1] = v11_1;
            b_Bs[4 * i_x + 16 * i_y + 2] = v11_2;
            b_Bs[4 * i_x + 16 * i_y + 3] = v11_3;
          }
        }
        workgroupBarrier();
        {
          let i_y: i32 = item / 4;
          {
            let i_x: i32 = item % 4;
            for (var i_k1: i32 = 0; i_k1 < 16; i_k1++) {
              let v20: f32 = b_As[i_k1 + 16 * i_y];
              let v21_0: f32 = v20;
              let v21_1: f32 = v20;
              let v21_2: f32 = v20;
              let v21_3: f32 = v20;
              let v22_0: f32 = b_Bs[16 * i_k1 + 4 * i_x];
              let v22_1: f32 = b_Bs[16 * i_k1 + 4 * i_x + 1];
              let v22_2: f32 = b_Bs[16 * i_k1 + 4 * i_x + 2];
              let v22_3: f32 = b_Bs[16 * i_k1 + 4 * i_x + 3];
              let v23_0: f32 = r_acc_0;
              let v23_1: f32 = r_acc_1;
              let v23_2: f32 = r_acc_2;
              let v23_3: f32 = r_acc_3;
              let v24_0: f32 = fma(v21_0, v22_0, v23_0);
              let v24_1: f32 = fma(v21_1, v22_1, v23_1);
              let v24_2: f32 = fma(v21_2, v22_2, v23_2);
              let v24_3: f32 = fma(v21_3, v22_3, v23_3);
              r_acc_0 = v24_0;
              r_acc_1 = v24_1;
              r_acc_2 = v24_2;
              r_acc_3 = v24_3;
            }
          }
        }
        workgroupBarrier();
      }
      {
        let i_y: i32 = item / 4;
        {
          let i_x: i32 = item % 4;
          let v30_0: f32 = r_acc_0;
          let v30_1: f32 = r_acc_1;
          let v30_2: f32 = r_acc_2;
          let v30_3: f32 = r_acc_3;
          b_C[1024 * i_m0 + 16 * i_n0 + 4 * i_x + 64 * i_y] = v30_0;
          b_C[1024 * i_m0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 1] = v30_1;
          b_C[1024 * i_m0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 2] = v30_2;
          b_C[1024 * i_m0 + 16 * i_n0 + 4 * i_x + 64 * i_y + 3] = v30_3;
        }
      }
    }
  }
}
