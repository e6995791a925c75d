//! The trace on disk: a shared mapping of a file that grows ahead of what is
//! written, so that whatever was recorded is in the kernel's hands and survives
//! the process being killed. It is cut to its true length at exit.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering::Release};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use streamcheck_model::trace::{
    Frame as TraceFrame, Header, Module as TraceModule, ProcessFacts, Reader, Record, Writer,
};
use streamcheck_model::{Names, Operation, StackId};
use streamcheck_report::output::is_younger_than_this_process;
use streamcheck_report::{
    Frame, Module, Process, Settings, fill_build_ids, modules_of_this_process,
};

use crate::stacks::Stacks;
use crate::{cut_short, objects, stderr};

/// Names that are tried for a trace.
const NAMES: u32 = 1000;

/// How far the file grows ahead, and the size of the mapping.
const WINDOW: usize = 4 << 20;
const PAGE: usize = 64 << 10;

/// A trace being written.
pub(crate) struct TraceFile {
    writer: Writer,
    bytes: Vec<u8>,
    /// The program may close the descriptor and get its number for a file of its
    /// own: it is used only while `identity` says that it is still ours.
    file: ManuallyDrop<File>,
    identity: (u64, u64),
    path: PathBuf,
    map: *mut u8,
    map_start: usize,
    map_size: usize,
    length: usize,
    newest_stack: u32,
    /// The addresses of Python frames that were written.
    interpreted: FxHashSet<u64>,
    generation: (u64, u64),
    modules: Vec<Module>,
}

// SAFETY: the mapping belongs to the value and is used through `&mut` alone.
unsafe impl Send for TraceFile {}

impl TraceFile {
    /// The trace that the settings ask for, or what is wrong with it.
    pub(crate) fn create(settings: &Settings, process: &Process) -> (Option<Self>, Option<String>) {
        let Some(template) = &settings.trace else {
            return (None, None);
        };
        let path = template.expand(process);
        match Self::open(&path, process) {
            Ok(trace) => {
                tracing::info!("the trace goes to {}", trace.path.display());
                (Some(trace), None)
            }
            Err(error) => (
                None,
                Some(format!(
                    "trace {} cannot be written: {error}",
                    path.display()
                )),
            ),
        }
    }

    fn open(path: &Path, process: &Process) -> std::io::Result<Self> {
        let (file, path) = claim(path, process.pid)?;
        let identity = identity(&file)?;
        let mut bytes = Vec::new();
        let header = Header::new(ProcessFacts {
            pid: process.pid,
            exe: process.exe.clone(),
            argv: process.argv.clone(),
            host: process.host.clone(),
            rank: process.rank,
        });
        let writer = Writer::new(&header, &mut bytes);
        let mut trace = Self {
            writer,
            bytes,
            file: ManuallyDrop::new(file),
            identity,
            path,
            map: core::ptr::null_mut(),
            map_start: 0,
            map_size: 0,
            length: 0,
            newest_stack: 0,
            interpreted: FxHashSet::default(),
            generation: (0, 0),
            modules: Vec::new(),
        };
        trace.flush()?;
        Ok(trace)
    }

    /// Appends an operation.
    pub(crate) fn operation(&mut self, operation: &Operation, names: &Names, stacks: &Stacks) {
        let stack = operation.call.stack;
        if stack.0 > self.newest_stack {
            self.newest_stack = stack.0;
            self.new_modules();
            for (address, frame) in stacks.interpreted(stacks.addresses(stack)) {
                if self.interpreted.insert(address) {
                    let stands_for = StackId::of_interpreted(address);
                    self.writer
                        .frames(stands_for, &[trace_frame(frame)], &mut self.bytes);
                }
            }
        }
        let addresses = |id| stacks.addresses(id);
        self.writer
            .operation(operation, names, addresses, &mut self.bytes);
        self.put();
    }

    /// Appends what a stack means.
    pub(crate) fn frames(&mut self, stack: StackId, frames: &[Frame]) {
        let frames: Vec<TraceFrame> = frames.iter().map(trace_frame).collect();
        self.writer.frames(stack, &frames, &mut self.bytes);
        self.put();
    }

    /// Ends the trace in order.
    pub(crate) fn end(mut self) {
        core::mem::take(&mut self.writer).end(&mut self.bytes);
        self.put();
        self.unmap();
        self.trim();
    }

    /// Ends the trace in order for the case that nothing follows. What follows takes the
    /// end's place.
    pub(crate) fn pause(&mut self) {
        if self.map_size == usize::MAX {
            return;
        }
        let length = self.length;
        Record::End(self.writer.counts()).append_to(&mut self.bytes);
        self.put();
        if self.map_size != usize::MAX {
            self.unmap();
            self.trim();
            self.length = length;
        }
    }

    /// Gives back the room that was taken ahead.
    fn trim(&self) {
        // A failure leaves zeros at the end, which a reader skips.
        if self.owns_descriptor() && !self.is_cut_short() {
            let _ = self.file.set_len(self.length as u64);
        }
    }

    /// Whether somebody took away from the file what was written.
    fn is_cut_short(&self) -> bool {
        cut_short::happened()
            || self
                .file
                .metadata()
                .is_ok_and(|facts| facts.len() < self.length as u64)
    }

    fn owns_descriptor(&self) -> bool {
        identity(&self.file).is_ok_and(|now| now == self.identity)
    }

