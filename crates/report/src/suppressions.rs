//! Findings that somebody has looked at and accepts, with the reason.
//!
//! ```toml
//! [[suppress]]
//! rule = "SC103"
//! function = "ncclKernel*"      # any frame or kernel name
//! file = "third_party/**"
//! reason = "NCCL orders this through its own proxy thread"
//! expires = "2027-03-01"        # the last day on which it applies
//! ```
//!
//! An entry matches if all that it gives match; it has to give a rule, a function or a
//! file, and a reason.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use streamcheck_engine::RuleCode;
use toml::Spanned;

use crate::Problem;
use crate::json::{Finding, plain};
use crate::story::bare_name;
use crate::text::clean;

/// A larger file was not written by a person.
const LARGEST_FILE: u64 = 16 << 20;

/// The suppressions of a run.
#[derive(Debug, Default)]
pub struct Suppressions {
    file: String,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    line: usize,
    rule: Option<RuleCode>,
    function: Option<GlobMatcher>,
    source: Option<GlobMatcher>,
    reason: String,
    expires: Option<Date>,
    expired: bool,
    used: bool,
}

/// Year, month, day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(u16, u8, u8);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    suppress: Vec<Spanned<RawEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    rule: Option<String>,
    function: Option<String>,
    file: Option<String>,
    reason: Option<String>,
    expires: Option<toml::Value>,
}

impl Suppressions {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A sentence for each thing wrong in it; each names the file.
    pub fn read(path: &Path) -> Result<Self, Vec<Problem>> {
        let shown = path.display().to_string();
        let unreadable = |why: &str| vec![Problem::new(format!("{shown} cannot be read: {why}"))];
        let about = fs::metadata(path).map_err(|error| unreadable(&plain(&error)))?;
        if !about.is_file() || about.len() > LARGEST_FILE {
            return Err(unreadable("it is no file of suppressions"));
        }
        let bytes = fs::read(path).map_err(|error| unreadable(&plain(&error)))?;
        let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?;
        Self::parse(&shown, &text, Date::today())
    }

    fn parse(file: &str, text: &str, today: Date) -> Result<Self, Vec<Problem>> {
        let line_at = |place: usize| text.get(..place).map_or(1, |t| t.matches('\n').count() + 1);
        let raw: RawFile = toml::from_str(text).map_err(|error| {
            let line = line_at(error.span().map_or(0, |span| span.start));
            let message = error.message().replace('\n', ", ");
            vec![Problem::new(format!("{file}: line {line}: {message}"))]
        })?;
        let mut problems = Vec::new();
        let mut entries = Vec::new();
        for raw in raw.suppress {
            let line = line_at(raw.span().start);
            match Entry::new(raw.into_inner(), line, today) {
                Ok(entry) => entries.push(entry),
                Err(wrong) => problems.extend(
                    wrong
                        .into_iter()
                        .map(|why| Problem::new(format!("{file}: the entry at line {line} {why}"))),
                ),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            file: file.to_owned(),
            entries,
        })
    }

    /// The reason for which a finding is suppressed, if it is.
    pub fn reason(&mut self, finding: &Finding) -> Option<String> {
        let mut reason = None;
        // All that match count as used, though the first one's reason is given.
        for entry in &mut self.entries {
            if !entry.expired && entry.matches(finding) {
                entry.used = true;
                reason.get_or_insert_with(|| entry.reason.clone());
            }
        }
        reason
    }

    /// Counts the entries as used that apply to a finding of a report, or that did when
    /// its stacks were whole.
    pub fn recognize(&mut self, finding: &Finding) {
        for entry in &mut self.entries {
            if !entry.expired
                && (finding.suppressed.as_deref() == Some(&*entry.reason) || entry.matches(finding))
            {
                entry.used = true;
            }
        }
    }

