//! Where a kernel's parameters lie, what is done with them, and what a launch holds there.

use core::ffi::c_void;
use core::hash::Hasher as _;

use rustc_hash::FxHasher;
use smallvec::SmallVec;
use streamcheck_image::{self as code, Access, Code, Param, Uses};
use streamcheck_model::{Element, Mode, Per, Pointer, Used};

/// Where parameters lie, and what is done with them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    parameters: Box<[Parameter]>,
    /// The slots that the kernel's code uses as pointers, where that is known.
    used: Option<Box<[Slot]>>,
    /// Whether the kernel uses addresses that it finds in memory.
    follows: bool,
}

/// A place among the parameters: which one, and how far into it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotPlace {
    parameter: usize,
    offset: usize,
    size: usize,
}

/// Eight bytes that the kernel's code uses as a pointer.
#[derive(Debug, PartialEq, Eq)]
struct Slot {
    place: SlotPlace,
    mode: Mode,
    used: Used,
    /// What the kernel adds to it.
    shifts: Box<[SlotPlace]>,
    element: Element,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// In the parameter buffer; of use only for launches that give one.
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) mode: Mode,
    /// Bytes of one element of what it points to; 0 if that is not known.
    pub(super) element: u8,
}

/// The parameters of a launch, in one of the two forms that CUDA takes.
#[derive(Clone, Copy)]
pub(crate) enum Parameters {
    /// None, or none that could be read.
    None,
    /// `kernelParams`: one pointer to each parameter.
    Array(*const *const u8),
    /// A `CU_LAUNCH_PARAM_BUFFER_POINTER` buffer.
    Buffer(*const u8, usize),
}

impl Parameters {
    /// The form that a driver launch used.
    ///
    /// # Safety
    /// The arguments are those of a launch that succeeded.
    pub(crate) unsafe fn of_launch(params: *const *const u8, extra: *const *const c_void) -> Self {
        if !params.is_null() {
            return Self::Array(params);
        }
        // CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE (cuda.h).
        let (mut buffer, mut size) = (core::ptr::null::<u8>(), 0);
        let mut place = extra;
        while !place.is_null() {
            // SAFETY: pairs of a key and a pointer up to the end key, as the launch
            // that took the list required.
            unsafe {
                match *place as usize {
                    1 => buffer = (*place.add(1)).cast(),
                    2 => size = *(*place.add(1)).cast::<usize>(),
                    _ => break,
                }
                place = place.add(2);
            }
        }
        if buffer.is_null() {
            Self::None
        } else {
            Self::Buffer(buffer, size)
        }
    }
}

impl Parameter {
    /// What is used through it, as far as its type tells.
    fn whole(&self) -> Element {
        Element::new(Per::Unknown, 0, self.element.into())
    }

    /// How far into it its slots are, each of which is aligned where the parameter buffer
    /// puts it.
    fn slots(&self) -> impl Iterator<Item = usize> {
        let first = self.offset.wrapping_neg() & 7;
        let size = self.size;
        (first..size)
            .step_by(8)
            .take_while(move |slot| slot + 8 <= size)
    }

    /// Where it stands in a launch; null where it does not.
    ///
    /// # Safety
    /// `parameters` are those of a launch of the kernel whose parameter `index` this is.
    unsafe fn start(&self, parameters: Parameters, index: usize) -> *const u8 {
        match parameters {
            Parameters::None => core::ptr::null(),
            // SAFETY: a launch gives one pointer for each parameter.
            Parameters::Array(array) => unsafe { *array.add(index) },
            Parameters::Buffer(_, size) if self.offset + self.size > size => core::ptr::null(),
            // SAFETY: inside the buffer.
            Parameters::Buffer(buffer, _) => unsafe { buffer.add(self.offset) },
        }
    }
}

/// Slots of a [`Layout::plan`] at most.
pub(crate) const MOST_PLANNED: usize = 24;

/// Eight bytes of a parameter that may hold a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) parameter: u16,
    pub(crate) offset: u16,
    pub(crate) mode: Mode,
    pub(crate) used: Used,
    pub(crate) element: Element,
}

