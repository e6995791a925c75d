//! The options, each declared once: the command line, the environment, the file
//! and the documentation all come from [`OPTIONS`].

use std::path::{Path, PathBuf};

use streamcheck_engine::{Level, RULES, RuleCode};

use super::{PathTemplate, Settings};
use crate::text::nearest;

/// Sets an option from a value's text. Paths are taken relative to the directory,
/// where one is given.
///
/// The error completes the sentence «NAME …», as in «is "x", but it takes a path».
type Set = fn(&mut Settings, &str, Option<&Path>) -> Result<(), String>;

/// An option as declared.
pub struct OptionSpec {
    /// Its name, as on the command line without the dashes.
    pub name: &'static str,
    /// What it takes, as a phrase: `error, warning or never`.
    pub takes: &'static str,
    /// Its default, in words.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Whether it may be given several times, each adding to the one before.
    pub repeatable: bool,
    /// Whether `--name` alone, without a value, means `on`.
    pub switch: bool,
    pub(super) set: Set,
}

impl OptionSpec {
    /// Its name in the environment: `STREAMCHECK_FAIL_ON` for `fail-on`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!(
            "STREAMCHECK_{}",
            self.name.to_ascii_uppercase().replace('-', "_")
        )
    }

    /// The option of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|option| option.name == name)
    }
}

impl std::fmt::Debug for OptionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OptionSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const SWITCH: &str = "on or off (true or false, 1 or 0)";
const PATH: &str = "a path, in which %p is the pid, %h the host, %r the rank";

/// An option of this version.
const fn option(
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    meaning: &'static str,
    set: Set,
) -> OptionSpec {
    OptionSpec {
        name,
        takes,
        default,
        meaning,
        repeatable: false,
        switch: false,
        set,
    }
}

/// Every option, in the order of the documentation.
pub static OPTIONS: &[OptionSpec] = &[
    option(
        "fail-on",
        "error, warning or never",
        "error",
        "the least level that fails the gate",
        |settings, value, _| assign(&mut settings.fail_on, value),
    ),
    option(
        "exit-code",
        "a number from 1 to 255",
        "66",
        "the process's exit code when the gate fails and the application itself exits 0; \
         an application's own non-zero code is kept",
        |settings, value, _| match value.parse() {
            Ok(code @ 1..) => {
                settings.exit_code = code;
                Ok(())
            }
            _ => Err(String::new()),
        },
    ),
    OptionSpec {
        switch: true,
        ..option(
            "halt",
            SWITCH,
            "off",
            "stop the process at the first finding that fails the gate, with `exit-code`, \
             once the finding is written",
            |settings, value, _| switch(value).map(|on| settings.halt = on),
        )
    },
    option(
        "json",
        PATH,
        "none",
        "also write the findings as a JSON report",
        |settings, value, base| template(value, base).map(|path| settings.json = Some(path)),
    ),
    option(
        "sarif",
        PATH,
        "none",
        "also write the findings as SARIF",
        |settings, value, base| template(value, base).map(|path| settings.sarif = Some(path)),
    ),
    option(
        "junit",
        PATH,
        "none",
        "also write the findings as JUnit XML",
        |settings, value, base| template(value, base).map(|path| settings.junit = Some(path)),
    ),
    option(
        "html",
        PATH,
        "none",
        "also write the findings as a page with a timeline",
        |settings, value, base| template(value, base).map(|path| settings.html = Some(path)),
    ),
    option(
        "github",
        PATH,
        "none",
        "also write the findings as GitHub annotations",
        |settings, value, base| template(value, base).map(|path| settings.github = Some(path)),
    ),
    option(
        "trace",
        PATH,
        "none",
        "record the trace for `streamcheck replay`",
        |settings, value, base| template(value, base).map(|path| settings.trace = Some(path)),
    ),
    option(
        "trace-limit",
        "a size of at least 64K, such as 500M or 2G (a number alone is bytes), or 0 for none",
        "none",
        "how long a trace may become; it is ended in order there, and checking goes on",
        |settings, value, _| limit(value).map(|bytes| settings.trace_limit = bytes),
    ),
    option(
        "suppressions",
        "the path of a suppressions file",
        "none",
        "findings that are known and accepted, each with its reason",
        |settings, value, base| file(value, base).map(|path| settings.suppressions = Some(path)),
    ),
    option(
        "baseline",
        "the path of an earlier JSON report",
        "none",
        "findings that it holds are marked and do not fail the gate",
        |settings, value, base| file(value, base).map(|path| settings.baseline = Some(path)),
    ),
    option(
        "stacks",
        "none, caller or full",
        "full",
        "what is recorded of the host stack at each call",
        |settings, value, _| assign(&mut settings.stacks, value),
    ),
    OptionSpec {
        switch: true,
        ..option(
            "guard",
            SWITCH,
            "off",
            "watch host accesses to in-flight host memory with page protection: memory that pending work \
             writes is closed to the CPU, memory that it reads to the CPU's writes, and who comes too early \
             is reported (SC108)",
            |settings, value, _| switch(value).map(|on| settings.guard = on),
        )
    },
    OptionSpec {
        repeatable: true,
        ..option(
            "level",
            "rules with their levels, such as SC202=off,SC112=error (off, warning or error)",
            "each rule's own",
            "rules' levels; a table `[level]` in the file",
            |settings, value, _| levels(settings, value),
        )
    },
    OptionSpec {
        switch: true,
        ..option(
            "require-cuda",
            SWITCH,
            "on for `streamcheck run`, off under a bare preload",
            "a run in which no process made a CUDA call fails with exit 67: \
             a gate that checked nothing must not pass",
            |settings, value, _| switch(value).map(|on| settings.require_cuda = Some(on)),
        )
    },
    option(
        "color",
        "auto, always or never",
        "auto",
        "whether text is coloured; `auto` colours on a terminal unless NO_COLOR is set",
        |settings, value, _| assign(&mut settings.color, value),
    ),
    option(
        "log",
        "off, error, warn, info, debug or trace, or such levels for targets, \
         as in warn,streamcheck_engine=debug",
        "warn",
        "the filter of the tool's own log, which goes to stderr",
        |settings, value, _| log(settings, value),
    ),
];

