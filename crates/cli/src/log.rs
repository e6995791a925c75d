//! The command's own log, on standard error beside that of the processes it runs.

use std::fmt;
use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Lets events through that `filter` names: a level, or levels for targets.
pub(crate) fn open(filter: &str) {
    let plain: String = filter.chars().filter(|c| !c.is_whitespace()).collect();
    // The settings have checked it already.
    let filter = plain
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Marked)
        .with_ansi(false)
        .with_writer(io::stderr);
    // Fails only where a log is open already, which then stays.
    drop(
        tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .try_init(),
    );
}

/// `streamcheck: level: text name=value`.
struct Marked;

impl<S, N> FormatEvent<S, N> for Marked
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, "streamcheck: {level}: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
