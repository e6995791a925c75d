//! The documentation, as far as it is made and checked by a program.

pub mod commands;
pub mod generated;
pub mod links;
pub mod pages;
pub mod reader;

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, anyhow};
use mdbook_driver::MDBook;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Builds the book from `docs` into the folder `to`, and returns what mdBook warned of.
///
/// # Errors
/// If there is no book, or it cannot be written.
pub fn build(docs: &Path, to: &Path) -> Result<Vec<String>> {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Warnings(Arc::clone(&warnings)));
    tracing::subscriber::with_default(subscriber, || {
        let mut book = MDBook::load(docs).map_err(|error| anyhow!("{error:#}"))?;
        book.config.build.build_dir = to.to_path_buf();
        book.build().map_err(|error| anyhow!("{error:#}"))
    })
    .with_context(|| format!("build the book of {}", docs.display()))?;
    let warnings = warnings.lock().map_err(|_| anyhow!("mdBook panicked"))?;
    Ok(warnings.clone())
}

/// Keeps what is worse than news.
struct Warnings(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut text = Text(event.metadata().target().to_owned());
        event.record(&mut text);
        if let Ok(mut warnings) = self.0.lock() {
            warnings.push(text.0);
        }
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}
