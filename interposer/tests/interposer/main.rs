//! The built library from outside: its exports, and programs that run under it.

mod common;
mod coverage;
mod execs;
mod exits;
mod exports;
mod graphs;
mod guard;
mod images;
mod log;
mod order;
mod preload;
mod python;
mod releases;
mod simulated;
mod traces;
