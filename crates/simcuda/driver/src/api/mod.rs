//! The C interface.

/// Declares exports. `"base" version => name / twin |per_thread| (arguments) { body }`: `base` and `version` are what
/// `cuGetProcAddress` is asked for, `name` the export, `twin` its per-thread-default-stream flavour (`per_thread` is
/// then true in the body). The body is a `Status`, returned as a `CUresult`.
macro_rules! api {
    ($( $base:literal $since:literal => $name:ident $(/ $twin:ident |$per_thread:ident|)? ($($args:tt)*) $body:block )*) => {
        $( api!(@item $name [$($twin $per_thread)?] ($($args)*) $body); )*

        /// This file's entries, for `cuGetProcAddress`.
        pub(super) fn entries() -> Vec<$crate::api::Entry> {
            vec![$( $crate::api::Entry {
                base: $base,
                since: $since,
                legacy: $name as *const () as usize,
                per_thread: [$( $twin as *const () as usize, )? $name as *const () as usize][0],
            } ),*]
        }
    };
    (@item $name:ident [] $args:tt $body:block) => {
        api!(@export $name [] false $args $body);
    };
    (@item $name:ident [$twin:ident $per_thread:ident] $args:tt $body:block) => {
        api!(@export $name [$per_thread] false $args $body);
        api!(@export $twin [$per_thread] true $args $body);
    };
    (@export $name:ident [$($per_thread:ident)?] $flag:literal ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        // SAFETY: the name is NVIDIA's and this library stands in for the one that defines it.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "NVIDIA's names")]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            $( let $per_thread = $flag; )?
            #[allow(clippy::redundant_closure_call, reason = "the body may return early")]
            (|| -> $crate::abi::Status { $body })().err().unwrap_or(0)
        }
    };
}

mod age;
mod array;
mod batch;
mod capture;
mod context;
mod copy;
mod copy_box;
mod device;
mod event;
mod external_memory;
mod fill;
mod graph;
mod graph_exec;
mod graph_memory;
mod graph_node;
mod graph_params;
mod green;
mod ipc;
mod launch;
mod managed;
mod memory;
mod module;
mod old_launch;
mod pool;
mod semaphore;
mod stream;
mod stream_attribute;
mod stream_value;
mod unsupported;
mod user_object;
mod virtual_memory;

use crate::abi::{In, Out, Status, Text};
use crate::error::{self, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};
use crate::sim::session;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::LazyLock;

/// The newest driver interface this library stands in for: 13.0.
pub(crate) const VERSION: i32 = 13_000;

/// One name of one version, by export address.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    base: &'static str,
    since: i32,
    legacy: usize,
    per_thread: usize,
}

static ENTRIES: LazyLock<HashMap<&'static str, Vec<Entry>>> = LazyLock::new(|| {
    let mut by_name: HashMap<&'static str, Vec<Entry>> = HashMap::new();
    let all = [
        entries(),
        array::entries(),
        batch::entries(),
        capture::entries(),
        context::entries(),
        copy::entries(),
        copy_box::entries(),
        device::entries(),
        event::entries(),
        external_memory::entries(),
        fill::entries(),
        graph::entries(),
        graph_exec::entries(),
        graph_memory::entries(),
        graph_node::entries(),
        green::entries(),
        ipc::entries(),
        launch::entries(),
        managed::entries(),
        memory::entries(),
        module::entries(),
        old_launch::entries(),
        pool::entries(),
        semaphore::entries(),
        stream::entries(),
        stream_attribute::entries(),
        stream_value::entries(),
        user_object::entries(),
        virtual_memory::entries(),
    ];
    for entry in all.into_iter().flatten() {
        by_name.entry(entry.base).or_default().push(entry);
        // Since 12.0 the plain name means this one.
        if entry.base == "cuGraphInstantiateWithFlags" {
            let plain = Entry {
                base: "cuGraphInstantiate",
                since: 12_000,
                ..entry
            };
            by_name.entry(plain.base).or_default().push(plain);
        }
    }
    by_name
});

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
const FOUND: u32 = 0;
const SYMBOL_NOT_FOUND: u32 = 1;
const VERSION_TOO_OLD: u32 = 2;

