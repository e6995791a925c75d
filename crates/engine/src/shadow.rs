//! The accesses to one allocation that a later access could race with.
//!
//! A copy or fill knows its bytes; a kernel's parameter is a pointer of unknown
//! extent. Two kernels therefore conflict only on the same pointer, so that
//! libraries may carve up one slab, and a kernel conflicts with a copy or fill
//! whose bytes hold the pointer. Where a kernel is known to add parameters to the
//! pointer, it begins elsewhere: two such kernels conflict where they add the same, and
//! no copy is known to meet them.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use streamcheck_model::{Mode, Region};

use crate::op::Access;

/// What an access touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Footprint {
    /// From this address on, how far is not known; shifted, unless 0, by parameters whose
    /// values the number tells apart.
    Pointer(u64, u32),
    /// Just these bytes.
    Exact(Region),
}

impl Footprint {
    /// The first byte.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Pointer(address, _) => *address,
            Self::Exact(region) => region.address,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    access: Access,
    mode: Mode,
    /// Of a pointer: see [`Footprint::Pointer`].
    shift: u32,
}

impl Record {
    /// Two accesses conflict if one surely or by its declaration writes, or if only one
    /// is atomic. A value found in a by-value struct says nothing of how it is used.
    #[inline]
    fn conflicts(&self, mode: Mode) -> bool {
        use Mode::{Read, Update, Write};
        matches!(
            (self.mode, mode),
            (Write, _) | (_, Write) | (Update, Read) | (Read, Update)
        )
    }

    /// Whether every access that would conflict with this one also conflicts with
    /// a newer one of `mode`.
    #[inline]
    fn superseded_by(&self, mode: Mode) -> bool {
        match mode {
            Mode::Write => true,
            Mode::Read => !matches!(self.mode, Mode::Write | Mode::Update),
            Mode::Update => !matches!(self.mode, Mode::Write | Mode::Read),
            Mode::Unknown | Mode::Doubtful => {
                matches!(self.mode, Mode::Unknown | Mode::Doubtful)
            }
        }
    }
}

/// Records by pointer, in the order of the pointers.
#[derive(Debug, Default)]
struct PointerTable {
    addresses: SmallVec<[u64; 2]>,
    records: SmallVec<[SmallVec<[Record; 1]>; 1]>,
}

impl PointerTable {
    fn get(&self, address: u64) -> &[Record] {
        self.addresses
            .binary_search(&address)
            .map_or(&[], |place| &self.records[place])
    }

    #[inline]
    fn get_mut(&mut self, address: u64) -> Option<&mut [Record]> {
        let place = match self.addresses[..] {
            [only] => (only == address).then_some(0),
            _ => self.addresses.binary_search(&address).ok(),
        };
        Some(&mut self.records[place?])
    }

    fn entry(&mut self, address: u64) -> &mut SmallVec<[Record; 1]> {
        let place = match self.addresses.binary_search(&address) {
            Ok(place) => place,
            Err(place) => {
                self.addresses.insert(place, address);
                self.records.insert(place, SmallVec::new());
                place
            }
        };
        &mut self.records[place]
    }

    /// The pointers in `start..end` with their records.
    fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &[Record])> {
        let first = self.addresses.partition_point(|address| *address < start);
        let last = self
            .addresses
            .partition_point(|address| *address < end)
            .max(first);
        self.addresses[first..last]
            .iter()
            .zip(&self.records[first..last])
            .map(|(a, r)| (*a, &r[..]))
    }

    /// Keeps the wanted records of the pointers in `start..end`; the number of the
    /// others.
    fn retain(&mut self, start: u64, end: u64, wanted: impl Fn(&Record) -> bool) -> usize {
        let first = self.addresses.partition_point(|address| *address < start);
        let last = self.addresses.partition_point(|address| *address < end);
        let mut dropped = 0;
        for place in (first..last).rev() {
            let before = self.records[place].len();
            self.records[place].retain(|record| wanted(record));
            dropped += before - self.records[place].len();
            if self.records[place].is_empty() {
                self.records.remove(place);
                self.addresses.remove(place);
            }
        }
        dropped
    }
}

/// Records of exact bytes, by the binary order of their lengths: a few long regions do
/// not make a search among many short ones longer.
#[derive(Debug, Default)]
struct RegionTable {
    classes: SmallVec<[(u32, Class); 1]>,
    arrived: u64,
    count: usize,
}

/// Regions of lengths up to `1 << n`, by first byte, then in the order of arrival.
type Class = BTreeMap<(u64, u64), (Region, Record)>;

impl RegionTable {
    fn class(region: &Region) -> u32 {
        let length = (region.end() - region.address).max(1);
        u64::BITS - (length - 1).leading_zeros()
    }

