//! Green contexts, and the resources that they are described by. Each has streams of its own and nothing else: what it
//! is given of the device makes no difference here.

use super::context::{record, release, retain, wait};
use crate::abi::{In, Out, Status};
use crate::error::{INVALID_CONTEXT, INVALID_RESOURCE_TYPE, INVALID_VALUE};
use crate::sim::session::session;
use crate::sim::state::{NON_BLOCKING, State};

/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: u32 = 1;

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// As many as the device has, and at least as many a group.
const ALL: u32 = 132;
const LEAST: u32 = 8;

/// `CUdevResource`, of multiprocessors.
#[repr(C)]
#[derive(Clone, Copy)]
struct Resource {
    kind: u32,
    internal: [u8; 92],
    count: u32,
    least: u32,
    alignment: u32,
    rest: [u32; 7],
    next: u64,
}

impl Resource {
    fn multiprocessors(count: u32) -> Self {
        Self {
            kind: MULTIPROCESSORS,
            internal: [0; 92],
            count,
            least: LEAST,
            alignment: LEAST,
            rest: [0; 7],
            next: 0,
        }
    }
}

fn only_multiprocessors(kind: u32) -> Status {
    if kind == MULTIPROCESSORS {
        Ok(())
    } else {
        Err(INVALID_RESOURCE_TYPE)
    }
}

/// The context that a green one's handle names.
fn context_of(s: &State, green: u64) -> Status<u64> {
    s.greens.get(green).copied().ok_or(INVALID_CONTEXT)
}

/// The handle of the green context that `context` is, or null.
pub(super) fn green_of(s: &State, context: u64) -> u64 {
    s.greens
        .iter()
        .find(|&(_, &named)| named == context)
        .map_or(0, |(handle, _)| handle)
}

api! {
    "cuDeviceGetDevResource" 12040 => cuDeviceGetDevResource(device: i32, out: Out<Resource>, kind: u32) {
        session(|s| s.device(device).map(|_| ()))?;
        only_multiprocessors(kind)?;
        out.put(Resource::multiprocessors(ALL))
    }
    "cuCtxGetDevResource" 12040 => cuCtxGetDevResource(context: u64, out: Out<Resource>, kind: u32) {
        session(|s| s.context(context).map(|_| ()))?;
        only_multiprocessors(kind)?;
        out.put(Resource::multiprocessors(ALL))
    }
    "cuGreenCtxGetDevResource" 12040 => cuGreenCtxGetDevResource(green: u64, out: Out<Resource>, kind: u32) {
        session(|s| context_of(s, green))?;
        only_multiprocessors(kind)?;
        out.put(Resource::multiprocessors(ALL))
    }
    "cuStreamGetDevResource" 13010 => cuStreamGetDevResource / cuStreamGetDevResource_ptsz |per_thread|
                                      (stream: u64, out: Out<Resource>, kind: u32) {
        session(|s| s.lane(stream, per_thread))?;
        only_multiprocessors(kind)?;
        out.put(Resource::multiprocessors(ALL))
    }
    "cuDevSmResourceSplitByCount" 12040 => cuDevSmResourceSplitByCount(groups: Out<Resource>, count: Out<u32>,
                                                                       input: In<Resource>, remaining: Out<Resource>,
                                                                       _flags: u32, least: u32) {
        let input = input.get()?;
        only_multiprocessors(input.kind)?;
        let each = least.max(LEAST).checked_next_multiple_of(LEAST).ok_or(INVALID_VALUE)?;
        let most = input.count / each;
        // Without a place for the groups the question is how many there could be.
        let wanted = if groups.0.is_null() { most } else { most.min(In(count.0.cast_const()).get()?) };
        count.put(wanted)?;
        for index in (0..wanted).take_while(|_| !groups.0.is_null()) {
            Out(groups.0.wrapping_add(index as usize)).put(Resource::multiprocessors(each))?;
        }
        remaining.put_if_wanted(Resource::multiprocessors(input.count - wanted * each));
        Ok(())
    }
    "cuDevResourceGenerateDesc" 12040 => cuDevResourceGenerateDesc(descriptor: Out<u64>, resources: In<Resource>,
                                                                   count: u32) {
        let counts: Status<Vec<u32>> = (0..count as usize)
            .map(|index| {
                let resource = resources.at(index)?;
                only_multiprocessors(resource.kind).map(|()| resource.count)
            })
            .collect();
        let total = counts?.into_iter().fold(0, u32::saturating_add);
        if total == 0 {
            return Err(INVALID_VALUE);
        }
        session(|s| {
            descriptor.wanted()?;
            let handle = s.resources.insert(total);
            descriptor.put(handle)
        })
    }

    "cuGreenCtxCreate" 12040 => cuGreenCtxCreate(green: Out<u64>, _resources: u64, device: i32, flags: u32) {
        session(|s| {
            green.wanted()?;
            if flags & !DEFAULT_STREAM != 0 {
                return Err(INVALID_VALUE);
            }
            let primary = retain(s, device)?;
            let context = s.add_green(primary)?;
            let handle = s.greens.insert(context);
            green.put(handle)
        })
    }
    "cuGreenCtxDestroy" 12040 => cuGreenCtxDestroy(green: u64) {
        session(|s| {
            let context = context_of(s, green)?;
            let device = s.context(context)?.1.device;
            s.greens.remove(green);
            s.remove_green(context);
            release(s, device)
        })
    }
    "cuCtxFromGreenCtx" 12040 => cuCtxFromGreenCtx(context: Out<u64>, green: u64) {
        session(|s| context.put(context_of(s, green)?))
    }
    "cuGreenCtxGetId" 12090 => cuGreenCtxGetId(green: u64, id: Out<u64>) {
        session(|s| {
            let context = context_of(s, green)?;
            id.put(s.context(context)?.1.id)
        })
    }
    "cuGreenCtxStreamCreate" 12050 => cuGreenCtxStreamCreate(stream: Out<u64>, green: u64, flags: u32, priority: i32) {
        session(|s| {
            stream.wanted()?;
            let context = context_of(s, green)?;
            // "CU_STREAM_NON_BLOCKING: This must be specified."
            if flags != NON_BLOCKING {
                return Err(INVALID_VALUE);
            }
            let handle = s.add_stream(context, flags, priority.clamp(-5, 0));
            stream.put(handle)
        })
    }
    "cuGreenCtxRecordEvent" 12040 => cuGreenCtxRecordEvent(green: u64, event: u64) {
        session(|s| {
            let context = context_of(s, green)?;
            record(s, context, event)
        })
    }
    "cuGreenCtxWaitEvent" 12040 => cuGreenCtxWaitEvent(green: u64, event: u64) {
        session(|s| {
            let context = context_of(s, green)?;
            wait(s, context, event)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUdevResource_st as Theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn a_resource_is_laid_out_as_nvidias() {
        assert_eq!(size_of::<Resource>(), size_of::<Theirs>());
        assert_eq!(
            offset_of!(Resource, count),
            offset_of!(Theirs, __bindgen_anon_1)
        );
        assert_eq!(offset_of!(Resource, next), offset_of!(Theirs, nextResource));
    }
}