fn assign<T: std::str::FromStr>(place: &mut T, value: &str) -> Result<(), String> {
    *place = value.parse().map_err(|_| String::new())?;
    Ok(())
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(String::new()),
    }
}

/// A trace's limit, in bytes. Less than the least would hold next to nothing.
fn limit(value: &str) -> Result<Option<u64>, String> {
    const LEAST: u64 = 64 << 10;
    match size(value) {
        Some(0) => Ok(None),
        Some(bytes @ LEAST..) => Ok(Some(bytes)),
        _ => Err(String::new()),
    }
}

/// A number of bytes, or of units of 1024 to some power: `500M`.
fn size(value: &str) -> Option<u64> {
    let (number, shift) = match value.char_indices().next_back()? {
        (end, 'k' | 'K') => (&value[..end], 10),
        (end, 'm' | 'M') => (&value[..end], 20),
        (end, 'g' | 'G') => (&value[..end], 30),
        (end, 't' | 'T') => (&value[..end], 40),
        _ => (value, 0),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn template(value: &str, base: Option<&Path>) -> Result<PathTemplate, String> {
    if value.is_empty() || value.contains('\0') {
        return Err(String::new());
    }
    let template = PathTemplate::parse(value)
        .map_err(|what| format!("is {value:?}, in which {what} means nothing"))?;
    Ok(match base {
        Some(base) => template.below(base),
        None => template,
    })
}

fn file(value: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    if value.is_empty() || value.contains('\0') {
        return Err(String::new());
    }
    Ok(base.map_or_else(|| PathBuf::from(value), |base| base.join(value)))
}

/// Sets what makes sense of `SC202=off,SC112=error`, and complains of the rest.
fn levels(settings: &mut Settings, value: &str) -> Result<(), String> {
    let mut wrong = Vec::new();
    for entry in value.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        match level(entry) {
            Ok((rule, level)) => {
                settings.levels.set(rule, level);
                settings.given_levels.push((rule, level));
            }
            Err(error) => wrong.push(error),
        }
    }
    if value.trim().is_empty() {
        return Err(String::new());
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

fn level(entry: &str) -> Result<(RuleCode, Level), String> {
    let (rule, level) = entry
        .split_once('=')
        .map(|(rule, level)| (rule.trim(), level.trim()))
        .ok_or_else(|| format!("has {entry:?}, which gives no level"))?;
    let code = rule.parse::<RuleCode>().map_err(|()| {
        let codes: Vec<String> = RULES.iter().map(|rule| rule.code.to_string()).collect();
        let names = RULES.iter().map(|rule| rule.name);
        // Codes are all alike, so only a name's neighbour says anything.
        let meant = nearest(rule, names)
            .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
        format!(
            "names {rule:?}, which is no rule of this version{meant}; the rules are {}",
            codes.join(", ")
        )
    })?;
    let level = level.parse::<Level>().map_err(|()| {
        format!("gives {rule} the level {level:?}, but a level is off, warning or error")
    })?;
    Ok((code, level))
}

/// Takes `warn`, `streamcheck=debug` and lists of them.
fn log(settings: &mut Settings, value: &str) -> Result<(), String> {
    let known = |level: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(level))
    };
    let fits = value.split(',').all(|directive| {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("all", directive));
        !target.trim().is_empty() && known(level.trim())
    });
    if !fits {
        return Err(String::new());
    }
    settings.log = value.to_owned();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let option = OptionSpec::named(name).unwrap();
        (option.set)(&mut settings, value, None)?;
        Ok(settings)
    }

    #[test]
    fn names_are_unique_and_spelled_alike() {
        for (place, option) in OPTIONS.iter().enumerate() {
            assert!(
                option
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '-')
            );
            assert!(OPTIONS[..place].iter().all(|o| o.name != option.name));
            assert!(!option.meaning.is_empty() && !option.takes.is_empty());
        }
        assert_eq!(
            OptionSpec::named("fail-on").unwrap().variable(),
            "STREAMCHECK_FAIL_ON"
        );
    }

    #[test]
    fn a_default_in_words_is_the_default_in_fact() {
        for option in OPTIONS {
            let mut settings = Settings::default();
            if (option.set)(&mut settings, option.default, None).is_ok()
                && !option.takes.contains("path")
            {
                assert_eq!(settings, Settings::default(), "{}", option.name);
            }
        }
    }

    #[test]
    fn switches_take_six_words() {
        for value in ["on", "true", "1"] {
            assert!(set("halt", value).unwrap().halt);
            assert_eq!(set("require-cuda", value).unwrap().require_cuda, Some(true));
        }
        for value in ["off", "false", "0"] {
            assert!(!set("halt", value).unwrap().halt);
        }
        assert!(set("halt", "yes").is_err() && set("halt", "").is_err());
    }

    #[test]
    fn exit_codes_fit_a_process() {
        assert_eq!(set("exit-code", "3").unwrap().exit_code, 3);
        for value in ["0", "256", "-1", "x", ""] {
            assert!(set("exit-code", value).is_err(), "{value}");
        }
    }

    #[test]
    fn limits_are_sizes() {
        for (value, bytes) in [
            ("0", None),
            ("0K", None),
            ("65536", Some(65536)),
            ("64K", Some(65536)),
            ("500M", Some(500 << 20)),
            ("2g", Some(2 << 30)),
            ("1T", Some(1 << 40)),
        ] {
            assert_eq!(set("trace-limit", value).unwrap().trace_limit, bytes);
        }
        for value in [
            "",
            "M",
            "-1",
            "+1M",
            "1.5G",
            "2GB",
            "2 G",
            "65535",
            "63K",
            "many",
            "99999999T",
            "1M0",
        ] {
            assert!(set("trace-limit", value).is_err(), "{value}");
        }
    }

    #[test]
    fn levels_take_codes_and_names() {
        let settings = set("level", "SC202=off, use-after-free=warning").unwrap();
        assert_eq!(settings.levels.of(RuleCode::SC202), Level::Off);
        assert_eq!(settings.levels.of(RuleCode::SC102), Level::Warning);
        assert_eq!(settings.levels.of(RuleCode::SC101), Level::Error);
    }

    #[test]
    fn a_wrong_level_leaves_the_right_ones() {
        let mut settings = Settings::default();
        let value = "SC202=off,SC999=off,use-after-fre=off,SC101=loud,SC103";
        let error = levels(&mut settings, value).unwrap_err();
        assert_eq!(settings.levels.of(RuleCode::SC202), Level::Off);
        assert_eq!(settings.levels.of(RuleCode::SC101), Level::Error);
        for part in [
            "names \"SC999\", which is no rule of this version;",
            "(did you mean use-after-free?)",
            "gives SC101 the level \"loud\"",
            "has \"SC103\", which gives no level",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn log_filters_are_levels_with_or_without_targets() {
        for value in ["warn", "DEBUG", "warn,streamcheck_engine=trace", "a::b=off"] {
            assert_eq!(set("log", value).unwrap().log, value);
        }
        for value in ["", "loud", "a=", "=debug", "warn,"] {
            assert!(set("log", value).is_err(), "{value}");
        }
    }
}
