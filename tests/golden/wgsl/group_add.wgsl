@group(0) @binding(0) var<storage, read_write> b_c: array<f32, 37>;
@group(0) @binding(1) var<storage, read> b_a: array<f32, 37>;
@group(0) @binding(2) var<storage, read> b_b: array<f32, 37>;
@compute @workgroup_size(4)
fn kernel_group_add(@builtin(workgroup_id) tg_group: vec3<u32>, @builtin(local_invocation_index) tg_item: u32) {
  let group: i32 = i32(tg_group.x);
  let item: i32 = i32(tg_item);
  {
    let i_g: i32 = group;
    {
      let i_l: i32 = item;
      let v1_0: bool = (16 * i_g + 4 * i_l) < 37;
      let v1_1: bool = (16 * i_g + 4 * i_l) < 36;
      let v1_2: bool = (16 * i_g + 4 * i_l) < 35;
      let v1_3: bool = (16 * i_g + 4 * i_l) < 34;
      let v2_0: f32 = select(0x0.0p+0f, b_a[select(0, 16 * i_g + 4 * i_l, v1_0)], v1_0);
      let v2_1: f32 = select(0x0.0p+0f, b_a[select(0, 16 * i_g + 4 * i_l + 1, v1_1)], v1_1);
      let v2_2: f32 = select(0x0.0p+0f, b_a[select(0, 16 * i_g + 4 * i_l + 2, v1_2)], v1_2);
      let v2_3: f32 = select(0x0.0p+0f, b_a[select(0, 16 * i_g + 4 * i_l + 3, v1_3)], v1_3);
      let v3_0: f32 = select(0x0.0p+0f, b_b[select(0, 16 * i_g + 4 * i_l, v1_0)], v1_0);
      let v3_1: f32 = select(0x0.0p+0f, b_b[select(0, 16 * i_g + 4 * i_l + 1, v1_1)], v1_1);
      let v3_2: f32 = select(0x0.0p+0f, b_b[select(0, 16 * i_g + 4 * i_l + 2, v1_2)], v1_2);
      let v3_3: f32 = select(0x0.0p+0f, b_b[select(0, 16 * i_g + 4 * i_l + 3, v1_3)], v1_3);
      let v4_0: f32 = (v2_0 + v3_0);
      let v4_1: f32 = (v2_1 + v3_1);
      let v4_2: f32 = (v2_2 + v3_2);
      let v4_3: f32 = (v2_3 + v3_3);
      if (v1_0) { b_c[16 * i_g + 4 * i_l] = v4_0; }
      if (v1_1) { b_c[16 * i_g + 4 * i_l + 1] = v4_1; }
      if (v1_2) { b_c[16 * i_g + 4 * i_l + 2] = v4_2; }
      if (v1_3) { b_c[16 * i_g + 4 * i_l + 3] = v4_3; }
    }
  }
}
