//! The images of loaded modules: what kernels do with their pointers, and, for drivers that
//! cannot say it, how the parameters lie.
//!
//! Each module's image is kept from its load to its unload, and a function's name from the call
//! that looks it up; an image is read when a kernel of its module is first launched. What lies
//! in a loaded object, as nvcc's programs carry theirs, is kept by its address alone.
//!
//! Drivers before 12.4 have no `cuFuncGetParamInfo`, and those before 12.3 do not even tell a
//! function's name. There, images that may go after the load are copied whatever their size;
//! where the driver can say, only small ones with PTX are, and only that is read.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::hash::Hasher as _;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHasher};
use streamcheck_image::{
    Code, Found, Kernels, Memory, Packed, Param, Part, Reader, holds_text, locate, text_that_runs,
};

use crate::room::with_room;
use crate::{call, capture, driver, objects, provider, recorder};

/// How many bytes of images and names are kept at most. A kernel whose image did not fit is
/// counted as one of unknown parameters.
const MOST: usize = 256 << 20;

/// How long an image is at most that is copied although the driver can say how parameters lie:
/// longer than what is compiled while a program runs.
const SMALL: usize = 1 << 20;

/// PTX longer than this is a large library's, and not read: it would take too long.
const LONGEST_TEXT: usize = 8 << 20;

/// How much uncompressed PTX is kept for the next kernel of the same image, in bytes.
const MOST_TEXTS: usize = 32 << 20;

/// Kernels of an image of which is kept what their code does.
const MOST_KERNELS: usize = 4096;

/// What is kept now, in bytes.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Whether anything ever was.
static ANY: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

#[derive(Default)]
struct State {
    /// By `CUmodule` and `CUlibrary`, which are addresses of different things.
    modules: FxHashMap<u64, Module>,
    /// By `CUfunction` and `CUkernel`.
    functions: FxHashMap<u64, Function>,
    /// Those that nvcc's start-up code registered and that were looked into, by the address of
    /// their wrapper.
    registered: FxHashMap<u64, Option<Arc<Image>>>,
    /// The newest is the last.
    texts: VecDeque<Text>,
}

/// PTX that was compressed in its image.
struct Text {
    /// The image's number and the part's among its texts.
    of: (u64, usize),
    text: Arc<str>,
}

struct Module {
    image: Option<Arc<Image>>,
    /// What it was made of and ends with, or 0.
    loaded_from: u64,
    home: Home,
}

struct Function {
    name: Kept<str>,
    image: Option<Arc<Image>>,
    /// The module or library that it was looked up in.
    module: u64,
    home: Home,
}

/// What a handle ends with, beside its module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Libraries and kernels belong to no context.
    Anywhere,
    Context {
        context: u64,
        device: i32,
    },
}

/// Bytes of our own, counted as long as they live.
struct Kept<T: ?Sized + AsRef<[u8]>>(Box<T>);

impl<T: ?Sized + AsRef<[u8]>> Kept<T> {
    /// Makes room for `length` bytes and keeps what `make` then gives.
    fn new(length: usize, make: impl FnOnce() -> Option<Box<T>>) -> Option<Self> {
        ANY.store(true, Release);
        let fits = |kept: usize| kept.checked_add(length).filter(|&sum| sum <= MOST);
        if KEPT.fetch_update(Relaxed, Relaxed, fits).is_err() {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Relaxed) {
                let unknown = if needed() {
                    "the parameters are not known"
                } else {
                    "only the names say what they do with their pointers"
                };
                tracing::warn!(
                    "more than {} MiB of device code were loaded: of kernels in the rest, {unknown}",
                    MOST >> 20
                );
            }
            return None;
        }
        match make().filter(|made| (**made).as_ref().len() == length) {
            Some(made) => Some(Self(made)),
            None => {
                KEPT.fetch_sub(length, Relaxed);
                None
            }
        }
    }
}

impl<T: ?Sized + AsRef<[u8]>> Drop for Kept<T> {
    fn drop(&mut self) {
        KEPT.fetch_sub((*self.0).as_ref().len(), Relaxed);
    }
}

