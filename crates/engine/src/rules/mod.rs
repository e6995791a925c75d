//! The rules: one declaration each, one file each.
//!
//! A rule's code, name, level and summary are declared here and nowhere else;
//! its page is `docs/rules/SCnnn.md`. The list, the command line, the reports and
//! the documentation all come from [`RULES`].

use std::fmt;
use std::str::FromStr;

use crate::memory::Allocation;
use crate::view::View;
use violation::{Free, Text, Use, Violation};

pub(crate) mod sc101_use_before_alloc;
pub(crate) mod sc102_use_after_free;
pub(crate) mod sc103_free_in_flight;
pub(crate) mod sc104_free_before_alloc;
pub(crate) mod sc105_reuse_race;
pub(crate) mod sc106_invalid_free;
pub(crate) mod sc107_host_buffer_released_in_flight;
pub(crate) mod sc108_host_access_in_flight;
pub(crate) mod sc109_data_race;
pub(crate) mod sc110_graph_lifetime;
pub(crate) mod sc111_leaked_allocation;
pub(crate) mod sc112_wait_on_unrecorded_event;
pub(crate) mod sc201_pageable_async_copy;
pub(crate) mod sc202_default_stream_serialization;
pub(crate) mod sc203_implicit_sync_reliance;
pub(crate) mod sc204_redundant_sync;
pub(crate) mod violation;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Not looked for.
    Off,
    /// Reported.
    Warning,
    /// Reported, and fails the gate.
    Error,
}

impl Level {
    /// Its name in options and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Off, Self::Warning, Self::Error]
            .into_iter()
            .find(|level| level.label() == text)
            .ok_or(())
    }
}

/// A rule as declared.
#[derive(Debug)]
pub struct Rule {
    /// Its code, which never changes meaning.
    pub code: RuleCode,
    /// Its name.
    pub name: &'static str,
    /// Its level unless configured otherwise.
    pub level: Level,
    /// What it finds, in one line.
    pub summary: &'static str,
    /// Its page, in Markdown.
    pub page: &'static str,
}

macro_rules! rules {
    ($($code:ident $name:literal $level:ident $module:ident $summary:literal;)*) => {
        /// The codes, in order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RuleCode {
            $(#[doc = $summary] $code,)*
        }

        /// Every rule, in the order of the codes.
        pub static RULES: &[Rule] = &[$(Rule {
            code: RuleCode::$code,
            name: $name,
            level: Level::$level,
            summary: $summary,
            page: include_str!(concat!("../../../../docs/rules/", stringify!($code), ".md")),
        },)*];

        /// Puts a violation into words.
        pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
            match violation.rule {
                $(RuleCode::$code => $module::describe(violation, view),)*
            }
        }
    };
}

rules! {
    SC101 "use-before-alloc" Error sc101_use_before_alloc "a stream uses a stream-ordered allocation whose allocation does not happen before the use";
    SC102 "use-after-free" Error sc102_use_after_free "work issued after the free call returned uses the memory, whatever the streams";
    SC103 "free-in-flight" Error sc103_free_in_flight "the free is not ordered after a use";
    SC104 "free-before-alloc" Error sc104_free_before_alloc "the free is not ordered after the allocation itself";
    SC105 "reuse-race" Error sc105_reuse_race "a stale or early use reaches the new owner of an address that the pool had recycled";
    SC106 "invalid-free" Error sc106_invalid_free "a double free, a pointer that is no allocation's base, or the wrong kind of free";
    SC107 "host-buffer-released-in-flight" Error sc107_host_buffer_released_in_flight "pinned or registered host memory is released while a copy or kernel uses it";
    SC108 "host-access-in-flight" Error sc108_host_access_in_flight "the CPU reads or writes memory that a pending copy or kernel writes or reads (guard mode)";
    SC109 "data-race" Error sc109_data_race "two unordered accesses to the same bytes, at least one a write";
    SC110 "graph-lifetime" Error sc110_graph_lifetime "a graph is launched whose nodes use memory that was freed or released since they were made";
    SC111 "leaked-allocation" Off sc111_leaked_allocation "stream-ordered memory is never freed, at exit, at a reset or when its pool is destroyed";
    SC112 "wait-on-unrecorded-event" Warning sc112_wait_on_unrecorded_event "a stream waits on an event that has no record, which is a no-op";
    SC201 "pageable-async-copy" Warning sc201_pageable_async_copy "an async copy with pageable host memory is staged, and does not overlap";
    SC202 "default-stream-serialization" Warning sc202_default_stream_serialization "work on the legacy default stream serializes with pending work of other streams";
    SC203 "implicit-sync-reliance" Warning sc203_implicit_sync_reliance "only a wait that NVIDIA does not promise makes the order right";
    SC204 "redundant-sync" Off sc204_redundant_sync "the ordering that a wait or synchronize adds already held";
}

