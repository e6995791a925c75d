//! The tool's own log: what it did and why, for whoever asks with the option `log`.
//!
//! The subscriber and all that it registers lie inside this library, which exports
//! none of it: a program with a `tracing` of its own has another. Each event is
//! one `write`. Events are made where something is found out or decided, never for
//! an operation; a filter that wants none of them costs one comparison there.

use core::fmt::{Debug, Write as _};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;

use crate::stderr;

static OPEN: AtomicBool = AtomicBool::new(false);

/// Lets events through that `filter` names: a level, or levels for targets. The
/// first filter of a process stays, in its forked children too.
pub(crate) fn open(filter: &str) {
    if OPEN.swap(true, Relaxed) {
        return;
    }
    let plain: String = filter.chars().filter(|c| !c.is_whitespace()).collect();
    // The settings have checked it already.
    let filter = plain
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    // Only ever set here, so it cannot fail.
    let _ = tracing::subscriber::set_global_default(Log(filter));
}

/// Whether events go anywhere yet.
pub(crate) fn is_open() -> bool {
    OPEN.load(Relaxed)
}

struct Log(Targets);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.0.would_enable(metadata.target(), metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0
            .iter()
            .map(|(_, level)| level)
            .chain(self.0.default_level())
            .max()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line {
            message: String::new(),
            fields: String::new(),
        };
        event.record(&mut line);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        stderr::line(&format!("{level}: {}{}", line.message, line.fields));
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event's text, and its fields as ` name=value`.
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