impl Planned {
    /// The pointer in a launch with these parameters, each of which is given by its address.
    ///
    /// # Safety
    /// `array` is that of a launch of a kernel of whose layout's plan this is a part.
    #[inline]
    pub(crate) unsafe fn read(self, array: *const *const u8) -> Option<Pointer> {
        // SAFETY: the caller's promise: a launch gives one pointer for each parameter.
        let start = unsafe { *array.add(self.parameter.into()) };
        if start.is_null() {
            return None;
        }
        // SAFETY: inside the parameter.
        let address = unsafe { start.add(self.offset.into()).cast::<u64>().read_unaligned() };
        plausible(address).then_some(Pointer {
            address,
            mode: self.mode,
            shift: 0,
            used: self.used,
            element: self.element,
        })
    }
}

impl Layout {
    /// Values taken from a parameter so large that they may be anything.
    const DOUBTFUL: usize = 16;

    /// The values that may be pointers: every 8-byte aligned slot of every parameter.
    ///
    /// # Safety
    /// `parameters` are those of a launch of a kernel with this layout.
    pub(crate) unsafe fn pointers(&self, parameters: Parameters) -> SmallVec<[Pointer; 6]> {
        let mut pointers = SmallVec::new();
        if let Some(used) = &self.used {
            for slot in used {
                // SAFETY: the caller's promise.
                let Some(address) = (unsafe { self.value(parameters, slot.place) }) else {
                    continue;
                };
                if plausible(address) {
                    pointers.push(Pointer {
                        address,
                        mode: slot.mode,
                        // SAFETY: the caller's promise.
                        shift: unsafe { self.shift(parameters, &slot.shifts) },
                        used: slot.used,
                        element: slot.element,
                    });
                }
            }
            return pointers;
        }
        for (index, parameter) in self.parameters.iter().enumerate() {
            // SAFETY: the caller's promise.
            let start = unsafe { parameter.start(parameters, index) };
            if start.is_null() {
                continue;
            }
            // That there are any is all that is told of doubtful ones.
            let most = match parameter.mode {
                Mode::Doubtful => Self::DOUBTFUL,
                _ => usize::MAX,
            };
            let mut found = 0;
            for slot in parameter.slots() {
                if found == most {
                    break;
                }
                // SAFETY: inside the parameter.
                let value = unsafe { start.add(slot).cast::<u64>().read_unaligned() };
                if plausible(value) {
                    found += 1;
                    pointers.push(Pointer {
                        address: value,
                        mode: parameter.mode,
                        shift: 0,
                        used: Used::Perhaps,
                        element: parameter.whole(),
                    });
                }
            }
        }
        pointers
    }

    /// What may be numbers among the parameters.
    ///
    /// # Safety
    /// As for [`Layout::pointers`].
    pub(crate) unsafe fn numbers(&self, parameters: Parameters) -> SmallVec<[u64; 8]> {
        let number = |(index, parameter): (usize, &Parameter)| {
            // SAFETY: the caller's promise.
            let start = unsafe { parameter.start(parameters, index) };
            match parameter.size {
                _ if start.is_null() => None,
                // SAFETY: as long as the parameter.
                4 => Some(u64::from(unsafe { start.cast::<u32>().read_unaligned() })),
                // SAFETY: as above.
                8 => Some(unsafe { start.cast::<u64>().read_unaligned() }),
                _ => None,
            }
        };
        self.parameters
            .iter()
            .enumerate()
            .filter_map(number)
            .collect()
    }

    /// The same as a short list of slots to read, where all there is to know of a launch are
    /// their values.
    pub(crate) fn plan(&self) -> Option<SmallVec<[Planned; MOST_PLANNED]>> {
        let mut plan = SmallVec::new();
        let mut add = |parameter: usize, offset: usize, mode, used, element| {
            plan.push(Planned {
                parameter: parameter.try_into().ok()?,
                offset: offset.try_into().ok()?,
                mode,
                used,
                element,
            });
            Some(())
        };
        match &self.used {
            Some(used) => {
                for slot in used {
                    if !slot.shifts.is_empty() || slot.place.size != 8 {
                        return None;
                    }
                    let SlotPlace {
                        parameter, offset, ..
                    } = slot.place;
                    add(parameter, offset, slot.mode, slot.used, slot.element)?;
                }
            }
            None => {
                for (index, parameter) in self.parameters.iter().enumerate() {
                    if parameter.mode == Mode::Doubtful {
                        return None;
                    }
                    for slot in parameter.slots() {
                        add(
                            index,
                            slot,
                            parameter.mode,
                            Used::Perhaps,
                            parameter.whole(),
                        )?;
                    }
                }
            }
        }
        (plan.len() <= MOST_PLANNED).then_some(plan)
    }

