//! What a kernel is called, and where among its parameters pointers may lie.
//!
//! The layout comes from the driver (`cuFuncGetParamInfo`) where there is one, else
//! from the runtime (`cudaFuncGetParamInfo`), else from the module's image, else from
//! the mangled name. What the kernel does with each comes from its code where there is
//! PTX, else from the mangled name. The name comes from the registration that nvcc's code makes,
//! from the driver, from the call that looked the kernel up, or from the symbol of
//! the host function that stands for it.

use core::ffi::{CStr, c_char, c_void};
use core::hash::Hasher as _;
use std::sync::{Mutex, PoisonError};

use object::{Object as _, ObjectSymbol as _};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use streamcheck_image::{Access, Accesses, Param};
use streamcheck_model::{Mode, NameId, Pointer};

use crate::runtime::ErrorPending;
use crate::{driver, images, objects, provider, runtime};

/// A kernel as the recorder remembers it.
pub(crate) struct Kernel {
    pub(crate) name: NameId,
    pub(crate) layout: Option<Layout>,
}

/// What was found out about a kernel.
pub(crate) struct Learned {
    /// The mangled name, or an address where there is none.
    pub(crate) name: String,
    pub(crate) layout: Option<Layout>,
    /// Whether asking again would give no more.
    pub(crate) lasting: bool,
}

/// Where parameters lie, and what is done with them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    parameters: Box<[Parameter]>,
    /// The slots that the kernel's code uses as pointers, where that is known.
    used: Option<Box<[Slot]>>,
}

/// A place among the parameters: which one, and how far into it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    parameter: usize,
    offset: usize,
    size: usize,
}

/// Eight bytes that the kernel's code uses as a pointer.
#[derive(Debug, PartialEq, Eq)]
struct Slot {
    place: Place,
    mode: Mode,
    /// Whether the kernel was seen to use it, rather than to pass it on.
    sure: bool,
    /// What the kernel adds to it.
    shifts: Box<[Place]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parameter {
    /// In the parameter buffer; of use only for launches that give one.
    offset: usize,
    size: usize,
    mode: Mode,
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

impl Layout {
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
                        sure: slot.sure,
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
            // A slot is aligned where the parameter buffer puts it.
            let first = parameter.offset.wrapping_neg() & 7;
            for slot in (first..parameter.size).step_by(8) {
                if slot + 8 > parameter.size {
                    break;
                }
                // SAFETY: inside the parameter.
                let value = unsafe { start.add(slot).cast::<u64>().read_unaligned() };
                if plausible(value) {
                    pointers.push(Pointer {
                        address: value,
                        mode: parameter.mode,
                        shift: 0,
                        sure: false,
                    });
                }
            }
        }
        pointers
    }

