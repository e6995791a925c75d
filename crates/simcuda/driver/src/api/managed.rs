//! Managed memory: advice, prefetches, discards, and attachment to streams. All of it is the host's memory here, so
//! nothing moves; but each takes its place in its stream, and what is discarded is lost.

use crate::abi::{In, Location, Status};
use crate::error::INVALID_VALUE;
use crate::sim::dma;
use crate::sim::memory::Place;
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::{Barrier, State};

/// `CUmemLocationType`: a device, and three ways to name the host.
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA_CURRENT: u32 = 4;

/// The host, for the calls that name a device only.
const CPU: i32 = -1;

/// `CU_MEM_ATTACH_GLOBAL`, `…_HOST` and `…_SINGLE`.
const ATTACHMENTS: [u32; 3] = [1, 2, 4];

fn check_location(s: &mut State, location: Location) -> Status {
    match location.kind {
        DEVICE => s.device(location.id).map(|_| ()),
        HOST..=HOST_NUMA_CURRENT => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

fn check_managed(s: &State, address: u64, length: usize) -> Status {
    if s.place(address, length as u64)? == Place::Managed && length > 0 {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn on_device(device: i32) -> Location {
    let kind = if device == CPU { HOST } else { DEVICE };
    Location { kind, id: device }
}

fn advise(address: u64, length: usize, advice: u32, location: Location) -> Status {
    // `CUmem_advise`: read mostly, and what undoes it, name no location.
    session(|s| {
        check_managed(s, address, length)?;
        match advice {
            1 | 2 | 4 => Ok(()),
            3 | 5 | 6 => check_location(s, location),
            _ => Err(INVALID_VALUE),
        }
    })
}

fn prefetch(
    address: u64,
    length: usize,
    location: Location,
    stream: u64,
    per_thread: bool,
) -> Status {
    session(|s| {
        check_managed(s, address, length)?;
        check_location(s, location)?;
        let lane = s.lane(stream, per_thread)?;
        s.not_captured(lane)?;
        s.submit(lane, Vec::new(), Work::Marker);
        s.submitted();
        Ok(())
    })
}

/// The arrays of a batch: ranges, and the first of them that each location applies to.
struct Batch {
    addresses: In<u64>,
    sizes: In<usize>,
    count: usize,
    flags: u64,
}

struct Locations {
    locations: In<Location>,
    firsts: In<usize>,
    count: usize,
}

impl Batch {
    fn ranges(&self, s: &State) -> Status<Vec<(u64, usize)>> {
        if self.count == 0 || self.flags != 0 {
            return Err(INVALID_VALUE);
        }
        (0..self.count)
            .map(|index| {
                let (address, size) = (self.addresses.at(index)?, self.sizes.at(index)?);
                check_managed(s, address, size)?;
                Ok((address, size))
            })
            .collect()
    }

    fn check_locations(&self, s: &mut State, locations: &Locations) -> Status {
        if locations.count == 0 || locations.count > self.count {
            return Err(INVALID_VALUE);
        }
        let mut before = None;
        for index in 0..locations.count {
            let first = locations.firsts.at(index)?;
            if before.map_or(first != 0, |before| first <= before) || first >= self.count {
                return Err(INVALID_VALUE);
            }
            before = Some(first);
            check_location(s, locations.locations.at(index)?)?;
        }
        Ok(())
    }

    /// The batch is one operation of its stream. Discarded memory holds what fresh memory does.
    fn submit(
        self,
        discards: bool,
        locations: Option<Locations>,
        stream: u64,
        per_thread: bool,
    ) -> Status {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            // As `cuda.h` says of each of these calls: "must not be legacy NULL stream".
            if lane.barrier == Barrier::Legacy {
                return Err(INVALID_VALUE);
            }
            s.not_captured(lane)?;
            let ranges = self.ranges(s)?;
            if let Some(locations) = &locations {
                self.check_locations(s, locations)?;
            }
            let work = if discards {
                let lose = move || {
                    ranges
                        .iter()
                        .for_each(|&(address, size)| dma::poison(address, size as u64))
                };
                Work::Device(Box::new(lose))
            } else {
                Work::Marker
            };
            s.submit(lane, Vec::new(), work);
            s.submitted();
            Ok(())
        })
    }
}

api! {
    "cuMemAdvise" 8000 => cuMemAdvise(address: u64, length: usize, advice: u32, device: i32) {
        advise(address, length, advice, on_device(device))
    }
    "cuMemAdvise" 12020 => cuMemAdvise_v2(address: u64, length: usize, advice: u32, location: Location) {
        advise(address, length, advice, location)
    }
    "cuMemPrefetchAsync" 8000 => cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz |per_thread|
                                 (address: u64, length: usize, device: i32, stream: u64) {
        prefetch(address, length, on_device(device), stream, per_thread)
    }
    "cuMemPrefetchAsync" 12020 => cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz |per_thread|
                                  (address: u64, length: usize, location: Location, flags: u32, stream: u64) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        prefetch(address, length, location, stream, per_thread)
    }
    "cuMemPrefetchBatchAsync" 13000 => cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, locations: In<Location>, firsts: In<usize>,
         locations_count: usize, flags: u64, stream: u64) {
        let locations = Locations { locations, firsts, count: locations_count };
        Batch { addresses, sizes, count, flags }.submit(false, Some(locations), stream, per_thread)
    }
    "cuMemDiscardBatchAsync" 13000 => cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: u64) {
        Batch { addresses, sizes, count, flags }.submit(true, None, stream, per_thread)
    }
    "cuMemDiscardAndPrefetchBatchAsync" 13000 =>
        cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, locations: In<Location>, firsts: In<usize>,
         locations_count: usize, flags: u64, stream: u64) {
        let locations = Locations { locations, firsts, count: locations_count };
        Batch { addresses, sizes, count, flags }.submit(true, Some(locations), stream, per_thread)
    }
    "cuStreamAttachMemAsync" 6000 => cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz |per_thread|
                                     (stream: u64, address: u64, length: usize, flags: u32) {
        session(|s| {
            // A length of zero is the whole allocation.
            check_managed(s, address, length.max(1))?;
            if !ATTACHMENTS.contains(&flags) {
                return Err(INVALID_VALUE);
            }
            let lane = s.lane(stream, per_thread)?;
            s.not_captured(lane)?;
            s.submit(lane, Vec::new(), Work::Marker);
            s.submitted();
            Ok(())
        })
    }
}