    /// What stands at a place of at most 8 bytes.
    ///
    /// # Safety
    /// As for [`Layout::pointers`].
    unsafe fn value(&self, parameters: Parameters, place: SlotPlace) -> Option<u64> {
        let parameter = self.parameters.get(place.parameter)?;
        // SAFETY: the caller's promise.
        let start = unsafe { parameter.start(parameters, place.parameter) };
        if start.is_null() {
            return None;
        }
        let mut bytes = [0; 8];
        // SAFETY: inside the parameter, as `with_code` has made sure.
        unsafe {
            core::ptr::copy_nonoverlapping(start.add(place.offset), bytes.as_mut_ptr(), place.size);
        }
        Some(u64::from_ne_bytes(bytes))
    }

    /// Tells what is added to a pointer: 0 for nothing, else a number that is the same for
    /// the same values.
    ///
    /// # Safety
    /// As for [`Layout::pointers`].
    unsafe fn shift(&self, parameters: Parameters, shifts: &[SlotPlace]) -> u32 {
        let mut hasher = FxHasher::default();
        let mut any = false;
        for place in shifts {
            // SAFETY: the caller's promise.
            let value = unsafe { self.value(parameters, *place) }.unwrap_or(0);
            any |= value != 0;
            hasher.write_u64(value);
        }
        let hash = hasher.finish();
        if any {
            (hash ^ (hash >> 32)) as u32 | 1
        } else {
            0
        }
    }

    pub(super) fn new(parameters: impl Iterator<Item = Parameter>) -> Self {
        Self {
            parameters: parameters.collect(),
            used: None,
            follows: false,
        }
    }

    /// Where bytes of the parameter buffer lie, of which there are at most 8.
    fn place(&self, at: usize, size: usize) -> Option<SlotPlace> {
        let inside = |parameter: &Parameter| {
            parameter.offset <= at && at + size <= parameter.offset + parameter.size
        };
        let parameter = self.parameters.iter().position(inside)?;
        (size <= 8).then(|| SlotPlace {
            parameter,
            offset: at - self.parameters[parameter].offset,
            size,
        })
    }

    /// Whether the kernel is known to use addresses that it finds in memory.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Takes from the kernel's code what it does with which slot. Code for another layout
    /// says nothing.
    pub(super) fn with_code(mut self, code: &Code) -> Self {
        let slot = |(&(at, _), access): (&(usize, bool), &Access)| {
            let place = self.place(at, 8)?;
            let shifts = if access.escapes {
                Some(Box::default())
            } else {
                let places = access
                    .shifts
                    .iter()
                    .map(|shift| self.place(shift.offset, shift.size));
                places.collect()
            };
            let parameter = &self.parameters[place.parameter];
            let mode = mode_of_access(access, parameter.mode);
            Some(Slot {
                place,
                mode,
                element: element_of_access(access, mode, parameter),
                // What it passes on it may use or not.
                used: match access.surely {
                    _ if access.back => Used::Before,
                    surely if !access.escapes && surely != Uses::default() => Used::Surely,
                    _ => Used::Perhaps,
                },
                shifts: shifts?,
            })
        };
        self.used = code.accesses.iter().map(slot).collect();
        self.follows = code.follows;
        self
    }

    /// A layout from the sizes alone, each parameter at its natural place.
    pub(super) fn from_sizes(sizes: impl Iterator<Item = usize>) -> Self {
        let mut offset = 0_usize;
        Self::new(sizes.map(|size| {
            offset = offset.next_multiple_of(size.clamp(1, 8));
            let parameter = Parameter {
                offset,
                size,
                mode: mode_of(size),
                element: 0,
            };
            offset += size;
            parameter
        }))
    }

    /// A layout as an image states it.
    pub(super) fn from_params(params: Vec<Param>) -> Self {
        Self::new(params.into_iter().map(|Param { offset, size }| Parameter {
            offset,
            size,
            mode: mode_of(size),
            element: 0,
        }))
    }