    /// Appends the modules that were loaded since the last look.
    fn new_modules(&mut self) {
        let generation = objects::generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let mut new: Vec<Module> = modules_of_this_process()
            .into_iter()
            .filter(|module| {
                !self.modules.iter().any(|known| {
                    (known.start, known.end, known.offset)
                        == (module.start, module.end, module.offset)
                        && known.path == module.path
                })
            })
            .collect();
        self.modules.extend(new.iter().cloned());
        fill_build_ids(&mut new);
        for module in new {
            let module = TraceModule {
                start: module.start,
                end: module.end,
                offset: module.offset,
                path: module.path,
                build_id: module.build_id,
            };
            self.writer.module(&module, &mut self.bytes);
        }
    }

    /// Puts what was encoded into the file; says once if it cannot.
    fn put(&mut self) {
        if let Err(error) = self.flush() {
            stderr::line(&format!(
                "trace {} ends early: {error}",
                self.path.display()
            ));
            self.unmap();
            // From here on `flush` drops what it is given.
            self.map_size = usize::MAX;
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let size = self.bytes.len();
        if self.map_size == usize::MAX {
            // Given up.
            self.bytes.clear();
            return Ok(());
        }
        if self.map.is_null() || self.length + size > self.map_start + self.map_size {
            self.move_window(size)?;
        }
        // SAFETY: the window reaches past the batch; the file backs all of it.
        unsafe {
            let place = self.map.add(self.length - self.map_start);
            if let Some((head, rest)) = self.bytes.split_first_chunk::<4>() {
                core::ptr::copy_nonoverlapping(rest.as_ptr(), place.add(4), rest.len());
                // The first length goes last: a reader stops at a zero length, so
                // a kill in between leaves whole frames only.
                if place.cast::<AtomicU32>().is_aligned() {
                    (*place.cast::<AtomicU32>()).store(u32::from_ne_bytes(*head), Release);
                } else {
                    core::sync::atomic::fence(Release);
                    place.cast::<[u8; 4]>().write_volatile(*head);
                }
            }
        }
        self.length += size;
        self.bytes.clear();
        if cut_short::happened() {
            return Err(std::io::Error::other("it was cut short"));
        }
        Ok(())
    }

    /// Maps the file from its end on, with room for `size` bytes.
    fn move_window(&mut self, size: usize) -> std::io::Result<()> {
        self.unmap();
        if !self.owns_descriptor() {
            return Err(std::io::Error::other(
                "the program has closed its descriptor",
            ));
        }
        let start = self.length / PAGE * PAGE;
        let window = (self.length - start + size).next_multiple_of(WINDOW);
        if (start + window) as u64 > largest_file() {
            return Err(std::io::Error::from_raw_os_error(libc::EFBIG));
        }
        if self.is_cut_short() {
            return Err(std::io::Error::other("it was cut short"));
        }
        // An end that was not the end: what lies ahead is zeros.
        self.file.set_len(self.length as u64)?;
        // Space is taken now: a full disk found later would be a signal.
        // SAFETY: our own descriptor, as was just seen.
        let status =
            unsafe { libc::posix_fallocate(self.file.as_raw_fd(), start as i64, window as i64) };
        if status != 0 {
            return Err(std::io::Error::from_raw_os_error(status));
        }
        // SAFETY: a new shared mapping of our own file.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                window,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                start as i64,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        (self.map, self.map_start, self.map_size) = (map.cast(), start, window);
        cut_short::watch(self.map, window);
        Ok(())
    }

    fn unmap(&mut self) {
        if !self.map.is_null() {
            cut_short::forget();
            // SAFETY: mapped by `move_window` with this size.
            unsafe { libc::munmap(self.map.cast(), self.map_size) };
            self.map = core::ptr::null_mut();
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.unmap();
        if self.owns_descriptor() {
            // SAFETY: dropped here alone, and used no more.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn trace_frame(frame: &Frame) -> TraceFrame {
    TraceFrame {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        offset: frame.offset,
    }
}

/// The device and the number of the file that a descriptor stands for.
fn identity(file: &File) -> std::io::Result<(u64, u64)> {
    let facts = file.metadata()?;
    Ok((facts.dev(), facts.ino()))
}

/// Opens the trace's file. `PATH.PID` if a living process writes to the first; `PATH.PID-2`
/// and so on if an earlier program of this very process wrote to these.
fn claim(path: &Path, pid: u32) -> std::io::Result<(File, PathBuf)> {
    for number in 0..NAMES {
        let mut name = path.as_os_str().to_owned();
        match number {
            0 => {}
            1 => name.push(format!(".{pid}")),
            _ => name.push(format!(".{pid}-{number}")),
        }
        let path = PathBuf::from(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        if file.try_lock().is_ok() && !is_of_an_earlier_image(&file, &path, pid) {
            file.set_len(0)?;
            return Ok((file, path));
        }
    }
    Err(std::io::Error::other("other processes write to it"))
}

/// Whether this process wrote the trace, when it ran another program.
fn is_of_an_earlier_image(file: &File, path: &Path, pid: u32) -> bool {
    is_younger_than_this_process(path)
        && Reader::new(file, "").is_ok_and(|reader| reader.header().process.pid == pid)
}

/// The process's limit on the size of a file, past which it would get SIGXFSZ.
fn largest_file() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: writes to `limit` alone, and leaves it as it is on failure.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}