/// The export for `symbol` as of `version`: the newest not newer than that.
fn find(symbol: &str, version: i32, flags: u64) -> Result<usize, u32> {
    if age::lacks(symbol) {
        return Err(SYMBOL_NOT_FOUND);
    }
    let known = ENTRIES.get(symbol).ok_or(SYMBOL_NOT_FOUND)?;
    let best = known
        .iter()
        .filter(|entry| entry.since <= version)
        .max_by_key(|entry| entry.since);
    let entry = best.ok_or(VERSION_TOO_OLD)?;
    Ok(if flags & PER_THREAD_DEFAULT_STREAM != 0 {
        entry.per_thread
    } else {
        entry.legacy
    })
}

impl<T: Copy> In<T> {
    /// The first `count` elements of a C array; a null pointer is an invalid value unless there are none.
    fn list(self, count: usize) -> Status<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}

api! {
    "cuInit" 2000 => cuInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let devices = environment("SIMCUDA_DEVICES").map_or(1, |count| count.clamp(1, 2));
        session::initialize(devices as usize, environment("SIMCUDA_SEED").unwrap_or(0))
    }

    "cuDriverGetVersion" 2020 => cuDriverGetVersion(version: Out<i32>) { version.put(VERSION) }

    "cuGetErrorName" 6000 => cuGetErrorName(code: u32, text: Out<*const c_char>) {
        let found = error::describe(code);
        text.put(found.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        found.map(|_| ()).ok_or(INVALID_VALUE)
    }

    "cuGetErrorString" 6000 => cuGetErrorString(code: u32, text: Out<*const c_char>) {
        let found = error::describe(code);
        text.put(found.map_or(std::ptr::null(), |(_, words)| words.as_ptr()))?;
        found.map(|_| ()).ok_or(INVALID_VALUE)
    }

    "cuGetProcAddress" 11030 => cuGetProcAddress(symbol: Text, function: Out<*const c_void>, version: i32, flags: u64) {
        let found = find(symbol.get()?, version, flags);
        function.put(found.unwrap_or(0) as *const c_void)?;
        found.map(|_| ()).map_err(|_| NOT_FOUND)
    }

    "cuGetProcAddress" 12000 => cuGetProcAddress_v2(symbol: Text, function: Out<*const c_void>, version: i32,
                                                    flags: u64, result: Out<u32>) {
        let found = find(symbol.get()?, version, flags);
        function.put(found.unwrap_or(0) as *const c_void)?;
        result.put_if_wanted(found.err().unwrap_or(FOUND));
        found.map(|_| ()).map_err(|_| NOT_FOUND)
    }

    "cuGetExportTable" 3000 => cuGetExportTable(table: Out<*const c_void>, _id: *const c_void) {
        table.put(std::ptr::null())?;
        Err(NOT_SUPPORTED)
    }

    "cuProfilerStart" 4000 => cuProfilerStart() { Ok(()) }
    "cuProfilerStop" 4000 => cuProfilerStop() { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_the_exports_of_version_and_flavour() {
        let at = |symbol, version, flags| find(symbol, version, flags);
        assert_eq!(
            at("cuGetProcAddress", 11030, 0),
            Ok(cuGetProcAddress as *const () as usize)
        );
        assert_eq!(
            at("cuGetProcAddress", 13000, 2),
            Ok(cuGetProcAddress_v2 as *const () as usize)
        );
        assert_eq!(at("cuInit", 1000, 0), Err(VERSION_TOO_OLD));
        assert_eq!(at("cuNoSuchThing", 13000, 0), Err(SYMBOL_NOT_FOUND));
        let newest = at("cuGraphInstantiateWithFlags", 13000, 0);
        assert_eq!(at("cuGraphInstantiate", 12000, 0), newest);
        assert_ne!(at("cuGraphInstantiate", 11080, 0), newest);
        assert_ne!(
            at("cuGraphInstantiate", 10000, 0),
            at("cuGraphInstantiate", 11000, 0)
        );
        let (legacy, per_thread) = (
            at("cuMemAllocAsync", 13000, 0),
            at("cuMemAllocAsync", 13000, 2),
        );
        assert!(legacy.is_ok() && per_thread.is_ok() && legacy != per_thread);
        assert_eq!(
            at("cuMemFree", 13000, 0),
            at("cuMemFree", 13000, 2),
            "one flavour only"
        );
    }
}
