//! The rules: one declaration each, one file each.
//!
//! A rule's code, name, level and summary are declared here and nowhere else;
//! its page is `docs/rules/SCnnn.md`. The list, the command line, the reports and
//! the documentation all come from [`RULES`].

use std::fmt;
use std::str::FromStr;

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
    ($($code:ident $name:literal $level:ident $summary:literal;)*) => {
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
    };
}

rules! {
    SC101 "use-before-alloc" Error "a stream uses a stream-ordered allocation whose allocation does not happen before the use";
    SC102 "use-after-free" Error "work issued after the free call returned uses the memory, whatever the streams";
    SC103 "free-in-flight" Error "the free is not ordered after a use";
    SC104 "free-before-alloc" Error "the free is not ordered after the allocation itself";
    SC105 "reuse-race" Error "a stale or early use reaches the new owner of an address that the pool had recycled";
    SC106 "invalid-free" Error "a double free, a pointer that is no allocation's base, or the wrong kind of free";
    SC107 "host-buffer-released-in-flight" Error "pinned or registered host memory is released while a copy or kernel uses it";
    SC109 "data-race" Error "two unordered accesses to the same bytes, at least one a write";
    SC112 "wait-on-unrecorded-event" Warning "a stream waits on an event that has no record, which is a no-op";
    SC201 "pageable-async-copy" Warning "an async copy with pageable host memory is staged, and does not overlap";
    SC202 "default-stream-serialization" Warning "work on the legacy default stream serializes with pending work of other streams";
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
