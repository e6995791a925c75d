//! Gives the library NVIDIA's soname, and its exports the version node of that name, as NVIDIA's have.
//!
//! `-Bsymbolic` binds its references to its own exports, as in NVIDIA's. `--default-symver` makes the node; it is the one way that gets along with the version script that rustc passes
//! itself, and only GNU ld knows it, hence `-fuse-ld=bfd`.
fn main() {
    for arg in [
        "-fuse-ld=bfd",
        "-Wl,-soname,libcudart.so.13",
        "-Wl,--default-symver",
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
