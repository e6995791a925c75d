//! The trace on disk: a shared mapping of the file's journal, so that whatever was recorded is
//! in the kernel's hands and survives the process being killed, and blocks that are appended
//! to it. It is cut to its true length at exit.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU64, Ordering::Release};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use streamcheck_model::trace::{
    Frame as TraceFrame, Header, Layout, Medium, Module as TraceModule, ProcessFacts, Reader,
    Stopped, Writer,
};
use streamcheck_model::{Names, Operation, StackId};
use streamcheck_report::output::is_younger_than_this_process;
use streamcheck_report::{
    Frame, Module, Process, Settings, fill_build_ids, modules_of_this_process,
};

use crate::room::uncancelled;
use crate::stacks::Stacks;
use crate::{cut_short, objects, stderr};

/// Names that are tried for a trace.
const NAMES: u32 = 1000;

/// What a mapping's place in the file is a multiple of, on every machine.
const PAGE: usize = 64 << 10;

/// A trace being written.
pub(crate) struct TraceFile {
    writer: Writer<Mapped>,
    path: PathBuf,
    newest_stack: u32,
    /// The addresses of Python frames that were written.
    interpreted: FxHashSet<u64>,
    generation: (u64, u64),
    modules: Vec<Module>,
}

impl TraceFile {
    /// The trace that the settings ask for, or what is wrong with it.
    pub(crate) fn create(settings: &Settings, process: &Process) -> (Option<Self>, Option<String>) {
        let Some(template) = &settings.trace else {
            return (None, None);
        };
        let path = template.expand(process);
        match Self::open(&path, process, settings.trace_limit) {
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

    fn open(path: &Path, process: &Process, limit: Option<u64>) -> io::Result<Self> {
        let header = Header::new(ProcessFacts {
            pid: process.pid,
            exe: process.exe.clone(),
            argv: process.argv.clone(),
            host: process.host.clone(),
            rank: process.rank,
        });
        // The process may not write longer files either.
        let limit = limit.unwrap_or(u64::MAX).min(largest_file());
        let layout = Layout::new(&header, Some(limit))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let (file, path) = claim(path, process.pid)?;
        let writer = Writer::begin(&layout, Mapped::new(file, &layout)?)?;
        Ok(Self {
            writer,
            path,
            newest_stack: 0,
            interpreted: FxHashSet::default(),
            generation: (0, 0),
            modules: Vec::new(),
        })
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
                    self.writer.frames(stands_for, &[trace_frame(frame)]);
                }
            }
        }
        let addresses = |id| stacks.addresses(id);
        self.writer.operation(operation, names, addresses);
        let outcome = self.writer.commit();
        self.tell(outcome);
    }

    /// Appends what a stack means.
    pub(crate) fn frames(&mut self, stack: StackId, frames: &[Frame]) {
        let frames: Vec<TraceFrame> = frames.iter().map(trace_frame).collect();
        self.writer.frames(stack, &frames);
        let outcome = self.writer.commit();
        self.tell(outcome);
    }

    /// Ends the trace in order.
    pub(crate) fn end(mut self) {
        match self.writer.end() {
            // What is cut off is unused; a failure leaves it, and a reader skips it.
            Ok(length) => self.writer.medium().cut_to(length),
            Err(why) => self.tell(Err(why)),
        }
    }

    /// Ends the trace in order for the case that nothing follows. What follows takes the
    /// end's place.
    pub(crate) fn pause(&mut self) {
        let outcome = self.writer.pause();
        self.tell(outcome);
    }

    /// Says once that the trace ends before the process does.
    #[inline]
    fn tell(&mut self, outcome: Result<(), Stopped>) {
        if let Err(why) = outcome {
            self.tell_stopped(&why);
        } else if cut_short::happened() && !self.writer.is_stopped() {
            self.tell_stopped(&Stopped::Unwritable(cut()));
            self.writer.abandon();
        }
    }

    #[cold]
    fn tell_stopped(&self, why: &Stopped) {
        let path = self.path.display();
        let line = match why {
            Stopped::Limit { operations } => format!(
                "trace {path} is as long as it may be, after {operations} operations; \
                 what follows is checked, and not recorded"
            ),
            Stopped::Unwritable(error) => format!("trace {path} ends early: {error}"),
        };
        uncancelled(|| stderr::line(&line));
    }

    /// Appends the modules that were loaded since the last look.
    fn new_modules(&mut self) {
        let generation = objects::generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let mut new: Vec<Module> = uncancelled(modules_of_this_process)
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
        uncancelled(|| fill_build_ids(&mut new));
        for module in new {
            let module = TraceModule {
                start: module.start,
                end: module.end,
                offset: module.offset,
                path: module.path,
                build_id: module.build_id,
            };
            self.writer.module(&module);
        }
    }
}

