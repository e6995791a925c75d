//! What a trace holds.

use serde::{Deserialize, Serialize};

use crate::{NameId, Operation, StackId};

/// One thing that a trace says.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The text of a name that later operations use.
    Name {
        /// Its number.
        id: NameId,
        /// Its text.
        text: String,
    },
    /// A piece of code in the recording process.
    Module(Module),
    /// A host call stack that later operations use.
    Stack {
        /// Its number.
        id: StackId,
        /// Return addresses, the innermost first.
        addresses: Vec<u64>,
    },
    /// What a stack means, as the recorder's own symbolization found it. Written
    /// for the stacks of findings, so that a replay elsewhere shows source lines.
    Frames {
        /// The stack.
        stack: StackId,
        /// Its frames, the innermost first, inlined ones included.
        frames: Vec<Frame>,
    },
    /// Something that happened.
    Operation(Operation),
    /// The trace was ended in order.
    End(Counts),
    /// The writer had to stop, and the process went on.
    Stopped {
        /// What the trace holds.
        counts: Counts,
        /// Why.
        reason: Reason,
    },
}

/// Why a writer stopped before its process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The trace is as long as it may be.
    Limit,
    /// The file took no more.
    Unwritable,
}

/// A file mapped into the recording process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The offset in the file of `start`, in bytes.
    pub offset: u64,
    /// The file.
    pub path: String,
    /// Its GNU build id, in hexadecimal.
    pub build_id: Option<String>,
}

/// One frame of a symbolized stack. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, demangled.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The module's file.
    pub module: Option<String>,
    /// The offset of the return address in the module.
    pub offset: Option<u64>,
}

/// What a finished trace holds, for checking it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Names.
    pub names: u64,
    /// Stacks.
    pub stacks: u64,
}

/// The header: who wrote the trace, about which process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The tool that wrote it.
    pub tool: Tool,
    /// The recorded process.
    pub process: ProcessFacts,
    /// When recording began, in milliseconds since 1970 UTC.
    pub started_ms: u64,
}

/// A tool's name and version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Facts about the recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Its process id.
    pub pid: u32,
    /// Its executable.
    pub exe: String,
    /// Its arguments.
    pub argv: Vec<String>,
    /// The host that it ran on.
    pub host: String,
    /// Its rank in a distributed job.
    pub rank: Option<u32>,
}

impl Header {
    /// A header by this version of streamcheck, at this moment.
    #[must_use]
    pub fn new(process: ProcessFacts) -> Self {
        Self {
            tool: Tool {
                name: "streamcheck".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            process,
            started_ms: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(0)),
        }
    }
}
