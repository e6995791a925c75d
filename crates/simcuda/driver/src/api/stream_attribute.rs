//! Attributes of streams: kept and given back, without effect.

use crate::abi::{In, Out, Status};
use crate::error::INVALID_VALUE;
use crate::sim::session::session;
use crate::sim::state::{Attribute, State};

/// `CUlaunchAttributeID`, those of streams: access policy window, synchronization policy, priority, memory
/// synchronization domains and their map, NVLink scheduling.
const SYNC_POLICY: u32 = 3;
const PRIORITY: u32 = 8;
const KNOWN: [u32; 6] = [1, SYNC_POLICY, PRIORITY, 9, 10, 16];

/// What holds unless it is set: zeros, but for `CU_SYNC_POLICY_AUTO`.
fn default(which: u32) -> Attribute {
    let mut value = [0; 64];
    value[0] = u8::from(which == SYNC_POLICY);
    value
}

fn get(s: &mut State, stream: u64, per_thread: bool, which: u32) -> Status<Attribute> {
    let lane = s.lane(stream, per_thread)?;
    if !KNOWN.contains(&which) {
        return Err(INVALID_VALUE);
    }
    if which == PRIORITY {
        let mut value = default(which);
        value[..4].copy_from_slice(&lane.priority.to_ne_bytes());
        return Ok(value);
    }
    let set = s.stream_attributes.get(&(lane.id, which)).copied();
    Ok(set.unwrap_or_else(|| default(which)))
}

fn set(s: &mut State, stream: u64, per_thread: bool, which: u32, value: Attribute) -> Status {
    let lane = s.lane(stream, per_thread)?;
    if !KNOWN.contains(&which) {
        return Err(INVALID_VALUE);
    }
    if which == PRIORITY {
        let [a, b, c, d, ..] = value;
        let priority = i32::from_ne_bytes([a, b, c, d]).clamp(-5, 0);
        // The default streams' is fixed.
        let lane = s.streams.get_mut(stream).ok_or(INVALID_VALUE)?;
        lane.priority = priority;
    } else {
        s.stream_attributes.insert((lane.id, which), value);
    }
    Ok(())
}

api! {
    "cuStreamGetAttribute" 11000 => cuStreamGetAttribute / cuStreamGetAttribute_ptsz |per_thread|
                                    (stream: u64, which: u32, value: Out<Attribute>) {
        session(|s| value.put(get(s, stream, per_thread, which)?))
    }
    "cuStreamSetAttribute" 11000 => cuStreamSetAttribute / cuStreamSetAttribute_ptsz |per_thread|
                                    (stream: u64, which: u32, value: In<Attribute>) {
        session(|s| set(s, stream, per_thread, which, value.get()?))
    }
    "cuStreamCopyAttributes" 11000 => cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz |per_thread|
                                      (target: u64, source: u64) {
        session(|s| {
            s.lane(target, per_thread)?;
            for which in KNOWN.into_iter().filter(|&which| which != PRIORITY) {
                let value = get(s, source, per_thread, which)?;
                set(s, target, per_thread, which, value)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_large_as_nvidias() {
        type Theirs = cudarc::driver::sys::CUlaunchAttributeValue_union;
        assert_eq!(size_of::<Attribute>(), size_of::<Theirs>());
    }
}
