//! A simulated `libcuda.so.1`: a test double that drives real binaries through real interposition on a machine
//! without a GPU.
//!
//! * [`sim`] is the simulated machine: streams, memory, pools, one lock.
//! * [`image`] reads device code as far as its kernels' parameter layouts and its global variables.
//! * [`api`] is the C interface; each entry is declared once, with its `_ptsz`/`_ptds` twin, and that declaration
//!   also feeds `cuGetProcAddress`.
//!
//! What is missing is listed in `crates/simcuda/README.md`.

mod abi;
mod api;
mod error;
mod error_table;
mod image;
mod sim;
