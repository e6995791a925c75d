//! Programs typed by hand: the text form of operations.
//!
//! One call per line, `#` begins a comment, and `=> SC101 SC103` at a line's end
//! says which findings that very line must produce.
//!
//! ```text
//! # A block is used on another stream, with nothing in between.
//! stream S1 nonblocking
//! stream S2 nonblocking
//! p = malloc_async 1024 S1
//! launch fill S1 p
//! launch saxpy S2 read:p          => SC101
//! free_async p S1                 => SC103
//! ```
//!
//! | line | stands for |
//! | --- | --- |
//! | `stream S nonblocking`, `stream S blocking` | a stream is created |
//! | `event E` | an event is created |
//! | `… handle=OLD` after either, and after new graphs, executable graphs and nodes | the new one gets the handle value that `OLD` had |
//! | `destroy S`, `destroy E` | it is destroyed |
//! | `name S compute` | the stream gets a name (NVTX) |
//! | `record E S`, `wait S E` | `cudaEventRecord(E, S)`, `cudaStreamWaitEvent(S, E)` |
//! | `sync E`, `sync S`, `sync device`, `sync context` | the host waits |
//! | `query E`, `query S` | a query that says "complete" |
//! | `p = malloc_async BYTES S` | stream-ordered memory; `… pool=P` from a pool that `pool P` made and `destroy P` destroys |
//! | `p = import BYTES`, `close p` | stream-ordered memory of another process; it is closed |
//! | `p = malloc BYTES`, `p = malloc_managed BYTES`, `p = map BYTES` | other device memory |
//! | `h = malloc_host BYTES` | page-locked host memory |
//! | `h = pageable BYTES` | host memory that CUDA does not know; no call |
//! | `h = pinned BYTES` | page-locked host memory that no recorded call made; no call |
//! | `… at q` after any of these | the address is that of `q`; else it is one never used before |
//! | `register h`, `unregister h` | `cudaHostRegister`, `cudaHostUnregister` |
//! | `free_async p S`, `free p`, `free_host h`, `unmap p`, `release h` | memory is given back; `release` is the C library's `free` |
//! | `… refused`, `… failed` after any of these or `unregister` | the call did not succeed |
//! | `… begun` after the same | the call has not returned yet; it does at a line `ended`, `ended refused` or `ended failed` of the same thread |
//! | `launch KERNEL S p read:q struct:r` | a kernel that may write `p`, only reads `q`, and has `r` in a by-value struct (`doubtful:r`: in a very large one); `update:p`: it only updates atomically; `p@7`: it adds a parameter of value 7; `p!`: its code is known to use it; `p<`: it may use what lies before `p`; `?` instead of pointers: its parameters are not known |
//! | `copy S a -> b BYTES` | `cudaMemcpyAsync`; the direction follows from what `a` and `b` are, or is `h2d`, `d2h`, `d2d`, `h2h` or `default` after the size |
//! | `copy_sync a -> b BYTES` | `cudaMemcpy`, on the legacy stream; `copy_sync PT a -> b BYTES` on the per-thread one |
//! | `fill S p BYTES`, `fill_sync p BYTES`, `fill_sync PT p BYTES` | the same for fills |
//! | `copies S a -> b BYTES, c -> d BYTES` | one batch call; `during` or `any` after `S` for when the sources are read, else in stream order |
//! | `copy_layers S a -> b 16x8 h2d 3 1024` | a volume of 3 layers, 1024 bytes apart on both sides |
//! | `host reads p 64`, `host writes p/64 16x8` | the CPU does; `… in recv`: that call for it; `… through q r`: kernels with the pointers `q` and `r` reach as far |
//! | `coherent` | the device uses the host's page tables |
//! | `enqueue S` | something without accesses takes its place in the stream |
//! | `write_value S p 1`, `wait_value S p >= 1` | stream memory operations; also `==`, `&` and `nor` |
//! | `semaphore X`, `signal S X 1`, `await S X >= 1` | the same with an external semaphore; `signal S X` and `await S X` for one without values |
//! | `hostfunc S f`, `hostfunc_runs f` | a host function is enqueued; it begins to run |
//! | `capture S`, `capture S G a b`, `end_capture S G`, `end_capture S invalid` | a stream captures, into a new graph or into `G` after nodes of it; the capture ends and gives the graph `G` (`G again`: a new graph of an old name), or nothing |
//! | `captured S record E` | the capture gets a node that no other line stands for |
//! | `dependencies S a b`, `dependencies S replace a b` | `cudaStreamUpdateCaptureDependencies` |
//! | `graph G`, `clone G H`, `find H n m`, `destroy G` | a graph; `m` is the node of the copy `H` for `n` |
//! | `node G n after=a,b WORK` | a node; `WORK` is `kernel KERNEL p read:q`, `copy a -> b BYTES`, `fill p BYTES`, `host`, `empty`, `record E`, `wait E`, `alloc p BYTES`, `free p`, `child H`, `conditional H` or `unknown` |
//! | `set n WORK`, `set X n WORK`, `remove n` | the node does something else, in the graph or in the executable graph; it is removed |
//! | `edges G a b c d`, `no_edges G a b` | edges from `a` to `b` and from `c` to `d` are added; one is taken out |
//! | `instantiate G X`, `instantiate G X auto_free`, `update X G`, `destroy X` | an executable graph |
//! | `enable X n`, `disable X n`, `graph_launch S X` | a node is switched; `cudaGraphLaunch` |
//! | `blind KIND EXAMPLE` | something that could not be seen into |
//! | `thread 2`, `device 1` | the following calls come from that host thread, on that device |
//! | `context 1`, `green 1`, `primary` | the following calls are made in that context of the device: one the program created, a green one, its primary one |
//! | `record_context E`, `wait_context E`, `end_context` | `cuCtxRecordEvent`, `cuCtxWaitEvent`, `cuCtxDestroy` of the current context |
//! | `barrier 0 1` | all earlier work of these devices' legacy and blocking streams comes before all their later work |
//! | `end` | the process ends in order |
//!
//! A stream is a name, `L` (the legacy default stream) or `PT` (the per-thread one).
//! A pointer is a name with an optional offset, `p+256`. Names may be bound again;
//! a name stays usable after its object is gone, as a stale value does in a program.
//! Instead of `BYTES` a copy or fill takes `16x8` for 8 rows of 16 bytes; the rows
//! are `p/64` 64 bytes apart.

