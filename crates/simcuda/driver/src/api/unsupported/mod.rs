//! The rest of NVIDIA's exports, so that programs that mention them still link and load. Each fails with
//! "operation not supported", and `cuGetProcAddress` does not know them.

/// Declares exports that ignore their arguments: the C calling convention leaves those to the caller.
macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            // SAFETY: the name is NVIDIA's and this library stands in for the one that defines it.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "NVIDIA's names")]
            extern "C" fn $name() -> u32 {
                crate::error::NOT_SUPPORTED
            }
        )*
    };
}

mod graphs;
mod rest;
mod sharing;
mod textures;
