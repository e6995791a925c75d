//! A simulated `libcudart.so.13`: the runtime interface over whatever `libcuda.so.1` the loader finds.
//!
//! As NVIDIA's, it is not linked to the driver: [`driver`] opens it at the first call and gets every function from
//! `cuGetProcAddress`; and each call that matters (allocation, copy, launch, event, wait) makes exactly one driver
//! call that matters. What is missing is listed in `crates/simcuda/README.md`.

#[path = "../../driver/src/abi.rs"]
mod abi;
#[path = "../../driver/src/error_table.rs"]
mod error_table;
#[macro_use]
mod export;
mod array;
mod batch;
mod copy;
mod copy_box;
mod device;
mod driver;
mod error;
mod event;
mod execution;
mod external;
mod fill;
mod graph;
mod graph_node;
mod graph_params;
mod ipc;
mod launch;
mod managed;
mod memory;
mod module;
mod pool;
mod registry;
mod stream;
mod unsupported;