mod batches;
mod graphs;
mod line;
mod signals;

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::{
    Action, Call, ContextId, DeviceId, Direction, Element, FreeKind, HOST_READ, HOST_WRITE, Handle,
    HostMemory, MemoryKind, Mode, Names, Operation, Outcome, Pointer, Region, StackId, StreamRef,
    ThreadId, Used,
};
use line::Line;

/// A program that was typed.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The names that its operations use.
    pub names: Names,
    /// Its lines, those that hold a call.
    pub steps: Vec<Step>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its number, from 1.
    pub line: u32,
    /// Its text, without the comment and the expectation.
    pub text: String,
    /// What it does. A free is two operations.
    pub operations: Vec<Operation>,
    /// The codes of the findings that it must produce.
    pub expected: Vec<String>,
}

/// Where a text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// What was expected, and what is there.
    pub message: String,
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// At the first line that is none of those above.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut state = State::default();
        let mut steps = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            let code = text.split('#').next().unwrap_or_default();
            let (code, expectation) = match code.split_once("=>") {
                Some((code, expectation)) => (code, Some(expectation)),
                None => (code, None),
            };
            let mut line = Line::new(number, code);
            let expected: Vec<String> = expectation
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            if expectation.is_some() && expected.is_empty() {
                return Err(line.error(line.width, "expected rule codes after `=>`, such as SC101"));
            }
            if line.words.is_empty() {
                if expectation.is_some() {
                    return Err(line.error(1, "expected a call before `=>`"));
                }
                continue;
            }
            let operations = state.statement(&mut line)?;
            line.end()?;
            if operations.is_empty() && !expected.is_empty() {
                return Err(line.error(1, "this line is no call, so it has no findings"));
            }
            steps.push(Step {
                line: number,
                text: code.trim().to_owned(),
                operations,
                expected,
            });
        }
        Ok(Self {
            names: state.names,
            steps,
        })
    }

    /// All operations in order.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.steps.iter().flat_map(|step| &step.operations)
    }

    /// The line that a call stands on. Every line is a call site of its own.
    #[must_use]
    pub fn step_at(&self, stack: StackId) -> Option<&Step> {
        let place = self
            .steps
            .binary_search_by_key(&stack.0, |step| step.line)
            .ok()?;
        Some(&self.steps[place])
    }
}

/// What a pointer's name stands for.
#[derive(Clone, Copy)]
struct Memory {
    address: u64,
    size: u64,
    host: bool,
    /// What the driver would say of it.
    asked: HostMemory,
}

#[derive(Clone, Copy)]
enum Object {
    Stream(Handle),
    Event(Handle),
    Pool(Handle),
    Semaphore(Handle),
    Graph(Handle),
    Exec(Handle),
    Node(Handle),
}

/// What the lines so far have set up.
struct State {
    names: Names,
    objects: HashMap<String, Object>,
    memory: HashMap<String, Memory>,
    functions: HashMap<String, u64>,
    call: Call,
    next_handle: u64,
    next_device: u64,
    next_host: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            names: Names::default(),
            objects: HashMap::new(),
            memory: HashMap::new(),
            functions: HashMap::new(),
            call: Call {
                thread: ThreadId(1),
                ..Call::default()
            },
            next_handle: 0x1000,
            next_device: 0x7f00_0000_0000,
            next_host: 0x5500_0000_0000,
        }
    }
}

const CALLS: &str = "a call (stream, event, destroy, name, record, wait, sync, query, register, \
     unregister, free, free_async, free_host, unmap, release, close, ended, launch, copy, copy_sync, \
     copies, copy_layers, fill, fill_sync, host, coherent, enqueue, write_value, wait_value, signal, await, semaphore, pool, \
     hostfunc, hostfunc_runs, capture, end_capture, captured, dependencies, graph, clone, find, node, remove, \
     set, edges, no_edges, instantiate, update, enable, disable, graph_launch, barrier, record_context, wait_context, end_context, blind, end, \
     thread, device, context, green, primary, or `p = malloc…`)";