/// The file, with its journal mapped.
struct Mapped {
    /// The program may close the descriptor and get its number for a file of its
    /// own: it is used only while `identity` says that it is still ours.
    file: ManuallyDrop<File>,
    identity: (u64, u64),
    /// The mapping, and how far into it the journal begins.
    map: *mut u8,
    size: usize,
    start: usize,
    /// How long the file is at least.
    length: u64,
}

// SAFETY: the mapping belongs to the value and is used through `&mut` alone.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(file: File, layout: &Layout) -> io::Result<Self> {
        let identity = identity(&file)?;
        let end = layout.start() + layout.size();
        let from = layout.start() / PAGE * PAGE;
        // Space is taken now: a full disk found later would be a signal.
        // SAFETY: our own descriptor.
        let status = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, end as i64) };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status));
        }
        let size = end - from;
        // SAFETY: a new shared mapping of our own file.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                from as i64,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = map.cast();
        cut_short::watch(map, size);
        Ok(Self {
            file: ManuallyDrop::new(file),
            identity,
            map,
            size,
            start: layout.start() - from,
            length: end as u64,
        })
    }

    /// Gives back the room that was taken ahead.
    fn cut_to(&self, length: u64) {
        if self.owns_descriptor() && !self.is_cut_short() {
            let _ = self.file.set_len(length);
        }
    }

    /// Whether somebody took away from the file what was written.
    fn is_cut_short(&self) -> bool {
        cut_short::happened()
            || self
                .file
                .metadata()
                .is_ok_and(|facts| facts.len() < self.length)
    }

    fn owns_descriptor(&self) -> bool {
        identity(&self.file).is_ok_and(|now| now == self.identity)
    }

    /// Where in the mapping a place of the journal lies.
    fn place(&self, at: usize, size: usize) -> *mut u8 {
        let from = self.start + at;
        assert!(
            from + size <= self.size,
            "the journal is longer than planned"
        );
        // SAFETY: inside the mapping, as was just seen.
        unsafe { self.map.add(from) }
    }
}

impl Medium for Mapped {
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: so many bytes of the mapping, which nobody else in this process uses.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    fn publish(&mut self, at: usize, word: u64) {
        let place = self.place(at, 8).cast::<AtomicU64>();
        debug_assert!(place.is_aligned());
        // SAFETY: eight bytes of the mapping; the journal begins at a multiple of 8, as `at` is.
        unsafe { (*place).store(word, Release) };
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.owns_descriptor() {
            return Err(io::Error::other("the program has closed its descriptor"));
        }
        if self.is_cut_short() {
            return Err(cut());
        }
        let end = at + bytes.len() as u64;
        if end > largest_file() {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let (head, rest) = bytes.split_at(bytes.len().min(4));
        uncancelled(|| {
            self.file.write_all_at(rest, at + 4)?;
            self.file.write_all_at(head, at)
        })?;
        self.length = self.length.max(end);
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        cut_short::forget();
        // SAFETY: mapped by `new` with this size, and used no more.
        unsafe { libc::munmap(self.map.cast(), self.size) };
        if self.owns_descriptor() {
            // SAFETY: dropped here alone, and used no more.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// What is said of a file that lost what was written.
fn cut() -> io::Error {
    io::Error::other("it was cut short")
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
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let facts = file.metadata()?;
    Ok((facts.dev(), facts.ino()))
}

/// Opens the trace's file. `PATH.PID` if a living process writes to the first; `PATH.PID-2`
/// and so on if an earlier program of this very process wrote to these.
fn claim(path: &Path, pid: u32) -> io::Result<(File, PathBuf)> {
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
    Err(io::Error::other("other processes write to it"))
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