    fn insert(&mut self, region: Region, record: Record) {
        let class = Self::class(&region);
        let mut known = self.classes.iter();
        let place = known.position(|(known, _)| *known == class);
        let place = place.unwrap_or_else(|| {
            self.classes.push((class, Class::new()));
            self.classes.len() - 1
        });
        self.arrived += 1;
        self.count += 1;
        let class = &mut self.classes[place].1;
        class.insert((region.address, self.arrived), (region, record));
    }

    /// The first of all, where there is but one.
    fn only(&mut self) -> Option<&mut (Region, Record)> {
        let mut classes = self.classes.iter_mut();
        classes.find_map(|(_, regions)| regions.values_mut().next())
    }

    /// The regions that may reach into `start..end`.
    fn near(&self, start: u64, end: u64) -> impl Iterator<Item = &(Region, Record)> {
        self.classes.iter().flat_map(move |(class, regions)| {
            let reach = 1_u64.checked_shl(*class).unwrap_or(u64::MAX);
            let first = (start.saturating_sub(reach), 0);
            let near = regions.range(first..(end, 0).max(first));
            near.map(|(_, there)| there)
        })
    }

    /// Drops those that `gone` says so of among the ones near `start..end`.
    fn drop_near(&mut self, start: u64, end: u64, gone: impl Fn(&Region, &Record) -> bool) {
        for (class, regions) in &mut self.classes {
            let reach = 1_u64.checked_shl(*class).unwrap_or(u64::MAX);
            let first = (start.saturating_sub(reach), 0);
            let near = regions.range(first..(end, 0).max(first));
            let old: SmallVec<[(u64, u64); 4]> = near
                .filter(|(_, (region, record))| gone(region, record))
                .map(|(key, _)| *key)
                .collect();
            for key in &old {
                regions.remove(key);
            }
            self.count -= old.len();
        }
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let regions = self
            .classes
            .iter()
            .flat_map(|(_, regions)| regions.values());
        regions.map(|(_, record)| record)
    }

    fn retain(&mut self, wanted: impl Fn(&Record) -> bool) {
        for (_, regions) in &mut self.classes {
            regions.retain(|_, (_, record)| wanted(record));
        }
        self.classes.retain(|(_, regions)| !regions.is_empty());
        self.count = self.classes.iter().map(|(_, regions)| regions.len()).sum();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pointers: PointerTable,
    /// Records of pointers.
    count: usize,
    regions: Option<Box<RegionTable>>,
}

impl Shadow {
    /// Records kept for one allocation; past it the oldest go, uncounted races and all.
    const CAP: usize = 4096;

    /// The newest earlier access that conflicts with this one and that `knows`
    /// does not order before it.
    pub(crate) fn race(
        &self,
        footprint: Footprint,
        mode: Mode,
        knows: impl Fn(&Access) -> bool,
    ) -> Option<Access> {
        let mut newest: Option<Access> = None;
        let mut look = |record: &Record| {
            if record.conflicts(mode)
                && newest.is_none_or(|found| found.op.sequence < record.access.op.sequence)
                && !knows(&record.access)
            {
                newest = Some(record.access);
            }
        };
        match footprint {
            Footprint::Pointer(address, shift) => {
                let same = |record: &&Record| record.shift == shift;
                let records = self.pointers.get(address).iter();
                records.filter(same).for_each(&mut look);
                if shift == 0
                    && let Some(regions) = &self.regions
                {
                    regions
                        .near(address, address.saturating_add(1))
                        .filter(|(region, _)| region.contains(address))
                        .for_each(|(_, record)| look(record));
                }
            }
            Footprint::Exact(region) => {
                for (address, records) in self.pointers.range(region.address, region.end()) {
                    if region.contains(address) {
                        let fixed = |record: &&Record| record.shift == 0;
                        records.iter().filter(fixed).for_each(&mut look);
                    }
                }
                let regions = self.regions.iter();
                regions
                    .flat_map(|regions| regions.near(region.address, region.end()))
                    .filter(|(other, _)| other.overlaps(&region))
                    .for_each(|(_, record)| look(record));
            }
        }
        newest
    }