const CONTEXT: &str = "a context's number";
const STREAM: &str = "a stream declared above, `L` or `PT`";
const EVENT: &str = "an event declared above";
const POINTER: &str = "a pointer declared above, such as `p` or `p+256`";

impl State {
    fn statement(&mut self, line: &mut Line<'_>) -> Result<Vec<Operation>, ParseError> {
        self.call.stack = StackId(line.number);
        if line.words.get(1).is_some_and(|&(_, word)| word == "=") {
            return self.allocation(line);
        }
        let (api, action) = match line.word(CALLS)? {
            "stream" => self.stream_created(line)?,
            "event" => {
                let name = line.word("the event's name")?;
                let event = self.handle(line)?;
                self.objects.insert(name.to_owned(), Object::Event(event));
                ("cudaEventCreate", Action::EventCreated { event })
            }
            "destroy" => match self.object(line)? {
                Object::Stream(stream) => ("cudaStreamDestroy", Action::StreamDestroyed { stream }),
                Object::Event(event) => ("cudaEventDestroy", Action::EventDestroyed { event }),
                Object::Pool(pool) => ("cudaMemPoolDestroy", Action::PoolDestroyed { pool }),
                Object::Graph(graph) => ("cudaGraphDestroy", Action::GraphDestroyed { graph }),
                Object::Exec(exec) => ("cudaGraphExecDestroy", Action::ExecDestroyed { exec }),
                Object::Semaphore(_) | Object::Node(_) => {
                    return Err(line.wrong("a stream, event, pool or graph"));
                }
            },
            "pool" | "semaphore" => return self.declared(line),

            "name" => {
                let stream = self.stream(line)?;
                let name = self.names.intern(line.word("the stream's new name")?);
                ("nvtxNameCudaStreamA", Action::StreamNamed { stream, name })
            }
            "record" => {
                let event = self.event(line)?;
                (
                    "cudaEventRecord",
                    Action::EventRecorded {
                        event,
                        stream: self.stream(line)?,
                    },
                )
            }
            "wait" => {
                let stream = self.stream(line)?;
                (
                    "cudaStreamWaitEvent",
                    Action::StreamWaited {
                        stream,
                        event: self.event(line)?,
                    },
                )
            }
            "sync" if line.eat("device") => ("cudaDeviceSynchronize", Action::DeviceSynchronized),
            "sync" if line.eat("context") => ("cuCtxSynchronize", Action::ContextSynchronized),
            verb @ ("sync" | "query") => self.known_complete(verb, line)?,
            "register" => {
                let name = line.word(POINTER)?;
                let memory = self
                    .memory
                    .get(name)
                    .copied()
                    .ok_or_else(|| line.wrong(POINTER))?;
                let kind = MemoryKind::Registered;
                let Memory { address, size, .. } = memory;
                (
                    "cudaHostRegister",
                    Action::Allocated {
                        address,
                        size,
                        kind,
                        stream: None,
                        pool: Handle::default(),
                    },
                )
            }
            "unregister" => return self.free("cudaHostUnregister", FreeKind::Unregister, line),
            "free" => return self.free("cudaFree", FreeKind::Sync, line),
            "free_async" => return self.free("cudaFreeAsync", FreeKind::Async, line),
            "free_host" => return self.free("cudaFreeHost", FreeKind::Host, line),
            "unmap" => return self.free("cuMemUnmap", FreeKind::Unmap, line),
            "release" => return self.free("free", FreeKind::Libc, line),
            "close" => return self.free("cudaIpcCloseMemHandle", FreeKind::Import, line),
            // Begun on an earlier line of this thread, whose call it is.
            "ended" => (
                "",
                Action::FreeEnded {
                    outcome: outcome(line),
                },
            ),
            "launch" => self.launched(line)?,
            "copy" => {
                let stream = self.stream(line)?;
                ("cudaMemcpyAsync", self.copied(stream, false, line)?)
            }
            "copy_sync" => {
                let stream = default_stream(line);
                ("cudaMemcpy", self.copied(stream, true, line)?)
            }
            "fill" => {
                let stream = self.stream(line)?;
                ("cudaMemsetAsync", self.filled(stream, false, line)?)
            }
            "fill_sync" => {
                let stream = default_stream(line);
                ("cudaMemset", self.filled(stream, true, line)?)
            }
            "copies" => {
                let stream = self.stream(line)?;
                ("cudaMemcpyBatchAsync", self.copied_together(stream, line)?)
            }
            "copy_layers" => {
                let stream = self.stream(line)?;
                ("cudaMemcpy3DAsync", self.copied_in_layers(stream, line)?)
            }
            "host" => return self.host_accessed(line),
            "coherent" => (
                "",
                Action::DeviceDescribed {
                    device: self.call.device,
                    coherent: true,
                },
            ),
            "enqueue" => {
                let stream = self.stream(line)?;
                ("cudaMemPrefetchAsync", Action::Enqueued { stream })
            }
            verb @ ("write_value" | "wait_value" | "signal" | "await") => {
                self.signalled(verb, line)?
            }
            "record_context" => {
                let event = self.event(line)?;
                ("cuCtxRecordEvent", Action::ContextRecorded { event })
            }
            "wait_context" => {
                let event = self.event(line)?;
                ("cuCtxWaitEvent", Action::ContextWaited { event })
            }
            "end_context" => ("cuCtxDestroy", Action::ContextDestroyed),
            "barrier" => {
                let mut devices = SmallVec::new();
                while line.peek().is_some() {
                    devices.push(DeviceId(line.number("a device's ordinal, from 0")?));
                }
                ("cudaMemcpyPeer", Action::Barrier { devices })
            }
            "end" => ("", Action::Ended),
            "hostfunc" => {
                let stream = self.stream(line)?;
                let name = line.word("the host function's name")?;
                let token = self.fresh_handle().0;
                self.functions.insert(name.to_owned(), token);
                (
                    "cudaLaunchHostFunc",
                    Action::HostFunctionEnqueued { stream, token },
                )
            }
            "hostfunc_runs" => {
                let expected = "a host function enqueued above";
                let name = line.word(expected)?;
                let token = *self
                    .functions
                    .get(name)
                    .ok_or_else(|| line.wrong(expected))?;
                ("cudaLaunchHostFunc", Action::HostFunctionStarted { token })
            }
            "blind" => {
                let kind = self.names.intern(line.word("the blind spot's kind")?);
                let example = self.names.intern(line.word("an example")?);
                ("", Action::BlindSpot { kind, example })
            }
            "thread" => {
                self.call.thread = ThreadId(line.number("a thread's number, from 1")?);
                return Ok(Vec::new());
            }
            "device" => {
                let device = line.number("a device's ordinal, from 0")?;
                self.call.device = DeviceId(device);
                self.call.context = ContextId(u32::from(device));
                return Ok(Vec::new());
            }
            "context" => {
                self.call.context = ContextId(0x1_0000 + line.number::<u16>(CONTEXT)? as u32);
                return Ok(Vec::new());
            }
            "green" => {
                self.call.context = ContextId(0x8000_0000 + line.number::<u16>(CONTEXT)? as u32);
                return Ok(Vec::new());
            }
            "primary" => {
                self.call.context = ContextId(u32::from(self.call.device.0));
                return Ok(Vec::new());
            }
            verb if graphs::VERBS.contains(&verb) => self.of_graphs(verb, line)?,
            _ => return Err(line.wrong(CALLS)),
        };
        Ok(vec![self.operation(api, action)])
    }