    /// Takes from the demangled types which parameters are pointers, and which of
    /// these only read.
    pub(super) fn with_modes(mut self, types: &[String]) -> Self {
        if types.len() == self.parameters.len() {
            for (parameter, kind) in self.parameters.iter_mut().zip(types) {
                let kind = kind.trim_end_matches(" restrict");
                if parameter.size == 8 {
                    parameter.element = element_of(kind);
                    parameter.mode =
                        if kind.ends_with(" const*") || kind.ends_with(" const volatile*") {
                            Mode::Read
                        } else if kind.ends_with(" volatile*") {
                            // How kernels signal each other and the host: XLA's timer waits so.
                            Mode::Update
                        } else if kind.ends_with('*') {
                            Mode::Write
                        } else {
                            Mode::Unknown
                        };
                }
            }
        }
        self
    }
}

/// Bytes of one element of what a demangled type points to; 0 if it is no pointer, or to
/// what is not known.
fn element_of(kind: &str) -> u8 {
    let Some(kind) = kind.strip_suffix('*') else {
        return 0;
    };
    let kind = kind
        .trim_end_matches(" const")
        .trim_end_matches(" volatile");
    if kind.ends_with('*') {
        return 8;
    }
    // A vector's name is its element's and how many of them it holds.
    let name = kind.trim_end_matches(|letter: char| ('2'..='4').contains(&letter));
    let count = match &kind[name.len()..] {
        "" => 1,
        "2" => 2,
        "4" => 4,
        // Three elements lie as close as they would one by one.
        "3" => 3,
        _ => return 0,
    };
    let vector = matches!(
        name,
        "char"
            | "uchar"
            | "short"
            | "ushort"
            | "int"
            | "uint"
            | "long"
            | "ulong"
            | "longlong"
            | "ulonglong"
            | "float"
            | "double"
    );
    let element = match name {
        "bool" | "char" | "signed char" | "unsigned char" | "uchar" | "char8_t" => 1,
        "short" | "unsigned short" | "ushort" | "char16_t" | "__half" | "__nv_bfloat16"
        | "c10::Half" | "c10::BFloat16" => 2,
        "int" | "unsigned int" | "uint" | "float" | "char32_t" | "wchar_t" => 4,
        "long" | "unsigned long" | "ulong" | "long long" | "unsigned long long" | "longlong"
        | "ulonglong" | "double" => 8,
        _ => return 0,
    };
    if count > 1 && !vector {
        0
    } else {
        element * count
    }
}

/// What a kernel's code does with a pointer, in a parameter of which its type or size says
/// what `stated` is.
fn mode_of_access(access: &Access, stated: Mode) -> Mode {
    let (surely, perhaps) = (access.surely, access.perhaps);
    if access.escapes || (surely.writes && stated == Mode::Update) {
        stated
    } else if surely.writes {
        Mode::Write
    } else if perhaps.writes {
        Mode::Unknown
    } else if surely.updates {
        Mode::Update
    } else if surely.reads && !perhaps.updates {
        Mode::Read
    } else {
        // Polling races with plain writes alone.
        Mode::Unknown
    }
}

/// What is used through a pointer that is used in this mode.
fn element_of_access(access: &Access, mode: Mode, stated: &Parameter) -> Element {
    let spread = match mode {
        _ if access.escapes => None,
        Mode::Read => access.read,
        _ => access.written,
    };
    let Some(spread) = spread else {
        return stated.whole();
    };
    let per = match spread.per {
        code::Per::Unknown if stated.element != 0 => return stated.whole(),
        code::Per::Unknown => Per::Unknown,
        code::Per::Launch => Per::Launch,
        code::Per::Block => Per::Block,
        code::Per::Lane => Per::Lane,
        code::Per::Thread => Per::Thread,
    };
    Element::new(per, spread.first.into(), spread.bytes.into())
}

/// What the values in a parameter are, as far as its size tells.
pub(super) fn mode_of(size: usize) -> Mode {
    // PyTorch's TensorListMetadata, which takes up most of the 4 KiB that parameters
    // could have, is seldom filled; the largest of CUTLASS's and cuBLAS's, which
    // are, stay below.
    const LARGE: usize = 1024;
    match size {
        0..=8 => Mode::Write,
        9..=LARGE => Mode::Unknown,
        _ => Mode::Doubtful,
    }
}