    /// A line for each entry that was not used, or no longer applies.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.entries
            .iter()
            .filter_map(|entry| {
                let what = format!("the suppression at {}:{}", self.file, entry.line);
                let reason = clean(&entry.reason, 200);
                match entry.expires {
                    Some(Date(year, month, day)) if entry.expired => Some(format!(
                        "{what} expired on {year:04}-{month:02}-{day:02} and no longer applies ({reason})"
                    )),
                    _ if !entry.used => Some(format!("{what} matched nothing ({reason})")),
                    _ => None,
                }
            })
            .collect()
    }
}

impl Entry {
    fn new(raw: RawEntry, line: usize, today: Date) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let rule = raw.rule.and_then(|rule| match rule.parse() {
            Ok(rule) => Some(rule),
            Err(()) => {
                wrong.push(format!(
                    "names the rule {rule:?}, which this version does not have"
                ));
                None
            }
        });
        let function = glob(raw.function, "function", &mut wrong);
        let source = glob(raw.file.map(|file| anywhere(&file)), "file", &mut wrong);
        let reason = raw.reason.unwrap_or_default().trim().to_owned();
        if reason.is_empty() {
            wrong.push("gives no reason".to_owned());
        }
        if wrong.is_empty() && rule.is_none() && function.is_none() && source.is_none() {
            wrong.push("gives neither a rule nor a function nor a file".to_owned());
        }
        let expires = raw.expires.and_then(|value| {
            let text = match &value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Datetime(date) => date.to_string(),
                other => other.type_str().to_owned(),
            };
            let date = Date::parse(&text);
            if date.is_none() {
                wrong.push(format!(
                    "expires on {text:?}, which is no date such as 2027-03-01"
                ));
            }
            date
        });
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self {
            line,
            rule,
            function,
            source,
            reason,
            expires,
            expired: expires.is_some_and(|date| date < today),
            used: false,
        })
    }

    fn matches(&self, finding: &Finding) -> bool {
        let frames = || finding.events.iter().flat_map(|event| &event.stack);
        let kernels = finding
            .events
            .iter()
            .filter_map(|event| event.kernel.as_deref());
        let functions = || frames().filter_map(|frame| frame.function.as_deref());
        let named =
            |glob: &GlobMatcher, name: &str| glob.is_match(name) || glob.is_match(bare_name(name));
        self.rule
            .is_none_or(|rule| rule.to_string() == finding.rule)
            && self
                .function
                .as_ref()
                .is_none_or(|glob| functions().chain(kernels).any(|name| named(glob, name)))
            && self.source.as_ref().is_none_or(|glob| {
                frames()
                    .filter_map(|frame| frame.file.as_deref())
                    .any(|file| glob.is_match(file))
            })
    }
}

/// A relative pattern matches below any directory: builds differ in where they stand.
fn anywhere(pattern: &str) -> String {
    if pattern.starts_with('/') || pattern.starts_with("**/") {
        pattern.to_owned()
    } else {
        format!("**/{}", pattern.trim_start_matches("./"))
    }
}

fn glob(pattern: Option<String>, key: &str, wrong: &mut Vec<String>) -> Option<GlobMatcher> {
    let pattern = pattern?;
    // In a path, `*` stays within a directory; in a name there are none.
    let built = GlobBuilder::new(&pattern)
        .literal_separator(key == "file")
        .build();
    match built {
        Ok(glob) => Some(glob.compile_matcher()),
        Err(error) => {
            wrong.push(format!("has a {key} that is no glob: {error}"));
            None
        }
    }
}

impl Date {
    /// Today, in UTC.
    #[must_use]
    pub fn today() -> Self {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self::after_epoch(seconds / 86_400)
    }

