//! How exports are declared, and each thread's last error.

use std::cell::Cell;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Remembers a failure for `cudaGetLastError`, and passes the code on.
pub(crate) fn finish(status: crate::abi::Status) -> u32 {
    let code = status.err().unwrap_or(0);
    if code != 0 {
        LAST_ERROR.set(code);
    }
    code
}

/// The last error, forgotten if `reset`.
pub(crate) fn last_error(reset: bool) -> u32 {
    let code = LAST_ERROR.get();
    if reset {
        LAST_ERROR.set(0);
    }
    code
}

/// Declares exports: `name / twin |per_thread| (arguments) { body }`, where `twin` is the per-thread-default-stream
/// flavour (`per_thread` is then true in the body). The body is a `Status`, returned as a `cudaError_t`.
macro_rules! export {
    ($( $name:ident $(/ $twin:ident |$per_thread:ident|)? ($($args:tt)*) $body:block )*) => {
        $( export!(@item $name [$($twin $per_thread)?] ($($args)*) $body); )*
    };
    (@item $name:ident [] $args:tt $body:block) => {
        export!(@one $name [] false $args $body);
    };
    (@item $name:ident [$twin:ident $per_thread:ident] $args:tt $body:block) => {
        export!(@one $name [$per_thread] false $args $body);
        export!(@one $twin [$per_thread] true $args $body);
    };
    (@one $name:ident [$($per_thread:ident)?] $flag:literal ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        // SAFETY: the name is NVIDIA's and this library stands in for the one that defines it.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "NVIDIA's names")]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            $( let $per_thread = $flag; )?
            #[allow(clippy::redundant_closure_call, reason = "the body may return early")]
            $crate::export::finish((|| -> $crate::abi::Status { $body })())
        }
    };
}