/// An image, and what was read of it.
struct Image {
    /// No other image's.
    number: u64,
    bytes: Bytes,
    /// Never waited for: whoever finds another at it begins anew.
    progress: Mutex<Progress>,
}

enum Bytes {
    Kept(Kept<[u8]>),
    /// In a loaded object, which cannot change it: nvcc's programs carry theirs so.
    Constant {
        address: u64,
        length: usize,
        /// Of its first bytes, as another object may be loaded there later.
        mark: u64,
    },
}

#[derive(Default)]
struct Progress {
    reader: Reader,
    kernels: Kernels,
    done: bool,
    /// What the code of kernels does, as far as it was asked for and says anything.
    code: FxHashMap<Box<str>, Option<Code>>,
}

/// This process's memory.
struct Here(());

impl Here {
    /// # Safety
    /// Only headers and texts of images that CUDA has just read may be read through it.
    unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for Here {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        // SAFETY: part of an image's header, as `new` was promised.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len());
        }
        true
    }

    fn text_length(&self, address: u64, limit: usize) -> usize {
        // SAFETY: CUDA took what is no other image for a text, which ends with a NUL.
        unsafe { libc::strnlen(address as *const c_char, limit) }
    }
}

impl Image {
    /// Keeps the image that `code` points to; `None` if there is none or no room.
    ///
    /// # Safety
    /// CUDA has just read it as an image and it is still there.
    unsafe fn keep(code: u64) -> Option<Arc<Self>> {
        // SAFETY: the caller's promise.
        let here = unsafe { Here::new() };
        let Found::Image { address, length } = locate(code, &here)? else {
            return None;
        };
        let bytes = || {
            // SAFETY: the image's own headers say that it is so long.
            unsafe { core::slice::from_raw_parts(address as *const u8, length) }
        };
        let bytes = if is_constant(address, length) {
            ANY.store(true, Release);
            Bytes::Constant {
                address,
                length,
                mark: mark(bytes()),
            }
        } else if needed() || length <= SMALL && holds_text(bytes(), LONGEST_TEXT) {
            Bytes::Kept(Kept::new(length, || Some(bytes().into()))?)
        } else {
            return None;
        };
        Some(Self::new(bytes))
    }

    /// Keeps a file, which may have changed when a kernel of it is launched.
    fn keep_file(path: &CStr) -> Option<Arc<Self>> {
        let file = std::fs::File::open(path.to_str().ok()?).ok()?;
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        if length > SMALL && !needed() {
            return None;
        }
        let read = || {
            let mut bytes = Vec::with_capacity(length);
            file.take(length as u64).read_to_end(&mut bytes).ok()?;
            (needed() || holds_text(&bytes, LONGEST_TEXT)).then(|| bytes.into())
        };
        Some(Self::new(Bytes::Kept(Kept::new(length, read)?)))
    }

