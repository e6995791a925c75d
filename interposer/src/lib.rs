//! `libstreamcheck.so`: the preload library.
//!
//! It stands in front of three libraries of the process it is loaded into. The
//! *runtime door* is cudart's functions, under their own names, where the program
//! links to a shared cudart or looks its functions up. The *driver door* is
//! libcuda's functions, which every cudart fetches through `dlsym` and
//! `cuGetProcAddress`. The *libc door* is `free`, `realloc`, `munmap` and `mremap`. The outermost
//! hook of a call records it as an operation for the engine; what lies below
//! passes through. Where host memory is guarded, its signals and the system calls that
//! would meet closed pages have doors, too. A finding is symbolized and written at once.
//!
//! Nothing here may harm the program: the real function is called exactly once,
//! whatever happens; no panic, lock or error of ours reaches the caller; `errno`
//! and CUDA's last error are left alone.

/// Memory of our own, as the application's allocator may be in the hands of the very code
/// that a signal has interrupted, may be damaged, or may be hooked and counted.
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

mod call;
mod capture;
mod coherence;
mod cut_short;
mod desk;
mod doors;
mod driver;
mod guard;
mod hook;
mod images;
mod inbox;
mod kernels;
mod known_kernels;
mod known_stacks;
mod life;
mod log;
mod lookup;
mod objects;
mod pace;
mod place;
mod provider;
mod python;
mod recorder;
mod room;
mod runtime;
mod stacks;
mod stderr;
mod sync_memops;
mod thread;
mod trace_file;