/// Small integers and values that no address has are not pointers.
fn plausible(value: u64) -> bool {
    value >= 0x1_0000 && value >> 48 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_follow_types_and_sizes() {
        let layout = Layout::from_sizes([8, 8, 8, 8, 4, 24, 4000].into_iter());
        let types = [
            "float const*",
            "float*",
            "int volatile*",
            "View",
            "int",
            "Wide",
            "Lists",
        ]
        .map(str::to_owned);
        let modes = |layout: &Layout| layout.parameters.iter().map(|p| p.mode).collect::<Vec<_>>();
        assert_eq!(
            modes(&layout.with_modes(&types)),
            [
                Mode::Read,
                Mode::Write,
                Mode::Update,
                Mode::Unknown,
                Mode::Write,
                Mode::Unknown,
                Mode::Doubtful
            ]
        );
        // Without types, a pointer-sized parameter may be a pointer that is written.
        let unnamed = Layout::from_sizes([8, 24].into_iter());
        assert_eq!(modes(&unnamed), [Mode::Write, Mode::Unknown]);
        // Nor do types help that are not those of this layout.
        let other = Layout::from_sizes([8, 8].into_iter()).with_modes(&types);
        assert_eq!(modes(&other), [Mode::Write, Mode::Write]);
    }

    #[test]
    fn a_pointers_type_tells_how_long_an_element_is() {
        for (kind, bytes) in [
            ("float*", 4),
            ("float const*", 4),
            ("double*", 8),
            ("float4*", 16),
            ("double3 const*", 24),
            ("unsigned char*", 1),
            ("int volatile*", 4),
            ("float**", 8),
            ("__half*", 2),
            ("__half2*", 0),
            ("View*", 0),
            ("void*", 0),
            ("long", 0),
        ] {
            assert_eq!(element_of(kind), bytes, "{kind}");
        }
        let layout = Layout::from_sizes([8, 8].into_iter())
            .with_modes(&["double*".to_owned(), "int".to_owned()]);
        let plan = layout.plan().expect("it is short");
        assert_eq!((plan[0].element.bytes(), plan[1].element.bytes()), (8, 0));
    }

    #[test]
    fn code_tells_what_is_done_with_a_slot() {
        let shift = Param {
            offset: 40,
            size: 4,
        };
        let access = |writes, shifts: &[Param]| {
            let uses = Uses {
                reads: true,
                writes,
                ..Uses::default()
            };
            Access {
                surely: uses,
                perhaps: uses,
                shifts: shifts.to_vec(),
                ..Access::default()
            }
        };
        // A pointer, a structure of three, and an integer.
        let layout = Layout::from_sizes([8, 24, 8, 4].into_iter());
        let accesses = [
            ((0, true), access(true, &[shift])),
            ((24, false), access(false, &[])),
        ]
        .into();
        let layout = layout.with_code(&Code {
            accesses,
            follows: false,
        });
        let launch = |offset: u32| {
            let (pointer, triple, unused) = (
                0x10_0000_u64,
                [0x20_0000_u64, 0x30_0000, 0x40_0000],
                0x50_0000_u64,
            );
            let array = [
                (&raw const pointer).cast::<u8>(),
                triple.as_ptr().cast(),
                (&raw const unused).cast(),
                (&raw const offset).cast(),
            ];
            // SAFETY: one pointer for each parameter.
            unsafe { layout.pointers(Parameters::Array(array.as_ptr())) }
        };
        let at = |pointers: &[Pointer]| -> Vec<(u64, Mode)> {
            pointers
                .iter()
                .map(|pointer| (pointer.address, pointer.mode))
                .collect()
        };
        let first = launch(0);
        assert_eq!(
            at(&first),
            [(0x10_0000, Mode::Write), (0x40_0000, Mode::Read)]
        );
        assert_eq!(first[0].shift, 0);
        assert!(launch(5)[0].shift != 0 && launch(5)[0].shift == launch(5)[0].shift);
        assert_ne!(launch(5)[0].shift, launch(6)[0].shift);
        // Code with a slot where this layout has none.
        let other = Code {
            accesses: [((400, false), access(true, &[]))].into(),
            follows: true,
        };
        let layout = Layout::from_sizes([8].into_iter()).with_code(&other);
        assert_eq!(layout.used, None);
        assert!(layout.follows());
    }
}
