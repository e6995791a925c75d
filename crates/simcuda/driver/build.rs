//! Gives the library NVIDIA's soname, binds its references to its own exports as NVIDIA's are (`cuGetProcAddress` must
//! give out these, whatever is preloaded), and keeps it mapped once loaded: its worker thread outlives a `dlclose`.
fn main() {
    for arg in ["-soname,libcuda.so.1", "-Bsymbolic", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
