// SPDX-License-Identifier: Apache-2.0
// Loads the image that `vecadd capture` sealed and launches its graph, in Rust over the C API.
//
//     rustc load.rs -L PREFIX/lib -l foundry && ./load STORE
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::ptr::{null, null_mut};

#[link(name = "foundry")]
extern "C" {
    fn fdry_store_open(path: *const c_char, flags: c_uint, ret: *mut *mut c_void) -> c_int;
    fn fdry_store_close(store: *mut c_void);
    fn fdry_image_load(store: *mut c_void, name: *const c_char, opts: *const c_void,
                       ret: *mut *mut c_void) -> c_int;
    fn fdry_image_unload(image: *mut c_void);
    fn fdry_image_write(image: *mut c_void, name: *const c_char, data: *const c_void, len: usize,
                        stream: *mut c_void) -> c_int;
    fn fdry_image_launch(image: *mut c_void, key: u64, stream: *mut c_void) -> c_int;
    fn fdry_image_read(image: *mut c_void, name: *const c_char, data: *mut c_void, len: usize,
                       stream: *mut c_void) -> c_int;
    fn fdry_last_error() -> *const c_char;
}

const N: usize = 100003; // of vecadd

fn check(err: c_int) -> Result<(), String> {
    if err == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(fdry_last_error()) }.to_string_lossy().into_owned())
}

fn launch(image: *mut c_void) -> Result<Vec<f32>, String> {
    let a: Vec<f32> = (0..N).map(|i| (i % 777) as f32).collect();
    let mut out = vec![0f32; N];
    unsafe {
        check(fdry_image_write(image, c"a".as_ptr(), a.as_ptr().cast(), 4 * N, null_mut()))?;
        check(fdry_image_launch(image, 1, null_mut()))?;
        check(fdry_image_read(image, c"out".as_ptr(), out.as_mut_ptr().cast(), 4 * N, null_mut()))?;
    }
    Ok(out)
}

fn main() -> Result<(), String> {
    let path = CString::new(std::env::args().nth(1).ok_or("give a store")?).unwrap();
    let (mut store, mut image) = (null_mut(), null_mut());
    check(unsafe { fdry_store_open(path.as_ptr(), 0, &mut store) })?;
    check(unsafe { fdry_image_load(store, c"vecadd".as_ptr(), null(), &mut image) })?;
    let out = launch(image)?;
    unsafe { fdry_image_unload(image) };
    unsafe { fdry_store_close(store) };
    let right = |(i, x): (usize, &f32)| *x == (i % 777) as f32 + 0.25 * (i % 1000) as f32;
    assert!(out.iter().enumerate().all(right), "a number is wrong");
    println!("{N} numbers are right");
    Ok(())
}