    fn operation(&mut self, api: &str, action: Action) -> Operation {
        let api = self.names.intern(api);
        Operation {
            call: Call { api, ..self.call },
            action,
        }
    }

    fn fresh_handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        Handle(self.next_handle)
    }

    /// The handle of a new object: a fresh one, or that of an earlier object.
    fn handle(&mut self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        let Some(old) = line.peek().and_then(|word| word.strip_prefix("handle=")) else {
            return Ok(self.fresh_handle());
        };
        line.next += 1;
        match self.objects.get(old) {
            Some(
                &(Object::Stream(handle)
                | Object::Event(handle)
                | Object::Graph(handle)
                | Object::Exec(handle)
                | Object::Node(handle)),
            ) => Ok(handle),
            _ => Err(line.wrong("`handle=` with an object declared above")),
        }
    }

    fn stream_created(
        &mut self,
        line: &mut Line<'_>,
    ) -> Result<(&'static str, Action), ParseError> {
        let name = line.word("the stream's name")?;
        if matches!(name, "L" | "PT" | "device") {
            return Err(line.wrong("a stream's name other than `L`, `PT` and `device`"));
        }
        let expected = "`nonblocking` or `blocking`";
        let (api, blocking) = match line.word(expected)? {
            "nonblocking" => ("cudaStreamCreateWithFlags", false),
            "blocking" => ("cudaStreamCreate", true),
            _ => return Err(line.wrong(expected)),
        };
        let stream = self.handle(line)?;
        self.objects.insert(name.to_owned(), Object::Stream(stream));
        Ok((api, Action::StreamCreated { stream, blocking }))
    }

    fn object(&self, line: &mut Line<'_>) -> Result<Object, ParseError> {
        let expected = "a stream, event or pool declared above";
        let name = line.word(expected)?;
        self.objects
            .get(name)
            .copied()
            .ok_or_else(|| line.wrong(expected))
    }

    fn event(&self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        match self.objects.get(line.word(EVENT)?) {
            Some(&Object::Event(event)) => Ok(event),
            _ => Err(line.wrong(EVENT)),
        }
    }

    fn stream(&self, line: &mut Line<'_>) -> Result<StreamRef, ParseError> {
        match line.word(STREAM)? {
            "L" => Ok(StreamRef::Legacy),
            "PT" => Ok(StreamRef::PerThread),
            name => match self.objects.get(name) {
                Some(&Object::Stream(stream)) => Ok(StreamRef::Created(stream)),
                _ => Err(line.wrong(STREAM)),
            },
        }
    }

    fn known_complete(
        &self,
        verb: &str,
        line: &mut Line<'_>,
    ) -> Result<(&'static str, Action), ParseError> {
        let query = verb == "query";
        let name = line.peek().unwrap_or_default();
        if let Some(&Object::Event(event)) = self.objects.get(name) {
            line.next += 1;
            let api = if query {
                "cudaEventQuery"
            } else {
                "cudaEventSynchronize"
            };
            let polled = query;
            return Ok((api, Action::EventSynchronized { event, polled }));
        }
        if !matches!(name, "L" | "PT") && !self.objects.contains_key(name) {
            let expected = "a stream or event declared above, `L`, `PT` or `device`";
            line.word(expected)?;
            return Err(line.wrong(expected));
        }
        let stream = self.stream(line)?;
        let api = if query {
            "cudaStreamQuery"
        } else {
            "cudaStreamSynchronize"
        };
        let polled = query;
        Ok((api, Action::StreamSynchronized { stream, polled }))
    }

    /// `p = malloc…`
    fn allocation(&mut self, line: &mut Line<'_>) -> Result<Vec<Operation>, ParseError> {
        let name = line.word("a pointer's name")?;
        if name.contains(['+', '/', ':']) || name == "?" {
            return Err(line.wrong("a pointer's name without `+`, `/`, `:`"));
        }
        line.next += 1;
        let expected =
            "malloc_async, malloc, malloc_managed, malloc_host, map, import, pageable or pinned";
        let call = line.word(expected)?;
        let (api, kind, asked) = match call {
            "import" => (
                "cudaMemPoolImportPointer",
                Some(MemoryKind::StreamOrdered),
                HostMemory::Unasked,
            ),
            "malloc_async" => (
                "cudaMallocAsync",
                Some(MemoryKind::StreamOrdered),
                HostMemory::Unasked,
            ),
            "malloc" => ("cudaMalloc", Some(MemoryKind::Device), HostMemory::Unasked),
            "malloc_managed" => (
                "cudaMallocManaged",
                Some(MemoryKind::Managed),
                HostMemory::Unasked,
            ),
            "malloc_host" => (
                "cudaMallocHost",
                Some(MemoryKind::Pinned),
                HostMemory::Unasked,
            ),
            "map" => ("cuMemMap", Some(MemoryKind::Mapped), HostMemory::Unasked),
            "pageable" => ("", None, HostMemory::Pageable),
            "pinned" => ("", None, HostMemory::Pinned),
            _ => return Err(line.wrong(expected)),
        };
        let size: u64 = line.number("a size in bytes")?;
        if size > 1 << 40 {
            return Err(line.wrong("a size of at most 1 TiB"));
        }
        let (mut stream, mut pool) = (None, Handle::default());
        if call == "malloc_async" {
            stream = Some(self.stream(line)?);
            pool = self.pool(line)?;
        }
        let host = kind.is_none_or(MemoryKind::is_host);
        let address = if line.eat("at") {
            self.pointer(line)?.0
        } else {
            let next = if host {
                &mut self.next_host
            } else {
                &mut self.next_device
            };
            let address = *next;
            // A gap, so that the end of one block is not the start of another.
            *next += size.next_multiple_of(0x1000) + 0x1000;
            address
        };
        self.memory.insert(
            name.to_owned(),
            Memory {
                address,
                size,
                host,
                asked,
            },
        );
        let Some(kind) = kind else {
            return Ok(Vec::new());
        };
        Ok(vec![self.operation(
            api,
            Action::Allocated {
                address,
                size,
                kind,
                stream,
                pool,
            },
        )])
    }

    /// A pointer, what it points into, and the distance of its rows if it says one.
    fn pointer(&self, line: &mut Line<'_>) -> Result<(u64, Memory, Option<u64>), ParseError> {
        let word = line.word(POINTER)?;
        self.resolve(word).ok_or_else(|| line.wrong(POINTER))
    }

    fn resolve(&self, word: &str) -> Option<(u64, Memory, Option<u64>)> {
        let (word, pitch) = match word.split_once('/') {
            Some((word, pitch)) => (word, Some(pitch.parse().ok()?)),
            None => (word, None),
        };
        let (name, offset) = match word.split_once('+') {
            Some((name, offset)) => (name, offset.parse().ok()?),
            None => (word, 0),
        };
        let memory = *self.memory.get(name)?;
        Some((memory.address.checked_add(offset)?, memory, pitch))
    }

    /// `part 64 128`: so many bytes from there on.
    fn part(&self, address: u64, line: &mut Line<'_>) -> Result<Option<Region>, ParseError> {
        if !line.eat("part") {
            return Ok(None);
        }
        let start = address.saturating_add(line.number("an offset in bytes")?);
        let size = line.number("a size in bytes")?;
        Ok(Some(Region::linear(start, size)))
    }

    fn free(
        &mut self,
        api: &str,
        kind: FreeKind,
        line: &mut Line<'_>,
    ) -> Result<Vec<Operation>, ParseError> {
        let address = self.pointer(line)?.0;
        let stream = match kind {
            FreeKind::Async => Some(self.stream(line)?),
            _ => None,
        };
        let part = match kind {
            FreeKind::Libc => self.part(address, line)?,
            _ => None,
        };
        let begun = self.operation(
            api,
            Action::FreeBegun {
                address,
                kind,
                stream,
                part,
            },
        );
        if line.eat("begun") {
            return Ok(vec![begun]);
        }
        let ended = self.operation(
            api,
            Action::FreeEnded {
                outcome: outcome(line),
            },
        );
        Ok(vec![begun, ended])
    }

    fn launched(&mut self, line: &mut Line<'_>) -> Result<(&'static str, Action), ParseError> {
        let kernel = self.names.intern(line.word("the kernel's name")?);
        let stream = self.stream(line)?;
        let (pointers, layout_known) = self.parameters(line)?;
        Ok((
            "cudaLaunchKernel",
            Action::Launched {
                stream,
                kernel,
                pointers,
                layout_known,
            },
        ))
    }

    /// A kernel's parameters, to the line's end.
    fn parameters(&self, line: &mut Line<'_>) -> Result<graphs::Parameters, ParseError> {
        let mut pointers = SmallVec::new();
        let layout_known = !line.eat("?");
        while layout_known && line.peek().is_some() {
            let expected = "a pointer declared above, such as `p`, `read:p` or `struct:p+8`";
            let word = line.word(expected)?;
            let (mode, word) = match word.split_once(':') {
                None => (Mode::Write, word),
                Some(("read", word)) => (Mode::Read, word),
                Some(("update", word)) => (Mode::Update, word),
                Some(("struct", word)) => (Mode::Unknown, word),
                Some(("doubtful", word)) => (Mode::Doubtful, word),
                Some(_) => return Err(line.wrong(expected)),
            };
            let (word, used) = if let Some(word) = word.strip_suffix('<') {
                (word, Used::Before)
            } else if let Some(word) = word.strip_suffix('!') {
                (word, Used::Surely)
            } else {
                (word, Used::Perhaps)
            };
            let (word, shift) = match word.split_once('@') {
                Some((word, shift)) => (word, shift.parse().map_err(|_| line.wrong(expected))?),
                None => (word, 0),
            };
            match self.resolve(word) {
                Some((address, _, None)) => pointers.push(Pointer {
                    address,
                    mode,
                    shift,
                    used,
                    element: Element::default(),
                }),
                _ => return Err(line.wrong(expected)),
            }
        }
        Ok((pointers, layout_known))
    }

    fn copied(
        &self,
        stream: StreamRef,
        synchronous: bool,
        line: &mut Line<'_>,
    ) -> Result<Action, ParseError> {
        let (source, from, source_pitch) = self.pointer(line)?;
        if !line.eat("->") {
            line.word("`->`")?;
            return Err(line.wrong("`->`"));
        }
        let (target, to, target_pitch) = self.pointer(line)?;
        let (width, rows) = extent(line)?;
        let direction = match line.peek() {
            None => match (from.host, to.host) {
                (true, true) => Direction::HostToHost,
                (true, false) => Direction::HostToDevice,
                (false, true) => Direction::DeviceToHost,
                (false, false) => Direction::DeviceToDevice,
            },
            Some(word) => {
                line.next += 1;
                match word {
                    "h2h" => Direction::HostToHost,
                    "h2d" => Direction::HostToDevice,
                    "d2h" => Direction::DeviceToHost,
                    "d2d" => Direction::DeviceToDevice,
                    "default" => Direction::Inferred,
                    _ => return Err(line.wrong("h2d, d2h, d2d, h2h or default")),
                }
            }
        };
        Ok(Action::Copied {
            stream,
            to: Region::pitched(target, width, rows, target_pitch.unwrap_or(width)),
            from: Region::pitched(source, width, rows, source_pitch.unwrap_or(width)),
            direction,
            host: if from.host { from.asked } else { to.asked },
            synchronous,
        })
    }

    fn host_accessed(&mut self, line: &mut Line<'_>) -> Result<Vec<Operation>, ParseError> {
        let expected = "`reads` or `writes`";
        let (mode, instruction) = match line.word(expected)? {
            "reads" => (Mode::Read, HOST_READ),
            "writes" => (Mode::Write, HOST_WRITE),
            _ => return Err(line.wrong(expected)),
        };
        let (address, _, pitch) = self.pointer(line)?;
        let (width, rows) = extent(line)?;
        let api = match line.eat("in") {
            true => line.word("a call's name")?.to_owned(),
            false => instruction.to_owned(),
        };
        let mut through = SmallVec::new();
        if line.eat("through") {
            through.push(self.pointer(line)?.0);
            while line.peek().is_some() {
                through.push(self.pointer(line)?.0);
            }
        }
        let region = Region::pitched(address, width, rows, pitch.unwrap_or(width));
        let action = Action::HostAccessed {
            region,
            mode,
            through,
        };
        Ok(vec![self.operation(&api, action)])
    }

    fn filled(
        &self,
        stream: StreamRef,
        synchronous: bool,
        line: &mut Line<'_>,
    ) -> Result<Action, ParseError> {
        let (target, _, pitch) = self.pointer(line)?;
        let (width, rows) = extent(line)?;
        let to = Region::pitched(target, width, rows, pitch.unwrap_or(width));
        Ok(Action::Filled {
            stream,
            to,
            synchronous,
        })
    }
}