    /// The newest access that the CPU's to the region conflicts with and that `knows` does
    /// not order before it. Kernels reach the region from the pointers in it, and from
    /// those in `through`.
    pub(crate) fn in_flight(
        &self,
        region: Region,
        mode: Mode,
        through: &[u64],
        knows: impl Fn(&Access) -> bool,
    ) -> Option<Access> {
        let conflicts = |record: &&Record| match record.mode {
            Mode::Write => true,
            Mode::Read => mode == Mode::Write,
            Mode::Update | Mode::Unknown | Mode::Doubtful => false,
        };
        let inside = self.pointers.range(region.address, region.end());
        let inside = inside.filter(|(address, _)| region.contains(*address));
        let outside = through.iter().filter(|address| !region.contains(**address));
        let pointers = inside
            .map(|(_, records)| records)
            .chain(outside.map(|address| self.pointers.get(*address)))
            .flatten()
            .filter(|record| record.shift == 0);
        let regions = self.regions.iter();
        let regions = regions
            .flat_map(|regions| regions.near(region.address, region.end()))
            .filter(|(other, _)| other.overlaps(&region))
            .map(|(_, record)| record);
        pointers
            .chain(regions)
            .filter(conflicts)
            .map(|record| record.access)
            .filter(|access| !knows(access))
            .max_by_key(|access| access.op.sequence)
    }

    /// Takes in an access through a pointer that only the same timeline has used so before,
    /// where nothing else can conflict: the common case. False if it is not that.
    #[inline]
    pub(crate) fn again(&mut self, address: u64, shift: u32, mode: Mode, access: Access) -> bool {
        if self
            .regions
            .as_ref()
            .is_some_and(|regions| regions.count > 0)
        {
            return false;
        }
        let Some([record]) = self.pointers.get_mut(address) else {
            return false;
        };
        let same = record.shift == shift && record.access.epoch.slot == access.epoch.slot;
        if same && record.superseded_by(mode) {
            *record = Record {
                access,
                mode,
                shift,
            };
            return true;
        }
        false
    }

    /// The same for an access to just these bytes.
    #[inline]
    pub(crate) fn again_at(&mut self, region: Region, mode: Mode, access: Access) -> bool {
        let only = match &mut self.regions {
            Some(regions) if self.count == 0 && regions.count == 1 => regions.only(),
            _ => None,
        };
        let Some((known, record)) = only else {
            return false;
        };
        let same = *known == region && record.access.epoch.slot == access.epoch.slot;
        if same && record.superseded_by(mode) {
            record.access = access;
            record.mode = mode;
            return true;
        }
        false
    }

    /// Adds an access and drops those that it makes redundant: ordered before it
    /// (`knows`), and conflicting with nothing that it does not conflict with.
    /// `over` says of an access that nothing can race with it any more. Returns
    /// how many records the cap cost.
    pub(crate) fn add(
        &mut self,
        footprint: Footprint,
        mode: Mode,
        access: Access,
        knows: impl Fn(&Access) -> bool,
        over: impl Fn(&Access) -> bool,
    ) -> u64 {
        let shift = match footprint {
            Footprint::Pointer(_, shift) => shift,
            Footprint::Exact(_) => 0,
        };
        let record = Record {
            access,
            mode,
            shift,
        };
        let redundant = |old: &Record| old.superseded_by(mode) && knows(&old.access);
        match footprint {
            Footprint::Pointer(address, _) => {
                let records = self.pointers.entry(address);
                self.count -= records.len();
                records.retain(|old| old.shift != shift || !redundant(old));
                records.push(record);
                self.count += records.len();
            }
            Footprint::Exact(region) => {
                if region.bytes() == 0 {
                    return 0;
                }
                if region.rows == 1 {
                    self.count -= self.pointers.retain(region.address, region.end(), |old| {
                        old.shift != 0 || !redundant(old)
                    });
                }
                let regions = self.regions.get_or_insert_default();
                regions.drop_near(region.address, region.end(), |old, record| {
                    covers(&region, old) && redundant(record)
                });
                regions.insert(region, record);
            }
        }
        if self.records() > Self::CAP {
            self.shrink(over)
        } else {
            0
        }
    }

    fn records(&self) -> usize {
        self.count + self.regions.as_ref().map_or(0, |regions| regions.count)
    }

    /// Drops what can race no more, then, if need be, the older half.
    fn shrink(&mut self, over: impl Fn(&Access) -> bool) -> u64 {
        self.keep(|record| !over(&record.access));
        if self.records() <= Self::CAP / 2 {
            return 0;
        }
        let pointers = self.pointers.records.iter().flatten();
        let regions = self.regions.iter().flat_map(|regions| regions.records());
        let mut sequences: Vec<u64> = pointers
            .chain(regions)
            .map(|record| record.access.op.sequence)
            .collect();
        let middle = sequences.len() / 2;
        let (_, median, _) = sequences.select_nth_unstable(middle);
        let median = *median;
        let before = self.records();
        self.keep(|record| record.access.op.sequence > median);
        (before - self.records()) as u64
    }

