@group(0) @binding(0) var<storage, read_write> b_y: array<f32, 5>;
@group(0) @binding(1) var<storage, read> b_x: array<f32, 500>;
var<workgroup> b_s: array<f32, 4>;
@compute @workgroup_size(4)
fn kernel_row_sum(@builtin(workgroup_id) tg_group: vec3<u32>, @builtin(local_invocation_index) tg_item: u32) {
  let group: i32 = i32(tg_group.x);
  let item: i32 = i32(tg_item);
  {
    let i_r: i32 = group;
    {
      let i_l: i32 = item;
      var r_acc: f32;
      let v1: f32 = 0x0.0p+0f;
      r_acc = v1;
      for (var i_j: i32 = 0; i_j < 25; i_j++) {
        let v2: bool = true;
        let v3: f32 = select(0x0.0p+0f, b_x[select(0, 4 * i_j + i_l + 100 * i_r, v2)], v2);
        let v4: f32 = r_acc;
        let v5: f32 = (v4 + v3);
        r_acc = v5;
      }
      let v6: f32 = r_acc;
      b_s[i_l] = v6;
    }
    workgroupBarrier();
    {
      let i_l: i32 = item;
      if (i_l < 2) {
        let v10: f32 = b_s[i_l];
        let v11: f32 = b_s[i_l + 2];
        let v12: f32 = (v10 + v11);
        b_s[i_l] = v12;
      }
    }
    workgroupBarrier();
    {
      let i_l: i32 = item;
      if (i_l < 1) {
        let v13: f32 = b_s[i_l];
        let v14: f32 = b_s[i_l + 1];
        let v15: f32 = (v13 + v14);
        b_s[i_l] = v15;
      }
    }
    workgroupBarrier();
    {
      let i_l: i32 = item;
      if (i_l < 1) {
        let v8: f32 = b_s[0];
        b_y[i_r] = v8;
      }
    }
  }
}
