//! Host stacks, interned.
//!
//! A stack is unwound with framehop from the registers that the entry stub saved,
//! through the unwind tables that the loader has mapped, and kept as return
//! addresses. Launches and copies, which come by the million, are unwound once per
//! call site, stack depth and stream; what tells little and comes rarely, always.
//! Where Python called, its frames are part of the stack: addresses that are none
//! stand for them (see [`crate::python`]).

use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use rustc_hash::FxHashMap;
use streamcheck_model::{Action, StackId, StreamRef};
use streamcheck_report::{Frame, Stacks as Policy};

use crate::objects;
use crate::python::{self, Python, PythonStack};
use crate::thread::{self, Origin};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder,
};

/// Frames kept of a stack.
const MOST_FRAMES: usize = 64;
/// Call sites remembered before all are forgotten.
const MOST_SITES: usize = 1 << 16;
/// Distinct stacks kept; past that only the caller is recorded, of known ones.
const MOST_STACKS: usize = 1 << 20;

/// Bytes that the loader has mapped. They are looked at only inside of
/// [`objects::while_loaded`], while the loader has unmapped nothing since they were
/// listed.
#[derive(Clone, Copy, Default)]
struct Mapped(&'static [u8]);

impl core::ops::Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

/// The stacks of a process.
pub(crate) struct Stacks {
    policy: Policy,
    unwinder: Unwinder<Mapped>,
    cache: Cache,
    generation: Option<(u64, u64)>,
    sites: FxHashMap<Site, StackId>,
    ids: FxHashMap<Arc<[u64]>, StackId>,
    stacks: Vec<Arc<[u64]>>,
    python: Python,
}

/// What the stack of a frequent call is told by: the address it returns to, the stack
/// pointer, the stream, and the Python frames.
type Site = (u64, u64, Option<StreamRef>, PythonStack);

impl Stacks {
    pub(crate) fn new(policy: Policy) -> Self {
        let none: Arc<[u64]> = Arc::from([]);
        Self {
            policy,
            unwinder: Unwinder::new(),
            cache: Cache::new(),
            generation: None,
            sites: FxHashMap::default(),
            ids: FxHashMap::default(),
            stacks: vec![none],
            python: Python::new(),
        }
    }

    /// The return addresses of a stack, the innermost first.
    pub(crate) fn addresses(&self, id: StackId) -> &[u64] {
        self.stacks.get(id.0 as usize).map_or(&[], |stack| stack)
    }

    /// The Python frames among a stack's addresses.
    pub(crate) fn interpreted(&self, addresses: &[u64]) -> impl Iterator<Item = (u64, &Frame)> {
        addresses
            .iter()
            .filter_map(|&address| Some((address, self.python.frame(address)?)))
    }

    /// The stack of a call, as far as the settings want it.
    #[inline]
    pub(crate) fn of(&mut self, origin: &Origin, action: &Action) -> StackId {
        match self.policy {
            Policy::None => StackId(0),
            // It came through no entry stub.
            _ if matches!(action, Action::StreamNamed { .. }) => StackId(0),
            Policy::Caller => {
                let python = self.python.capture(1);
                let site = (origin.return_address, 0, None, python);
                self.at_site(site, |stacks| {
                    objects::while_loaded(|generation| stacks.python.refresh(generation));
                    let mut addresses = origin_only(origin);
                    addresses.extend(stacks.python.splice(&[], python));
                    addresses
                })
            }
            Policy::Full => match action {
                Action::Launched { stream, .. }
                | Action::Copied { stream, .. }
                | Action::CopiedInLayers { stream, .. }
                | Action::CopiedTogether { stream, .. }
                | Action::Filled { stream, .. }
                | Action::Enqueued { stream }
                | Action::ValueWritten { stream, .. }
                | Action::ValueWaited { stream, .. } => {
                    let python = self.python.capture(python::MOST_FRAMES);
                    let (site, depth) = (origin.return_address, origin.stack_pointer);
                    self.at_site((site, depth, Some(*stream), python), |stacks| {
                        stacks.whole(origin, python)
                    })
                }
                Action::FreeEnded { .. } | Action::BlindSpot { .. } => StackId(0),
                _ => {
                    let python = self.python.capture(python::MOST_FRAMES);
                    let addresses = self.whole(origin, python);
                    self.intern(&addresses)
                }
            },
        }
    }

    fn at_site(&mut self, site: Site, addresses: impl FnOnce(&mut Self) -> Addresses) -> StackId {
        if let Some(&id) = self.sites.get(&site) {
            return id;
        }
        let addresses = addresses(self);
        let id = self.intern(&addresses);
        if self.sites.len() >= MOST_SITES {
            self.sites.clear();
        }
        self.sites.insert(site, id);
        id
    }

    fn intern(&mut self, addresses: &[u64]) -> StackId {
        if let Some(&id) = self.ids.get(addresses) {
            return id;
        }
        if self.stacks.len() >= MOST_STACKS {
            let caller = &addresses[..addresses.len().min(1)];
            return self.ids.get(caller).copied().unwrap_or_default();
        }
        let id = StackId(self.stacks.len() as u32);
        let addresses: Arc<[u64]> = Arc::from(addresses);
        self.stacks.push(addresses.clone());
        self.ids.insert(addresses, id);
        id
    }

    /// The native stack with the Python frames in it.
    fn whole(&mut self, origin: &Origin, python: PythonStack) -> Addresses {
        let native = self.unwind(origin);
        if python.is_none() {
            return native;
        }
        self.python.splice(&native, python)
    }

    fn unwind(&mut self, origin: &Origin) -> Addresses {
        let mut addresses = origin_only(origin);
        let bottom = origin.frame_address();
        let Some(end) = thread::block().stack_end(bottom) else {
            return addresses;
        };
        objects::while_loaded(|generation| {
            self.refresh(generation);
            self.walk(origin, end, &mut addresses);
        });
        addresses
    }

    /// Appends the return addresses above the first, up to the stack's `end`.
    fn walk(&mut self, origin: &Origin, end: u64, addresses: &mut Addresses) {
        let bottom = origin.frame_address();
        let mut registers = Registers::new(origin.return_address, bottom, origin.frame_pointer);
        let mut read = |address: u64| {
            if address < bottom
                || address & 7 != 0
                || address.checked_add(8).is_none_or(|last| last > end)
            {
                return Err(());
            }
            // SAFETY: an aligned word of this thread's own stack, above the hook's frame.
            Ok(unsafe { *(address as *const u64) })
        };
        let mut address = origin.return_address;
        while addresses.len() < MOST_FRAMES {
            let Some(frame) = FrameAddress::from_return_address(address) else {
                break;
            };
            match self
                .unwinder
                .unwind_frame(frame, &mut registers, &mut self.cache, &mut read)
            {
                Ok(Some(next)) => {
                    addresses.push(next);
                    address = next;
                }
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// Lists the modules anew if the loader has added or removed any.
    fn refresh(&mut self, generation: (u64, u64)) {
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        self.python.refresh(generation);
        self.unwinder = Unwinder::new();
        self.cache = Cache::new();
        for object in objects::list() {
            self.unwinder.add_module(module(&object));
        }
    }
}

type Addresses = smallvec::SmallVec<[u64; MOST_FRAMES]>;

fn origin_only(origin: &Origin) -> Addresses {
    Addresses::from_slice(&[origin.return_address])
}

/// What framehop needs of a loaded object: its range and its unwind tables.
fn module(object: &objects::Object) -> Module<Mapped> {
    let range = |(start, size): (u64, u64)| {
        // SAFETY: a piece of a segment that the loader has mapped readable.
        let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, size as usize) };
        (
            Some(start - object.base..start - object.base + size),
            Some(Mapped(bytes)),
        )
    };
    let mut info = ExplicitModuleSectionInfo::default();
    if let Some(header) = object.unwind_header
        && object
            .segment_end(header.0)
            .is_some_and(|end| header.0 + header.1 <= end)
    {
        (info.eh_frame_hdr_svma, info.eh_frame_hdr) = range(header);
        // The header's second field points to `.eh_frame`; nothing tells its size,
        // so it is taken to reach to the end of its segment.
        if let Some(start) = eh_frame_start(header.0, info.eh_frame_hdr.as_deref().unwrap_or(&[]))
            && let Some(end) = object.segment_end(start)
        {
            (info.eh_frame_svma, info.eh_frame) = range((start, end - start));
        }
    }
    Module::new(
        object.path.clone(),
        object.start..object.end,
        object.base,
        info,
    )
}

/// Reads the `.eh_frame` pointer of an `.eh_frame_hdr` at `address`, in the one
/// encoding that linkers write: a signed 32-bit offset from the field itself.
fn eh_frame_start(address: u64, header: &[u8]) -> Option<u64> {
    const DW_EH_PE_PCREL_SDATA4: u8 = 0x1b;
    let (&[1, DW_EH_PE_PCREL_SDATA4, _, _], rest) = header.split_first_chunk::<4>()? else {
        return None;
    };
    let offset = i32::from_le_bytes(*rest.first_chunk()?);
    (address + 4).checked_add_signed(offset.into())
}
