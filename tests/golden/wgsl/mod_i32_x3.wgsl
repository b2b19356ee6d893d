@group(0) @binding(0) var<storage, read_write> b_y: array<i32, 9>;
@group(0) @binding(1) var<storage, read> b_a: array<i32, 9>;
@group(0) @binding(2) var<storage, read> b_b: array<i32, 9>;
fn tg_mod_i32(a: i32, b: i32) -> i32 { if (b == 0) { return 0; } let q = a / b; let r = a - q * b; return r + select(0, b, r != 0 && (r < 0) != (b < 0)); }
@compute @workgroup_size(1)
fn kernel_mod_i32(@builtin(workgroup_id) tg_group: vec3<u32>, @builtin(local_invocation_index) tg_item: u32) {
  let group: i32 = i32(tg_group.x);
  let item: i32 = i32(tg_item);
  for (var i_i: i32 = 0; i_i < 3; i_i++) {
    let v0_0: i32 = b_a[3 * i_i];
    let v0_1: i32 = b_a[3 * i_i + 1];
    let v0_2: i32 = b_a[3 * i_i + 2];
    let v1_0: i32 = b_b[3 * i_i];
    let v1_1: i32 = b_b[3 * i_i + 1];
    let v1_2: i32 = b_b[3 * i_i + 2];
    let v9_0: i32 = tg_mod_i32(v0_0, v1_0);
    let v9_1: i32 = tg_mod_i32(v0_1, v1_1);
    let v9_2: i32 = tg_mod_i32(v0_2, v1_2);
    b_y[3 * i_i] = v9_0;
    b_y[3 * i_i + 1] = v9_1;
    b_y[3 * i_i + 2] = v9_2;
  }
}
