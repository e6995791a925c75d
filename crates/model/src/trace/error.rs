//! Why a trace can't be read, or not to its end.

use std::io;

/// What is wrong with a trace. Each message is one line that names the file, the
/// place and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The bytes are no trace at all.
    #[error(
        "{name}: not a streamcheck trace (the first line is not `streamcheck trace …`); record one with `streamcheck run --trace FILE`"
    )]
    NotATrace {
        /// The file.
        name: String,
    },
    /// There is nothing in it.
    #[error("{name}: empty: the process ended before it wrote anything")]
    Empty {
        /// The file.
        name: String,
    },
    /// Another version of the format.
    #[error(
        "{name}: trace format {found}, and this streamcheck reads format {known}; replay it with the streamcheck that recorded it"
    )]
    OtherVersion {
        /// The file.
        name: String,
        /// Its format version.
        found: String,
        /// The version read here.
        known: u32,
    },
    /// The header can't be read.
    #[error("{name}: the header is damaged ({why}); record the trace again")]
    Header {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The bytes end too early.
    #[error(
        "{name}: cut off at byte {offset}; the {records} records before it were used: copy the file again, or record it again"
    )]
    Truncated {
        /// The file.
        name: String,
        /// Where it ends.
        offset: u64,
        /// Whole records before it.
        records: u64,
    },
    /// The bytes are not what was written.
    #[error(
        "{name}: damaged at byte {offset} ({why}); the {records} records before it were used: copy the file again, or record it again"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Where what is damaged begins.
        offset: u64,
        /// What is wrong.
        why: String,
        /// Whole records before it.
        records: u64,
    },
    /// Reading failed.
    #[error("{name}: cannot be read: {source}")]
    Io {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
}