    /// What stands at a place of at most 8 bytes.
    ///
    /// # Safety
    /// As for [`Layout::pointers`].
    unsafe fn value(&self, parameters: Parameters, place: Place) -> Option<u64> {
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
    unsafe fn shift(&self, parameters: Parameters, shifts: &[Place]) -> u32 {
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

    fn new(parameters: impl Iterator<Item = Parameter>) -> Self {
        Self {
            parameters: parameters.collect(),
            used: None,
        }
    }

    /// Where bytes of the parameter buffer lie, of which there are at most 8.
    fn place(&self, at: usize, size: usize) -> Option<Place> {
        let inside = |parameter: &Parameter| {
            parameter.offset <= at && at + size <= parameter.offset + parameter.size
        };
        let parameter = self.parameters.iter().position(inside)?;
        (size <= 8).then(|| Place {
            parameter,
            offset: at - self.parameters[parameter].offset,
            size,
        })
    }

    /// Takes from the kernel's code what it does with which slot. Code for another layout
    /// says nothing.
    fn with_code(mut self, accesses: &Accesses) -> Self {
        let slot = |(&at, access): (&usize, &Access)| {
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
            Some(Slot {
                place,
                mode: mode_of_access(access, self.parameters[place.parameter].mode),
                sure: access.reads || access.writes || access.updates,
                shifts: shifts?,
            })
        };
        self.used = accesses.iter().map(slot).collect();
        self
    }

    /// A layout from the sizes alone, each parameter at its natural place.
    fn from_sizes(sizes: impl Iterator<Item = usize>) -> Self {
        let mut offset = 0_usize;
        Self::new(sizes.map(|size| {
            offset = offset.next_multiple_of(size.clamp(1, 8));
            let parameter = Parameter {
                offset,
                size,
                mode: mode_of(size),
            };
            offset += size;
            parameter
        }))
    }

    /// A layout as an image states it.
    fn from_params(params: Vec<Param>) -> Self {
        Self::new(params.into_iter().map(|Param { offset, size }| Parameter {
            offset,
            size,
            mode: mode_of(size),
        }))
    }

    /// Takes from the demangled types which parameters are pointers, and which of
    /// these only read.
    fn with_modes(mut self, types: &[String]) -> Self {
        if types.len() == self.parameters.len() {
            for (parameter, kind) in self.parameters.iter_mut().zip(types) {
                let kind = kind.trim_end_matches(" restrict");
                if parameter.size == 8 {
                    parameter.mode = if kind.ends_with(" const*") {
                        Mode::Read
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

/// What a kernel's code does with a pointer, in a parameter of which its type or size says
/// what `stated` is.
fn mode_of_access(access: &Access, stated: Mode) -> Mode {
    if access.escapes {
        stated
    } else if access.writes {
        Mode::Write
    } else if access.updates {
        Mode::Update
    } else {
        Mode::Read
    }
}

/// What the values in a parameter are, as far as its size tells.
fn mode_of(size: usize) -> Mode {
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

/// A kernel that nvcc's start-up code registered.
#[derive(Clone, Copy)]
struct Registration {
    /// The fat binary's handle.
    image: u64,
    /// The address of the wrapper that points to it, or 0.
    wrapper: u64,
    /// The address of a text in the registering module, read when its kernel is
    /// launched, as there may be tens of thousands.
    name: u64,
    /// Whether the fat binary was unregistered, or another under the same handle.
    over: bool,
}

/// What nvcc's start-up code registered.
#[derive(Default)]
struct Registered {
    /// By host function.
    kernels: FxHashMap<u64, Registration>,
    /// The newest wrapper that each handle was given for: its kernels are registered
    /// right after it.
    wrappers: FxHashMap<u64, u64>,
    /// Kernel handles and the host functions that they were made from.
    handles: FxHashMap<u64, u64>,
}

static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

fn with_registered<R>(f: impl FnOnce(&mut Registered) -> R) -> R {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    f(registered.get_or_insert_default())
}

/// Notes `__cudaRegisterFatBinary`.
pub(crate) fn fat_binary(image: u64, wrapper: u64) {
    with_registered(|registered| registered.wrappers.insert(image, wrapper));
}

/// Notes `__cudaRegisterFunction`.
pub(crate) fn registered(image: u64, host_function: u64, name: u64) {
    with_registered(|registered| {
        let registration = Registration {
            image,
            wrapper: registered.wrappers.get(&image).copied().unwrap_or(0),
            name,
            over: false,
        };
        registered.kernels.insert(host_function, registration);
    });
}

/// Notes `__cudaUnregisterFatBinary`. The entries stay, as a cudart may give every
/// module the same handle.
pub(crate) fn unregistered(image: u64) {
    let wrappers = with_registered(|registered| {
        let mut wrappers = Vec::from_iter(registered.wrappers.remove(&image));
        for registration in registered.kernels.values_mut() {
            if registration.image == image {
                registration.over = true;
                wrappers.push(registration.wrapper);
            }
        }
        wrappers.sort_unstable();
        wrappers.dedup();
        wrappers
    });
    images::unregistering(&wrappers);
}

/// Whether what the recorder remembers under `key` is known to be a kernel whose module is
/// still loaded.
pub(crate) fn is_loaded(key: u64) -> bool {
    let registered = with_registered(|known| {
        let host_function = known.handles.get(&key).unwrap_or(&key);
        let registration = known.kernels.get(host_function);
        registration.is_some_and(|registration| !registration.over)
    });
    registered || images::is_loaded(key)
}

/// Notes `__cudaGetKernel`.
pub(crate) fn handle_made(handle: u64, host_function: u64) {
    with_registered(|registered| registered.handles.insert(handle, host_function));
}

/// The registration of the kernel that was just launched as `host_function`, if what
/// it points to is still there.
fn registration(host_function: u64) -> Option<Registration> {
    let registration = with_registered(|known| known.kernels.get(&host_function).copied())?;
    if registration.over {
        let object = objects::containing(host_function)?;
        if !object.holds(registration.name) {
            return None;
        }
        // Another fat binary may be at the wrapper's address.
        return Some(Registration {
            wrapper: 0,
            ..registration
        });
    }
    Some(registration)
}

/// Finds out about a kernel that was launched through the runtime as `handle`, or
/// through the driver as `function`; 0 where not known.
pub(crate) fn learn(handle: u64, function: u64) -> Learned {
    let host_function = with_registered(|known| known.handles.get(&handle).copied());
    let host_function = host_function.unwrap_or(handle);
    let registration = registration(host_function);
    let name = registration
        .map(registered_name)
        .or_else(|| driver_name(function))
        .or_else(|| images::name(function))
        .or_else(|| symbol_name(host_function));
    let types = name.as_deref().and_then(parameter_types);
    let mut asked = true;
    let layout = driver_layout(function)
        .or_else(|| {
            if handle == 0 {
                return None;
            }
            runtime_layout(handle).unwrap_or_else(|ErrorPending| {
                asked = false;
                None
            })
        })
        .or_else(|| {
            let wrapper = registration.map_or(0, |registration| registration.wrapper);
            // SAFETY: the wrapper's module is loaded, as its kernel was just launched.
            let params = unsafe { images::layout(function, wrapper, name.as_deref()) };
            params.map(Layout::from_params)
        })
        .or_else(|| types.as_deref().and_then(layout_of_types))
        .map(|layout| match &types {
            Some(types) => layout.with_modes(types),
            None => layout,
        })
        .map(|layout| {
            let wrapper = registration.map_or(0, |registration| registration.wrapper);
            // SAFETY: as above.
            match unsafe { images::accesses(function, wrapper, name.as_deref()) } {
                Some(accesses) => layout.with_code(&accesses),
                None => layout,
            }
        });
    let number = if function != 0 { function } else { handle };
    Learned {
        name: name.unwrap_or_else(|| format!("kernel {number:#x}")),
        lasting: asked || layout.is_some(),
        layout,
    }
}

fn registered_name(registration: Registration) -> String {
    // SAFETY: the module that registered the text is loaded, as its kernel was
    // just launched, or as its file was just found there.
    let text = unsafe { CStr::from_ptr(registration.name as *const c_char) };
    text.to_string_lossy().into_owned()
}

fn driver_name(function: u64) -> Option<String> {
    type GetName = unsafe extern "C-unwind" fn(*mut *const c_char, u64) -> u32;
    if function == 0 {
        return None;
    }
    [c"cuFuncGetName", c"cuKernelGetName"]
        .into_iter()
        .filter_map(driver::unhooked)
        .find_map(|get| {
            let mut text = core::ptr::null();
            // SAFETY: the type is cuda.h's; the handle was just launched.
            let status =
                unsafe { core::mem::transmute::<*const (), GetName>(get)(&mut text, function) };
            if status != 0 || text.is_null() {
                return None;
            }
            // SAFETY: the driver's own text, which lives as long as the module.
            Some(
                unsafe { CStr::from_ptr(text) }
                    .to_string_lossy()
                    .into_owned(),
            )
        })
}

type GetParamInfo = unsafe extern "C-unwind" fn(u64, usize, *mut usize, *mut usize) -> u32;

/// Asks for one parameter after the other; the count is where it first fails.
/// `Err` is the code of a failure that says that the handle is not understood.
fn ask_layout(get: *const (), handle: u64) -> Result<Layout, u32> {
    const INVALID_VALUE: u32 = 1;
    const MOST: usize = 4096;
    // SAFETY: all functions passed here have this type.
    let get = unsafe { core::mem::transmute::<*const (), GetParamInfo>(get) };
    let mut parameters = Vec::new();
    while parameters.len() < MOST {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the handle was just launched, the rest is written to.
        match unsafe { get(handle, parameters.len(), &mut offset, &mut size) } {
            0 => parameters.push(Parameter {
                offset,
                size,
                mode: mode_of(size),
            }),
            INVALID_VALUE => break,
            other if parameters.is_empty() => return Err(other),
            _ => break,
        }
    }
    Ok(Layout::new(parameters.into_iter()))
}

fn driver_layout(function: u64) -> Option<Layout> {
    if function == 0 {
        return None;
    }
    [c"cuFuncGetParamInfo", c"cuKernelGetParamInfo"]
        .into_iter()
        .filter_map(driver::unhooked)
        .find_map(|get| ask_layout(get, function).ok())
}

fn runtime_layout(handle: u64) -> Result<Option<Layout>, ErrorPending> {
    let Some(get) = provider::unhooked(c"cudaFuncGetParamInfo") else {
        return Ok(None);
    };
    runtime::ask(|| ask_layout(get, handle).ok())
}

/// The name of the function at an address, from the symbols of its file.
fn symbol_name(address: u64) -> Option<String> {
    let object = objects::containing(address)?;
    let path = if object.path.is_empty() {
        "/proc/self/exe"
    } else {
        &object.path
    };
    let cache = object::ReadCache::new(std::fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let wanted = address - object.base;
    file.symbols()
        .chain(file.dynamic_symbols())
        .find(|symbol| symbol.address() == wanted && symbol.kind() == object::SymbolKind::Text)
        .and_then(|symbol| symbol.name().ok())
        .map(str::to_owned)
}

/// The parameter types that a mangled name spells; `None` if it spells none.
fn parameter_types(name: &str) -> Option<Vec<String>> {
    if !name.starts_with("_Z") {
        return None;
    }
    let text = cpp_demangle::Symbol::new(name).ok()?.demangle().ok()?;
    let list = text.strip_suffix(')')?;
    // The opening parenthesis that matches the last closing one.
    let mut depth = 0;
    let open = list
        .char_indices()
        .rev()
        .find(|&(_, letter)| match letter {
            ')' => {
                depth += 1;
                false
            }
            '(' if depth == 0 => true,
            '(' => {
                depth -= 1;
                false
            }
            _ => false,
        })?;
    let list = &list[open.0 + 1..];
    if list.is_empty() || list == "void" {
        return Some(Vec::new());
    }
    let (mut types, mut depth, mut start) = (Vec::new(), 0, 0);
    for (place, letter) in list.char_indices() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                types.push(list[start..place].trim().to_owned());
                start = place + 1;
            }
            _ => {}
        }
    }
    types.push(list[start..].trim().to_owned());
    Some(types)
}

/// The layout, if every type's size is known.
fn layout_of_types(types: &[String]) -> Option<Layout> {
    let sizes = types
        .iter()
        .map(|kind| size_of_type(kind))
        .collect::<Option<Vec<_>>>()?;
    Some(Layout::from_sizes(sizes.into_iter()))
}

fn size_of_type(kind: &str) -> Option<usize> {
    if kind.ends_with('*') || kind.ends_with('&') || kind.ends_with("* restrict") {
        return Some(8);
    }
    match kind {
        "bool" | "char" | "signed char" | "unsigned char" => Some(1),
        "short" | "unsigned short" => Some(2),
        "int" | "unsigned int" | "float" => Some(4),
        "long" | "unsigned long" | "long long" | "unsigned long long" | "double" => Some(8),
        _ => None,
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 2] {
    [crate::life::hold(&REGISTERED), images::before_fork()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_mangled_names() {
        let types = parameter_types("_Z5saxpyfPKfPf").unwrap();
        assert_eq!(types, ["float", "float const*", "float*"]);
        assert_eq!(parameter_types("_Z5emptyv").unwrap(), [""; 0]);
        assert_eq!(parameter_types("add_kernel"), None);
        let template = parameter_types("_Z3sumIfEvPKT_S1_RKSt4pairIiiE").unwrap();
        assert_eq!(template.len(), 3);
    }

    #[test]
    fn modes_follow_types_and_sizes() {
        let layout = Layout::from_sizes([8, 8, 8, 4, 24, 4000].into_iter());
        let types = ["float const*", "float*", "View", "int", "Wide", "Lists"].map(str::to_owned);
        let modes = |layout: &Layout| layout.parameters.iter().map(|p| p.mode).collect::<Vec<_>>();
        assert_eq!(
            modes(&layout.with_modes(&types)),
            [
                Mode::Read,
                Mode::Write,
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
    fn code_tells_what_is_done_with_a_slot() {
        let shift = Param {
            offset: 40,
            size: 4,
        };
        let access = |writes, shifts: &[Param]| Access {
            reads: true,
            writes,
            shifts: shifts.to_vec(),
            ..Access::default()
        };
        // A pointer, a structure of three, and an integer.
        let layout = Layout::from_sizes([8, 24, 8, 4].into_iter());
        let accesses: Accesses = [(0, access(true, &[shift])), (24, access(false, &[]))].into();
        let layout = layout.with_code(&accesses);
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
        let other: Accesses = [(400, access(true, &[]))].into();
        assert_eq!(
            Layout::from_sizes([8].into_iter()).with_code(&other).used,
            None
        );
    }
}