    fn keep(&mut self, wanted: impl Fn(&Record) -> bool) {
        if let Some(regions) = &mut self.regions {
            regions.retain(&wanted);
        }
        self.count -= self.pointers.retain(0, u64::MAX, wanted);
    }
}

/// Whether `outer` holds every byte of `inner`, as far as that is cheap to say.
fn covers(outer: &Region, inner: &Region) -> bool {
    outer == inner
        || (outer.rows == 1 && outer.address <= inner.address && inner.end() <= outer.end())
}

#[cfg(test)]
mod tests {
    use streamcheck_model::Call;

    use super::*;
    use crate::clock::Epoch;
    use crate::op::OpRef;

    fn access(sequence: u64) -> Access {
        Access {
            epoch: Epoch {
                slot: 1,
                time: sequence,
            },
            op: OpRef::new(sequence, &Call::default(), None),
        }
    }

    fn add(shadow: &mut Shadow, footprint: Footprint, mode: Mode, sequence: u64) {
        shadow.add(footprint, mode, access(sequence), |_| false, |_| false);
    }

    #[test]
    fn kernels_meet_only_at_the_same_pointer() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 0), Mode::Write, 1);
        assert!(
            shadow
                .race(Footprint::Pointer(101, 0), Mode::Write, |_| false)
                .is_none()
        );
        assert!(
            shadow
                .race(Footprint::Pointer(100, 0), Mode::Read, |_| false)
                .is_some()
        );
        assert!(
            shadow
                .race(Footprint::Pointer(100, 0), Mode::Read, |_| true)
                .is_none()
        );
    }

    #[test]
    fn a_range_meets_the_pointers_inside_it() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 0), Mode::Read, 1);
        let exact = |address, bytes| Footprint::Exact(Region::linear(address, bytes));
        assert!(shadow.race(exact(90, 20), Mode::Write, |_| false).is_some());
        assert!(shadow.race(exact(90, 20), Mode::Read, |_| false).is_none());
        assert!(shadow.race(exact(90, 10), Mode::Write, |_| false).is_none());
        add(&mut shadow, exact(0, 50), Mode::Write, 2);
        assert!(
            shadow
                .race(Footprint::Pointer(49, 0), Mode::Read, |_| false)
                .is_some()
        );
        assert!(shadow.race(exact(50, 10), Mode::Write, |_| false).is_none());
    }

    #[test]
    fn values_in_structs_race_only_with_sure_writes() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 0), Mode::Unknown, 1);
        assert!(
            shadow
                .race(Footprint::Pointer(100, 0), Mode::Unknown, |_| false)
                .is_none()
        );
        assert!(
            shadow
                .race(Footprint::Pointer(100, 0), Mode::Read, |_| false)
                .is_none()
        );
        assert!(
            shadow
                .race(Footprint::Pointer(100, 0), Mode::Write, |_| false)
                .is_some()
        );
    }

    #[test]
    fn a_read_does_not_hide_the_write_before_it() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 0), Mode::Write, 1);
        shadow.add(
            Footprint::Pointer(100, 0),
            Mode::Read,
            access(2),
            |_| true,
            |_| false,
        );
        let race = shadow.race(Footprint::Pointer(100, 0), Mode::Read, |_| false);
        assert_eq!(race.map(|access| access.op.sequence), Some(1));
    }

    #[test]
    fn the_cap_holds_and_forgetting_is_counted() {
        let mut shadow = Shadow::default();
        let mut lost = 0;
        for i in 0..3 * Shadow::CAP as u64 {
            lost += shadow.add(
                Footprint::Pointer(i, 0),
                Mode::Write,
                access(i),
                |_| false,
                |_| false,
            );
        }
        assert!(shadow.records() <= Shadow::CAP + 1 && lost > 0);
        let mut quiet = Shadow::default();
        for i in 0..3 * Shadow::CAP as u64 {
            assert_eq!(
                quiet.add(
                    Footprint::Pointer(i, 0),
                    Mode::Write,
                    access(i),
                    |_| false,
                    |_| true
                ),
                0
            );
        }
    }

    #[test]
    fn atomic_updates_race_with_everything_else() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 0), Mode::Update, 1);
        let races = |mode| {
            shadow
                .race(Footprint::Pointer(100, 0), mode, |_| false)
                .is_some()
        };
        assert!(!races(Mode::Update) && races(Mode::Read) && races(Mode::Write));
        assert!(!races(Mode::Unknown));
    }

    #[test]
    fn shifted_pointers_meet_where_they_are_shifted_alike() {
        let mut shadow = Shadow::default();
        add(&mut shadow, Footprint::Pointer(100, 7), Mode::Write, 1);
        let races = |footprint| shadow.race(footprint, Mode::Write, |_| false).is_some();
        assert!(races(Footprint::Pointer(100, 7)) && !races(Footprint::Pointer(100, 8)));
        assert!(!races(Footprint::Pointer(100, 0)));
        assert!(!races(Footprint::Exact(Region::linear(90, 20))));
    }
}
