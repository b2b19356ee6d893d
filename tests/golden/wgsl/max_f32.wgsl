@group(0) @binding(0) var<storage, read_write> b_y: array<f32, 8>;
@group(0) @binding(1) var<storage, read> b_a: array<f32, 8>;
@group(0) @binding(2) var<storage, read> b_b: array<f32, 8>;
fn tg_max_f32(a: f32, b: f32) -> f32 { return select(b, a, a > b || (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u); }
@compute @workgroup_size(1)
fn kernel_max_f32(@builtin(workgroup_id) tg_group: vec3<u32>, @builtin(local_invocation_index) tg_item: u32) {
  let group: i32 = i32(tg_group.x);
  let item: i32 = i32(tg_item);
  for (var i_i: i32 = 0; i_i < 8; i_i++) {
    let v0: f32 = b_a[i_i];
    let v1: f32 = b_b[i_i];
    let v9: f32 = tg_max_f32(v0, v1);
    b_y[i_i] = v9;
  }
}
