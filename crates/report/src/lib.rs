//! What becomes of a finding: text for a terminal, a JSON report, a verdict.
//!
//! This code runs inside other people's processes as well as in the
//! `streamcheck` command. It prints nothing, changes no environment, and turns
//! every failure into a [`Problem`] for its caller to tell.

pub mod baseline;
mod format;
mod frameworks;
mod gate;
mod github;
mod html;
pub mod json;
mod junit;
mod known;
mod lanes;
pub mod output;
mod places;
mod problem;
mod process;
mod reporter;
mod sarif;
mod settings;
mod sites;
pub mod source;
pub mod story;
pub mod suppressions;
mod symbols;
pub mod terminal;
pub mod text;

pub use format::{Context, Format};
pub use gate::Gate;
pub use github::nothing_checked;
pub use problem::Problem;
pub use process::Process;
pub use reporter::{Added, Reporter, verdict};
pub use settings::{
    ColorChoice, FailOn, OPTIONS, OptionSpec, PathTemplate, RESERVED_VARIABLES, Settings, Stacks,
};
pub use symbols::{DebugInfo, Frame, Module, Symbolizer, fill_build_ids, modules_of_this_process};

/// The pages of the rules, on the web; a rule's page is `SCnnn.html` below it.
pub const RULES_URL: &str = "https://streamcheck.github.io/streamcheck/rules";

/// The address of a rule's page.
#[must_use]
pub fn rule_url(code: &str) -> String {
    format!("{RULES_URL}/{code}.html")
}