impl RuleCode {
    /// Its declaration.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }
}

impl fmt::Display for RuleCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for RuleCode {
    type Err = ();

    /// Takes a code (`SC101`) or a name (`use-before-alloc`).
    fn from_str(text: &str) -> Result<Self, ()> {
        RULES
            .iter()
            .find(|rule| rule.code.to_string().eq_ignore_ascii_case(text) || rule.name == text)
            .map(|rule| rule.code)
            .ok_or(())
    }
}

/// The levels in force in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels(Vec<Level>);

impl Default for Levels {
    fn default() -> Self {
        Self(RULES.iter().map(|rule| rule.level).collect())
    }
}

impl Levels {
    /// The level of a rule.
    #[must_use]
    pub fn of(&self, code: RuleCode) -> Level {
        self.0[code as usize]
    }

    /// Sets the level of a rule.
    pub fn set(&mut self, code: RuleCode, level: Level) {
        self.0[code as usize] = level;
    }
}

/// A use's lifetime violation, if any: the memory is not, or not yet, or no longer
/// the application's on that stream.
pub(crate) fn check_lifetime(used: &Use<'_>, allocation: &Allocation) -> Option<Violation> {
    sc101_use_before_alloc::check(used, allocation)
        .or_else(|| sc105_reuse_race::check(used, allocation))
}

/// What is wrong with a free of the right kind.
pub(crate) fn check_free(free: &Free<'_>, allocation: &Allocation, found: &mut Vec<Violation>) {
    sc103_free_in_flight::check(free, allocation, found);
    sc104_free_before_alloc::check(free, allocation, found);
    sc107_host_buffer_released_in_flight::check(free, allocation, found);
}

/// Judges a free, and if nothing is wrong also without the waits that nobody promises.
pub(crate) fn judge_free(free: Free<'_>, allocation: &Allocation, found: &mut Vec<Violation>) {
    let first = found.len();
    check_free(&free, allocation, found);
    if found.len() == first && free.order.leans() {
        let strict = Free {
            strict: true,
            ..free
        };
        check_free(&strict, allocation, found);
        for violation in &mut found[first..] {
            *violation = violation.leaning();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_find_their_rule() {
        for (place, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.code as usize, place);
            assert_eq!(rule.code.to_string().parse(), Ok(rule.code));
            assert_eq!(rule.name.parse(), Ok(rule.code));
        }
        assert_eq!("SC999".parse::<RuleCode>(), Err(()));
    }

    #[test]
    fn every_page_opens_with_its_rule() {
        for rule in RULES {
            let title = format!("# {}: {}\n", rule.code, rule.name);
            assert!(
                rule.page.starts_with(&title),
                "docs/rules/{}.md does not open with {title:?}",
                rule.code
            );
            for part in ["## Why", "## Example", "## Fix"] {
                assert!(
                    rule.page.contains(part),
                    "docs/rules/{}.md has no {part:?}",
                    rule.code
                );
            }
        }
    }
}
