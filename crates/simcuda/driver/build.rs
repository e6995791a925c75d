//! Gives the library NVIDIA's soname, and keeps it mapped once loaded: its worker thread outlives a `dlclose`.
fn main() {
    for arg in ["-soname,libcuda.so.1", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