/// `1024`, or `16x8`: a row's width in bytes, and the number of rows.
fn extent(line: &mut Line<'_>) -> Result<(u64, u64), ParseError> {
    let expected = "a size in bytes, or `16x8` for 8 rows of 16 bytes";
    let word = line.word(expected)?;
    let (width, rows) = word.split_once('x').unwrap_or((word, "1"));
    match (width.parse(), rows.parse()) {
        (Ok(width), Ok(rows)) => Ok((width, rows)),
        _ => Err(line.wrong(expected)),
    }
}

fn outcome(line: &mut Line<'_>) -> Outcome {
    if line.eat("refused") {
        Outcome::Refused
    } else if line.eat("failed") {
        Outcome::Failed
    } else {
        Outcome::Succeeded
    }
}

/// The stream of a call that takes none: legacy, unless the line says per-thread.
fn default_stream(line: &mut Line<'_>) -> StreamRef {
    if line.eat("PT") {
        StreamRef::PerThread
    } else {
        line.eat("L");
        StreamRef::Legacy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(text: &str) -> Vec<Action> {
        let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}"));
        program
            .operations()
            .map(|operation| operation.action.clone())
            .collect()
    }

    fn last(text: &str) -> Action {
        actions(text).pop().expect("an operation")
    }

    fn fault(text: &str) -> String {
        Program::parse(text).expect_err("a fault").to_string()
    }

    #[test]
    fn the_program_of_the_documentation_is_one() {
        let program = Program::parse(
            "# A block is used on another stream, with nothing in between.\n\
             stream S1 nonblocking\n\
             stream S2 nonblocking\n\
             p = malloc_async 1024 S1\n\
             \n\
             launch fill S1 p\n\
             launch saxpy S2 read:p          => SC101\n\
             free_async p S1                 => SC103   # and why\n",
        )
        .unwrap();
        let api = |step: &Step| program.names.text(step.operations[0].call.api).to_owned();
        let apis: Vec<_> = program.steps.iter().map(api).collect();
        assert_eq!(
            apis,
            [
                "cudaStreamCreateWithFlags",
                "cudaStreamCreateWithFlags",
                "cudaMallocAsync",
                "cudaLaunchKernel",
                "cudaLaunchKernel",
                "cudaFreeAsync"
            ]
        );
        let step = program.step_at(StackId(8)).unwrap();
        assert_eq!(step.text, "free_async p S1");
        assert_eq!(step.expected, ["SC103"]);
        assert_eq!(step.operations.len(), 2);
        assert_eq!(
            step.operations[1].action,
            Action::FreeEnded {
                outcome: Outcome::Succeeded
            }
        );
        assert!(program.step_at(StackId(1)).is_none());
        assert!(
            program
                .operations()
                .all(|operation| operation.call.thread == ThreadId(1))
        );
    }

    #[test]
    fn handles_and_addresses_are_fresh_unless_reused() {
        let actions = actions(
            "stream S1 blocking\n\
             destroy S1\n\
             stream S2 nonblocking handle=S1\n\
             p = malloc_async 16 S2\n\
             q = malloc_async 16 S2\n\
             r = malloc_async 16 S2 at p+8",
        );
        let Action::StreamCreated {
            stream: first,
            blocking: true,
        } = actions[0]
        else {
            panic!()
        };
        assert_eq!(
            actions[2],
            Action::StreamCreated {
                stream: first,
                blocking: false
            }
        );
        let address = |place: usize| match actions[place] {
            Action::Allocated { address, .. } => address,
            _ => panic!("no allocation"),
        };
        assert!(address(4) > address(3) + 16);
        assert_eq!(address(5), address(3) + 8);
    }

    #[test]
    fn a_copy_knows_its_direction_and_its_host_memory() {
        let copied = |line: &str| {
            let declared = "p = malloc 64\nh = malloc_host 64\nm = pageable 64\nx = pinned 64\n";
            match last(&format!("{declared}{line}")) {
                Action::Copied {
                    direction,
                    host,
                    synchronous,
                    stream,
                    ..
                } => (direction, host, synchronous, stream),
                other => panic!("{other:?}"),
            }
        };
        use Direction::*;
        let legacy = StreamRef::Legacy;
        assert_eq!(
            copied("copy L h -> p 64"),
            (HostToDevice, HostMemory::Unasked, false, legacy)
        );
        assert_eq!(
            copied("copy L p -> m 64"),
            (DeviceToHost, HostMemory::Pageable, false, legacy)
        );
        assert_eq!(
            copied("copy_sync x -> p 64"),
            (HostToDevice, HostMemory::Pinned, true, legacy)
        );
        assert_eq!(copied("copy_sync h -> m 8 default").0, Inferred);
        assert_eq!(copied("copy_sync PT p -> p+8 8").3, StreamRef::PerThread);
    }

    #[test]
    fn rows_have_a_pitch() {
        let Action::Filled { to, .. } = last("p = malloc 640\nfill_sync p+16/64 16x8") else {
            panic!()
        };
        assert_eq!((to.width, to.rows, to.pitch), (16, 8, 64));
        let Action::Filled { to, .. } = last("p = malloc 640\nfill L p 16x8") else {
            panic!()
        };
        assert_eq!((to.width, to.rows), (128, 1));
    }

    #[test]
    fn parameters_have_modes() {
        let Action::Launched {
            pointers,
            layout_known: true,
            ..
        } = last("p = malloc 64\nlaunch k PT p read:p+4 struct:p")
        else {
            panic!()
        };
        let modes: Vec<_> = pointers.iter().map(|pointer| pointer.mode).collect();
        assert_eq!(modes, [Mode::Write, Mode::Read, Mode::Unknown]);
        assert_eq!(pointers[1].address, pointers[0].address + 4);
        assert!(matches!(
            last("launch k L ?"),
            Action::Launched {
                layout_known: false,
                ..
            }
        ));
    }

    #[test]
    fn the_cpu_touches_memory_by_itself_or_in_a_call() {
        let text =
            "h = malloc_host 4096\nhost reads h+8 4\nhost writes h/64 16x8 in recv through h h+64";
        let actions = actions(text);
        let Action::HostAccessed {
            region,
            mode: Mode::Read,
            ref through,
        } = actions[1]
        else {
            panic!()
        };
        assert!(through.is_empty());
        let host = region.address - 8;
        assert_eq!(region, Region::linear(host + 8, 4));
        assert_eq!(
            actions[2],
            Action::HostAccessed {
                region: Region::pitched(host, 16, 8, 64),
                mode: Mode::Write,
                through: SmallVec::from_slice(&[host, host + 64]),
            }
        );
        let program = Program::parse(text).unwrap();
        let apis = program
            .operations()
            .map(|op| program.names.text(op.call.api));
        assert_eq!(
            apis.collect::<Vec<_>>(),
            ["cudaMallocHost", HOST_READ, "recv"]
        );
        assert_eq!(
            fault("h = malloc_host 8\nhost touches h 8"),
            "2:6: expected `reads` or `writes`, found `touches`"
        );
    }

    #[test]
    fn a_free_may_fail_or_last() {
        let text = "p = malloc 64\nfree p refused\nfree p begun\nthread 2\nsync device\nthread 1\nended failed";
        let actions = actions(text);
        assert_eq!(
            actions[2],
            Action::FreeEnded {
                outcome: Outcome::Refused
            }
        );
        assert!(matches!(actions[3], Action::FreeBegun { .. }));
        assert_eq!(
            actions[5],
            Action::FreeEnded {
                outcome: Outcome::Failed
            }
        );
        let program = Program::parse(text).unwrap();
        let threads: Vec<_> = program.operations().map(|op| op.call.thread.0).collect();
        assert_eq!(threads, [1, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn host_functions_events_and_devices_have_their_lines() {
        let actions = actions(
            "event E\nrecord E L\nquery E\nsync PT\nquery L\ndestroy E\n\
             hostfunc L f\nhostfunc_runs f\nname L main\nblind graphs cudaGraphLaunch",
        );
        assert!(matches!(actions[2], Action::EventSynchronized { .. }));
        assert_eq!(
            actions[3],
            Action::StreamSynchronized {
                stream: StreamRef::PerThread,
                polled: false
            }
        );
        let (
            Action::HostFunctionEnqueued { token, .. },
            Action::HostFunctionStarted { token: ran },
        ) = (&actions[6], &actions[7])
        else {
            panic!()
        };
        assert_eq!(token, ran);
        let program = Program::parse("device 1\nsync device").unwrap();
        let call = program.operations().next().unwrap().call;
        assert_eq!((call.device, call.context), (DeviceId(1), ContextId(1)));
    }

    #[test]
    fn faults_name_line_column_and_what_was_expected() {
        let cases = [
            ("sync device\nlauch k L", "2:1: expected a call (stream, "),
            (
                "p = malloc 64\n  launch k S9 p",
                "2:12: expected a stream declared above, `L` or `PT`, found `S9`",
            ),
            (
                "record E L",
                "1:8: expected an event declared above, found `E`",
            ),
            (
                "p = malloc",
                "1:11: expected a size in bytes, found the line's end",
            ),
            (
                "p = malloc x # x",
                "1:12: expected a size in bytes, found `x`",
            ),
            ("p = calloc 8", "1:5: expected malloc_async, malloc,"),
            ("p = malloc 8 L", "1:14: expected the line's end, found `L`"),
            (
                "stream S1",
                "1:10: expected `nonblocking` or `blocking`, found the line's end",
            ),
            (
                "stream L blocking",
                "1:8: expected a stream's name other than",
            ),
            ("free q", "1:6: expected a pointer declared above"),
            (
                "sync Q",
                "1:6: expected a stream or event declared above, `L`, `PT` or `device`, found `Q`",
            ),
            (
                "p = malloc 8\ncopy L p p 8",
                "2:10: expected `->`, found `p`",
            ),
            (
                "p = malloc 8\nfill L p 8x",
                "2:10: expected a size in bytes, or `16x8`",
            ),
            (
                "p = malloc 8\nlaunch k L write:p",
                "2:12: expected a pointer declared above, such as",
            ),
            ("é = malloc 8\nlaunch é L é=", "2:12: expected a pointer"),
            ("sync device =>", "1:12: expected rule codes after `=>`"),
            ("=> SC101", "1:1: expected a call before `=>`"),
            ("thread 2 => SC101", "1:1: this line is no call"),
            (
                "stream S blocking handle=T",
                "1:19: expected `handle=` with an object",
            ),
        ];
        for (text, message) in cases {
            let fault = fault(text);
            assert!(fault.starts_with(message), "{text:?}: {fault}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_program_or_a_fault(text in "([a-z_]{1,13}|[SEp]1?|[0-9]{1,20}|[ =>+/:#?x\n]|malloc |launch )*") {
            drop(Program::parse(&text));
        }
    }
}