    fn new(bytes: Bytes) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            bytes,
            progress: Mutex::default(),
        })
    }

    /// How the parameters of the kernel `name` lie.
    fn layout(&self, name: &str) -> Option<Vec<Param>> {
        let mut guard = self.progress.try_lock().ok();
        let mut own = Progress::default();
        let progress = guard.as_deref_mut().unwrap_or(&mut own);
        loop {
            if let Some(Some(known)) = progress.kernels.get(name) {
                return Some(known.clone());
            }
            if progress.done {
                return None;
            }
            let Some(packed) = self.next(&mut progress.reader, |_| true)? else {
                progress.done = true;
                continue;
            };
            let Some(part) = packed.open() else { continue };
            for (name, params) in part.kernels() {
                let known = progress.kernels.entry(name).or_default();
                if known.is_none() {
                    *known = params;
                }
            }
        }
    }

    /// What the code of the kernel `name` does with its pointers.
    fn code(&self, name: &str) -> Option<Code> {
        if let Ok(progress) = self.progress.try_lock()
            && let Some(known) = progress.code.get(name)
        {
            return known.clone();
        }
        let found = self.read_code(name)?;
        if let Ok(mut progress) = self.progress.try_lock() {
            if progress.code.len() >= MOST_KERNELS {
                progress.code.clear();
            }
            progress.code.insert(name.into(), found.clone());
        }
        found
    }

    /// The same, read from its text; `None` if the image is there no longer.
    fn read_code(&self, name: &str) -> Option<Option<Code>> {
        tracing::debug!("the code of kernel {name} is looked for");
        let capability = capability();
        let chosen = self.with_bytes(|image| text_that_runs(image, capability, LONGEST_TEXT))?;
        let Some(part) = chosen else {
            return Some(None);
        };
        let of = (self.number, part);
        if let Some(text) = known_text(of) {
            return Some(Part::Ptx(text.as_ref().into()).code(name));
        }
        let place = Cell::new(0);
        let is_chosen = |_: &Packed<'_>| place.replace(place.get() + 1) == part;
        let packed = self.next(&mut Reader::default(), is_chosen)?;
        let opened = packed.and_then(Packed::open);
        let found = opened.as_ref().and_then(|part| part.code(name));
        if let Some(Part::Ptx(Cow::Owned(text))) = opened {
            keep_text(of, text.into());
        }
        Some(found)
    }

    /// Reads the image where it lies; `None` if it is there no longer.
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self.bytes {
            Bytes::Kept(ref kept) => Some(f(&kept.0)),
            Bytes::Constant {
                address,
                length,
                mark: expected,
            } => objects::while_loaded(|_| {
                if !is_constant(address, length) {
                    return None;
                }
                // SAFETY: in a loaded object, and none is unloaded meanwhile.
                let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
                (mark(bytes) == expected).then(|| f(bytes))
            }),
        }
    }

    /// The next part that is wanted; `None` if the image is there no longer. It is opened by
    /// the caller, as the loader's lock is held while what lies in a loaded object is read.
    fn next(
        &self,
        reader: &mut Reader,
        wanted: impl Fn(&Packed<'_>) -> bool,
    ) -> Option<Option<Packed<'_>>> {
        match self.bytes {
            Bytes::Kept(ref kept) => Some(next_wanted(reader, &kept.0, wanted)),
            Bytes::Constant { .. } => {
                self.with_bytes(|image| next_wanted(reader, image, wanted).map(Packed::into_owned))
            }
        }
    }
}

fn next_wanted<'a>(
    reader: &mut Reader,
    image: &'a [u8],
    wanted: impl Fn(&Packed<'_>) -> bool,
) -> Option<Packed<'a>> {
    core::iter::from_fn(|| reader.next_packed(image)).find(|packed| wanted(packed))
}

fn known_text(of: (u64, usize)) -> Option<Arc<str>> {
    let state = state();
    let known = state.as_ref()?.texts.iter().find(|known| known.of == of)?;
    Some(known.text.clone())
}

fn keep_text(of: (u64, usize), text: Arc<str>) {
    let mut state = state();
    let texts = &mut state.get_or_insert_default().texts;
    texts.push_back(Text { of, text });
    let mut kept: usize = texts.iter().map(|known| known.text.len()).sum();
    while kept > MOST_TEXTS
        && let Some(oldest) = texts.pop_front()
    {
        kept -= oldest.text.len();
    }
}

/// The compute capability of the current device, 90 for 9.0.
fn capability() -> Option<u32> {
    type GetDevice = unsafe extern "C-unwind" fn(*mut i32) -> u32;
    type GetAttribute = unsafe extern "C-unwind" fn(*mut i32, u32, i32) -> u32;
    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (cuda.h).
    const MAJOR: u32 = 75;
    const MINOR: u32 = 76;
    let device = driver::unhooked(c"cuCtxGetDevice")?;
    let attribute = driver::unhooked(c"cuDeviceGetAttribute")?;
    let (mut ordinal, mut major, mut minor) = (0, 0, 0);
    // SAFETY: types from cuda.h; each writes one value and changes nothing.
    let status = unsafe {
        let attribute = core::mem::transmute::<*const (), GetAttribute>(attribute);
        match core::mem::transmute::<*const (), GetDevice>(device)(&mut ordinal) {
            0 => attribute(&mut major, MAJOR, ordinal) | attribute(&mut minor, MINOR, ordinal),
            failed => failed,
        }
    };
    (status == 0).then(|| u32::try_from(major * 10 + minor).ok())?
}