    /// The date so many days after 1970-01-01 (Howard Hinnant's civil_from_days).
    fn after_epoch(days: u64) -> Self {
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        Self(year as u16, month as u8, day as u8)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part = parts.next()?;
            let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u16>().ok()).flatten()
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        let fits = (1..=12).contains(&month) && (1..=31).contains(&day);
        (fits && parts.next().is_none()).then_some(Self(year, month as u8, day as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tests::{finding, frame};

    const TODAY: Date = Date(2026, 12, 1);

    fn parse(text: &str) -> Result<Suppressions, Vec<String>> {
        Suppressions::parse("s.toml", text, TODAY)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn sample() -> Finding {
        let stacks = vec![
            vec![frame("make(int)", "/home/a/third_party/x/y.cu", 3)],
            vec![frame("void ns::run<float>(float*)", "/home/a/src/z.cu", 4)],
        ];
        Finding::new(finding(), stacks)
    }

    fn suppresses(entry: &str) -> bool {
        let text = format!("[[suppress]]\nreason = 'r'\n{entry}");
        let reason = parse(&text).unwrap().reason(&sample());
        assert!(reason.is_none() || reason.as_deref() == Some("r"));
        reason.is_some()
    }

    #[test]
    fn all_that_an_entry_gives_must_match() {
        for entry in [
            "rule = 'SC101'",
            "rule = 'use-before-alloc'",
            "function = 'make*'",
            "function = 'ns::run'",
            "function = 'saxpy'",
            "function = '*float\\*)'",
            "file = 'third_party/**'",
            "file = 'src/*.cu'",
            "file = '/home/*/src/z.cu'",
            "rule = 'SC101'\nfunction = 'make*'\nfile = 'z.cu'",
        ] {
            assert!(suppresses(entry), "{entry}");
        }
        for entry in [
            "rule = 'SC102'",
            "rule = 'SC102'\nfunction = 'make*'",
            "function = 'run'",
            "file = '*.c'",
            "file = 'third_party/*.cu'",
            "file = '/src/z.cu'",
        ] {
            assert!(!suppresses(entry), "{entry}");
        }
    }

    #[test]
    fn the_unused_and_the_expired_are_told() {
        let mut suppressions = parse(
            "[[suppress]]\nrule = 'SC101'\nreason = 'old'\nexpires = 2026-11-30\n\
             [[suppress]]\nrule = 'SC101'\nreason = 'today'\nexpires = '2026-12-01'\n\
             [[suppress]]\nfunction = 'nobody'\nreason = 'gone'\n",
        )
        .unwrap();
        assert_eq!(suppressions.reason(&sample()).as_deref(), Some("today"));
        assert_eq!(
            suppressions.remarks(),
            [
                "the suppression at s.toml:1 expired on 2026-11-30 and no longer applies (old)",
                "the suppression at s.toml:9 matched nothing (gone)",
            ]
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let wrong = parse(
            "[[suppress]]\nrule = 'SC999'\n\
             [[suppress]]\nreason = 'r'\n\
             [[suppress]]\nfunction = 'a[b'\nreason = ' '\nexpires = 'soon'\n",
        )
        .unwrap_err();
        insta::assert_snapshot!(wrong.join("\n"));
        let wrong = parse("[[suppress]]\nreason = 'r'\nfunktion = 'x'\n").unwrap_err();
        assert!(
            wrong[0].starts_with("s.toml: line 3: unknown field `funktion`"),
            "{wrong:?}"
        );
        let wrong = parse("[suppress\n").unwrap_err();
        assert!(wrong[0].starts_with("s.toml: line 1: "), "{wrong:?}");
        assert!(parse("").is_ok());
        let missing = Suppressions::read(Path::new("/nowhere/s.toml")).unwrap_err();
        assert_eq!(
            missing[0].text(),
            "/nowhere/s.toml cannot be read: No such file or directory"
        );
    }

    #[test]
    fn days_are_counted_as_calendars_do() {
        assert_eq!(Date::after_epoch(0), Date(1970, 1, 1));
        assert_eq!(Date::after_epoch(11_016), Date(2000, 2, 29));
        assert_eq!(Date::after_epoch(20_788), Date(2026, 12, 1));
        assert_eq!(Date::parse("2027-03-01"), Some(Date(2027, 3, 1)));
        for text in ["2027-3-1", "2027-13-01", "2027-03-01-1", "20270301", ""] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }
}