/// What tells an image from another in the same place.
fn mark(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(&bytes[..bytes.len().min(4096)]);
    hasher.finish()
}

/// Whether a range lies in a segment of a loaded object that cannot be written to.
fn is_constant(address: u64, length: usize) -> bool {
    struct Search {
        start: u64,
        end: u64,
        found: bool,
    }
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        out: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid `info`, whose program headers stay readable during
        // the callback; `out` is the caller's search.
        let (info, search) = unsafe { (&*info, &mut *out.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as above.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        search.found = headers.iter().any(|header| {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD
                && header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R
                && start <= search.start
                && search.end <= start.wrapping_add(header.p_filesz)
        });
        search.found.into()
    }
    let Some(end) = address.checked_add(length as u64) else {
        return false;
    };
    let mut search = Search {
        start: address,
        end,
        found: false,
    };
    // SAFETY: `each` matches the callback's type and `search` outlives the call.
    unsafe { objects::walk(each, (&raw mut search).cast()) };
    search.found
}

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether images are needed for the layout of parameters: the driver in sight cannot say it
/// or, where none is in sight, the runtime cannot.
fn needed() -> bool {
    if driver::visible() {
        driver::unhooked(c"cuFuncGetParamInfo").is_none()
    } else {
        provider::unhooked(c"cudaFuncGetParamInfo").is_none()
    }
}

/// Runs our own code after a call that succeeded, at any depth, if images are of use.
fn after(status: u32, f: impl FnOnce()) {
    if status == 0 && !recorder::dormant() {
        call::quietly(f);
    }
}

/// The current context.
fn home() -> Home {
    type GetContext = unsafe extern "C-unwind" fn(*mut u64) -> u32;
    type GetDevice = unsafe extern "C-unwind" fn(*mut i32) -> u32;
    let (mut context, mut device) = (0, -1);
    if let (Some(get_context), Some(get_device)) = (
        driver::unhooked(c"cuCtxGetCurrent"),
        driver::unhooked(c"cuCtxGetDevice"),
    ) {
        // SAFETY: types from cuda.h; both write one value and change nothing.
        unsafe {
            core::mem::transmute::<*const (), GetContext>(get_context)(&mut context);
            core::mem::transmute::<*const (), GetDevice>(get_device)(&mut device);
        }
    }
    Home::Context { context, device }
}

/// Notes a load that gave `handle` for the image at `code`.
///
/// # Safety
/// The arguments are those of a load that returned `status`.
pub(crate) unsafe fn loaded(status: u32, handle: *const u64, code: *const c_void, library: bool) {
    after(status, || {
        // SAFETY: the load succeeded, so it wrote the handle and read an image.
        let (handle, image) = unsafe { (*handle, Image::keep(code as u64)) };
        insert(handle, image, library);
    });
}

/// Notes a load that gave `handle` for a file.
///
/// # Safety
/// The arguments are those of a load that returned `status`.
pub(crate) unsafe fn file_loaded(
    status: u32,
    handle: *const u64,
    path: *const c_char,
    library: bool,
) {
    after(status, || {
        // SAFETY: the load succeeded, so it wrote the handle and read the path.
        let (handle, path) = unsafe { (*handle, CStr::from_ptr(path)) };
        insert(handle, Image::keep_file(path), library);
    });
}

fn insert(handle: u64, image: Option<Arc<Image>>, library: bool) {
    tracing::debug!(
        "device code of module {handle:#x} is {}",
        match image.as_deref() {
            Some(Image {
                bytes: Bytes::Kept(_),
                ..
            }) => "kept",
            Some(_) => "in a loaded object",
            None => "not to be had",
        }
    );
    let home = if library { Home::Anywhere } else { home() };
    let module = Module {
        image,
        loaded_from: 0,
        home,
    };
    state()
        .get_or_insert_default()
        .modules
        .insert(handle, module);
}

/// Notes that `module` stands for `library` in the current context.
///
/// # Safety
/// The arguments are those of a call that returned `status`.
pub(crate) unsafe fn module_of_library(status: u32, module: *const u64, library: u64) {
    after(status, || {
        // SAFETY: the call succeeded, so it wrote the handle.
        let module = unsafe { *module };
        let home = home();
        let mut state = state();
        let state = state.get_or_insert_default();
        let image = state.modules.get(&library).and_then(|m| m.image.clone());
        if module != library {
            let entry = Module {
                image,
                loaded_from: library,
                home,
            };
            state.modules.insert(module, entry);
        }
    });
}

/// Notes that a kernel was looked up by its name.
///
/// # Safety
/// The arguments are those of a look-up that returned `status`.
pub(crate) unsafe fn found(
    status: u32,
    function: *const u64,
    module: u64,
    name: *const c_char,
    library: bool,
) {
    after(status, || {
        // SAFETY: the call succeeded, so it wrote the handle and read the name.
        let (function, name) = unsafe { (*function, CStr::from_ptr(name)) };
        let home = if library { Home::Anywhere } else { home() };
        let name = name.to_str().ok().and_then(keep_name);
        let mut state = state();
        let state = state.get_or_insert_default();
        let image = state.modules.get(&module).and_then(|m| m.image.clone());
        let entry = name.map(|name| Function {
            name,
            image,
            module,
            home,
        });
        state.set_function(function, entry);
    });
}

/// Notes that `function` stands for `kernel` in the current context.
///
/// # Safety
/// The arguments are those of a call that returned `status`.
pub(crate) unsafe fn function_of_kernel(status: u32, function: *const u64, kernel: u64) {
    after(status, || {
        // SAFETY: the call succeeded, so it wrote the handle.
        let function = unsafe { *function };
        if function == kernel {
            return;
        }
        let home = home();
        let mut state = state();
        let state = state.get_or_insert_default();
        let entry = state.functions.get(&kernel).and_then(|known| {
            Some(Function {
                name: keep_name(&known.name.0)?,
                image: known.image.clone(),
                module: known.module,
                home,
            })
        });
        state.set_function(function, entry);
    });
}

fn keep_name(name: &str) -> Option<Kept<str>> {
    Kept::new(name.len(), || Some(name.into()))
}

impl State {
    /// What is known of a function from now on: what was known before was another's.
    fn set_function(&mut self, function: u64, entry: Option<Function>) {
        match entry {
            Some(entry) => self.functions.insert(function, entry),
            None => self.functions.remove(&function),
        };
    }
}

/// Drops what was kept of something that ends, at any depth.
fn forget(f: impl FnOnce(&mut State)) {
    if ANY.load(Acquire) {
        call::quietly(|| {
            if let Some(state) = state().as_mut() {
                f(state);
            }
        });
    }
}

/// A module or library is about to be unloaded. Before the call, as its handle may be
/// another's when it returns. The functions that were looked up in it.
pub(crate) fn unloading(module: u64) -> Vec<u64> {
    let mut gone = Vec::new();
    forget(|state| {
        let ends = |handle: u64, of: &Module| handle == module || of.loaded_from == module;
        let ended = state.modules.extract_if(|&handle, of| ends(handle, of));
        let mut modules: Vec<u64> = ended.map(|(handle, _)| handle).collect();
        // Its image may not have been had.
        modules.push(module);
        let functions = &mut state.functions;
        let ended = functions.extract_if(|_, function| modules.contains(&function.module));
        gone.extend(ended.map(|(function, _)| function));
    });
    gone
}

/// Whether the function was looked up in a module that is still loaded.
pub(crate) fn is_loaded(function: u64) -> bool {
    let state = state();
    let known = state.as_ref();
    known.is_some_and(|state| state.functions.contains_key(&function))
}

/// A context is about to end, and its modules with it.
pub(crate) fn context_ending(context: u64) {
    state_without(|home| matches!(home, Home::Context { context: c, .. } if c == context));
}

/// A device's primary context is about to be reset. Modules of its other contexts, of which
/// there are seldom any, are forgotten with those of that one.
pub(crate) fn device_resetting(device: i32) {
    state_without(|home| matches!(home, Home::Context { device: d, .. } if d == device));
}

/// A device's primary context was released, perhaps for the last time.
pub(crate) fn device_released(device: i32, is_active: impl FnOnce(i32) -> bool) {
    if ANY.load(Acquire) && call::quietly(|| is_active(device)) == Some(false) {
        device_resetting(device);
    }
}

fn state_without(ends: impl Fn(Home) -> bool) {
    forget(|state| {
        state.modules.retain(|_, module| !ends(module.home));
        state.functions.retain(|_, function| !ends(function.home));
    });
}

/// Registered fat binaries are about to end.
pub(crate) fn unregistering(wrappers: &[u64]) {
    forget(|state| {
        state
            .registered
            .retain(|wrapper, _| !wrappers.contains(wrapper));
    });
}

/// The name under which a function was looked up.
pub(crate) fn name(function: u64) -> Option<String> {
    let state = state();
    let known = state.as_ref()?.functions.get(&function)?;
    Some(known.name.0.as_ref().to_owned())
}

/// How the parameters lie of a kernel that was just launched as `function`, or is called `name`
/// in the image that the registered `wrapper` points to; 0 where not known.
///
/// # Safety
/// The wrapper's module is loaded.
pub(crate) unsafe fn layout(function: u64, wrapper: u64, name: Option<&str>) -> Option<Vec<Param>> {
    // While a stream captures, no other is asked.
    if !needed() && !capture::any() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { of_image(function, wrapper, name, Image::layout) }
}

/// What the code of such a kernel does with its pointers.
///
/// # Safety
/// As for [`layout`].
pub(crate) unsafe fn code(function: u64, wrapper: u64, name: Option<&str>) -> Option<Code> {
    // SAFETY: the caller's promise.
    unsafe { of_image(function, wrapper, name, Image::code) }
}

/// Asks the function's image, then the wrapper's.
///
/// # Safety
/// The wrapper's module is loaded.
unsafe fn of_image<R>(
    function: u64,
    wrapper: u64,
    name: Option<&str>,
    ask: impl Fn(&Image, &str) -> Option<R>,
) -> Option<R> {
    with_room(|| {
        let (image, looked_up) = of_function(function);
        let name = name.or(looked_up.as_deref())?;
        let fits = looked_up.as_deref().is_none_or(|other| other == name);
        image
            .filter(|_| fits)
            .and_then(|image| ask(&image, name))
            // SAFETY: the caller's promise.
            .or_else(|| ask(&*unsafe { registered(wrapper) }?, name))
    })
}

fn of_function(function: u64) -> (Option<Arc<Image>>, Option<String>) {
    let state = state();
    let known = state
        .as_ref()
        .and_then(|state| state.functions.get(&function));
    match known {
        Some(known) => (known.image.clone(), Some(known.name.0.as_ref().to_owned())),
        None => (None, None),
    }
}

/// # Safety
/// The wrapper's module is loaded.
unsafe fn registered(wrapper: u64) -> Option<Arc<Image>> {
    if wrapper == 0 {
        return None;
    }
    let known = state()
        .get_or_insert_default()
        .registered
        .get(&wrapper)
        .cloned();
    known.unwrap_or_else(|| {
        // SAFETY: CUDA has launched a kernel of it.
        let image = unsafe { Image::keep(wrapper) };
        let mut state = state();
        let registered = &mut state.get_or_insert_default().registered;
        registered.insert(wrapper, image.clone());
        image
    })
}

/// The lock of this file, for a process that forks.
pub(crate) fn before_fork() -> crate::life::Held {
    crate::life::hold(&STATE)
}
