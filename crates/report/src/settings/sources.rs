//! Where settings come from.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Value;

use super::Settings;
use super::options::{OPTIONS, OptionSpec};
use crate::text::{clean, nearest};
use crate::{Format, Problem};

/// Names the settings file.
const CONFIG: &str = "STREAMCHECK_CONFIG";

/// The settings file's name.
const FILE: &str = "streamcheck.toml";

/// Variables that begin with `STREAMCHECK_` and are no options: the settings file's
/// path, what the command tells the processes that it starts, where it finds the preload
/// library, and what the build and the tests of streamcheck itself take.
pub const RESERVED_VARIABLES: &[&str] = &[
    CONFIG,
    RUN_ID,
    "STREAMCHECK_LIBRARY",
    "STREAMCHECK_NVCC",
    "STREAMCHECK_BLESS",
];

/// Tells a process that it is one of a run's: the command writes the reports, save the one
/// that it collects, and its own settings have the file's for them.
const RUN_ID: &str = "STREAMCHECK_RUN_ID";

/// A settings file larger than this is no settings file.
const LARGEST_FILE: u64 = 1 << 20;

/// One value that somebody gave.
struct Given {
    option: &'static OptionSpec,
    /// How it's called where it was given: `STREAMCHECK_FAIL_ON`.
    place: String,
    value: String,
    /// What relative paths are relative to, if not the working directory.
    base: Option<PathBuf>,
}

/// Settings from all sources, and what was wrong in them.
pub(super) fn load(
    overrides: &[(String, String)],
    environment: impl Iterator<Item = (OsString, OsString)>,
    directory: &Path,
) -> (Settings, Vec<Problem>) {
    let mut problems = Vec::new();
    let environment: Vec<_> = environment.collect();
    let of_a_run = environment.iter().any(|(name, _)| name == RUN_ID);
    let (variables, config) = from_environment(environment.into_iter(), &mut problems);
    let file = match config {
        Some(path) => Some(directory.join(path)),
        None => find_file(directory),
    };
    // In the order of precedence, lowest first.
    let mut given = file.map_or_else(Vec::new, |path| from_file(&path, &mut problems));
    if of_a_run {
        given.retain(|one| Format::ALL.iter().all(|f| f.label() != one.option.name));
    }
    given.extend(variables);
    given.extend(from_command_line(overrides, &mut problems));

    let mut settings = Settings::default();
    for (place, one) in given.iter().enumerate() {
        let beaten = !one.option.repeatable
            && given[place + 1..]
                .iter()
                .any(|later| later.option.name == one.option.name);
        // A value that another one beats is checked all the same.
        let mut scratch;
        let target = if beaten {
            scratch = settings.clone();
            &mut scratch
        } else {
            &mut settings
        };
        problems.extend(apply(one, target, beaten).err());
    }
    (settings, problems)
}

/// Sets one value. A wrong one changes nothing (of a list of levels, the right ones
/// count), so that the default stays.
fn apply(given: &Given, settings: &mut Settings, beaten: bool) -> Result<(), Problem> {
    let Given {
        option,
        place,
        value,
        base,
    } = given;
    (option.set)(settings, value, base.as_deref()).map_err(|why| {
        let shown = clean(value, 200);
        let why = match (why.is_empty(), value.is_empty()) {
            (true, true) => format!("is empty, but it takes {}", option.takes),
            (true, false) => format!("is {shown:?}, but it takes {}", option.takes),
            (false, _) if option.repeatable => why,
            (false, _) => format!("{why}; it takes {}", option.takes),
        };
        let then = if option.repeatable {
            "the default stays for that".to_owned()
        } else if beaten {
            "another value beats it anyway".to_owned()
        } else {
            format!("the default is used ({})", option.default)
        };
        Problem::new(format!("{place} {why}; {then}"))
    })
}

/// The options that variables give, and the settings file that one may name.
fn from_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
    problems: &mut Vec<Problem>,
) -> (Vec<Given>, Option<PathBuf>) {
    let mut given = Vec::new();
    let mut config = None;
    for (name, value) in environment {
        let name = name.to_string_lossy();
        if !name.starts_with("STREAMCHECK_") {
            continue;
        }
        if name == CONFIG {
            config = (!value.is_empty()).then(|| PathBuf::from(value));
            continue;
        }
        if RESERVED_VARIABLES.contains(&&*name) {
            continue;
        }
        let Some(option) = OPTIONS.iter().find(|option| option.variable() == *name) else {
            let all: Vec<String> = OPTIONS.iter().map(OptionSpec::variable).collect();
            let known = all.iter().map(String::as_str).chain([CONFIG]);
            let advice = nearest(&name, known)
                .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            problems.push(Problem::new(format!(
                "{} is set, but streamcheck has no such variable{advice}; it is ignored",
                clean(&name, 100)
            )));
            continue;
        };
        match value.into_string() {
            Ok(value) => given.push(Given {
                option,
                place: name.into_owned(),
                value,
                base: None,
            }),
            Err(_) => problems.push(Problem::new(format!(
                "{name} is not UTF-8, but it takes {}; the default is used ({})",
                option.takes, option.default
            ))),
        }
    }
    // The environment's own order means nothing; problems come in a fixed one.
    given.sort_by(|a, b| a.place.cmp(&b.place));
    (given, config)
}

/// The options of a command line.
fn from_command_line(overrides: &[(String, String)], problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    for (name, value) in overrides {
        match OptionSpec::named(name) {
            Some(option) => given.push(Given {
                option,
                place: format!("--{name}"),
                value: value.clone(),
                base: None,
            }),
            None => {
                let advice = nearest(name, OPTIONS.iter().map(|option| option.name))
                    .map_or_else(String::new, |near| format!(" (did you mean --{near}?)"));
                problems.push(Problem::new(format!(
                    "--{} is no option{advice}; it is ignored",
                    clean(name, 100)
                )));
            }
        }
    }
    given
}

/// The nearest `streamcheck.toml` from `directory` upward.
fn find_file(directory: &Path) -> Option<PathBuf> {
    directory
        .ancestors()
        .map(|ancestor| ancestor.join(FILE))
        .find(|path| path.is_file())
}

/// The options of a settings file.
fn from_file(path: &Path, problems: &mut Vec<Problem>) -> Vec<Given> {
    let shown = path.display().to_string();
    let table = match read(path) {
        Ok(table) => table,
        Err(why) => {
            problems.push(Problem::new(format!("{shown} {why}; it is ignored")));
            return Vec::new();
        }
    };
    let mut given = Vec::new();
    for (key, value) in table {
        let Some(option) = OptionSpec::named(&key) else {
            let advice = nearest(&key, OPTIONS.iter().map(|option| option.name))
                .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            problems.push(Problem::new(format!(
                "{shown}: `{}` is no option{advice}; it is ignored",
                clean(&key, 100)
            )));
            continue;
        };
        match text_of(option, &value) {
            Some(value) => given.push(Given {
                option,
                place: format!("{shown}: `{key}`"),
                value,
                base: path.parent().map(Path::to_path_buf),
            }),
            None => problems.push(Problem::new(format!(
                "{shown}: `{key}` is {}, but it takes {}; the default is used ({})",
                kind_of(&value),
                option.takes,
                option.default
            ))),
        }
    }
    given
}

/// A file's table.
fn read(path: &Path) -> Result<toml::Table, String> {
    let about = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !about.is_file() || about.len() > LARGEST_FILE {
        return Err("is not a settings file (a TOML file of at most 1 MiB)".to_owned());
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    text.parse::<toml::Table>().map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        format!(
            "is not TOML: line {line}: {}",
            error.message().replace('\n', ", ")
        )
    })
}

/// A value as it would stand on the command line.
fn text_of(option: &OptionSpec, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Boolean(on) => Some(on.to_string()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Table(table) if option.name == "level" => table
            .iter()
            .map(|(rule, level)| Some(format!("{rule}={}", level.as_str()?)))
            .collect::<Option<Vec<_>>>()
            .map(|entries| entries.join(",")),
        Value::Array(entries) if option.repeatable => entries
            .iter()
            .map(|entry| entry.as_str())
            .collect::<Option<Vec<_>>>()
            .map(|entries| entries.join(",")),
        _ => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a number",
        Value::Float(_) => "a fraction",
        Value::Boolean(_) => "a switch",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use streamcheck_engine::{Level, RuleCode};

    use super::*;
    use crate::{FailOn, Stacks};

    /// Loads from a directory whose `streamcheck.toml` holds `file`; the directory's
    /// name is `DIR` in the problems.
    fn load_from(
        file: &str,
        environment: &[(&str, &str)],
        overrides: &[(&str, &str)],
    ) -> (Settings, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        if !file.is_empty() {
            fs::write(directory.path().join(FILE), file).unwrap();
        }
        let below = directory.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let overrides: Vec<_> = overrides
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let environment = environment
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let (settings, problems) = load(&overrides, environment, &below);
        let place = directory.path().display().to_string();
        let problems = problems
            .iter()
            .map(|problem| problem.text().replace(&place, "DIR"))
            .collect();
        (settings, problems)
    }

    #[test]
    fn a_process_of_a_run_leaves_the_files_reports_to_the_command() {
        let file = "json = 'a'\nsarif = 'b'\ngithub = 'c'\nfail-on = 'never'\n";
        let reports = |environment: &[(&str, &str)]| {
            let (settings, problems) = load_from(file, environment, &[]);
            assert_eq!((settings.fail_on, problems), (FailOn::Never, Vec::new()));
            settings
                .reports()
                .map(|(format, _)| format)
                .collect::<Vec<_>>()
        };
        assert_eq!(reports(&[]), [Format::Json, Format::Sarif, Format::Github]);
        let run = [(RUN_ID, "1"), ("STREAMCHECK_JSON", "x")];
        assert_eq!(reports(&run), [Format::Json]);
    }

    #[test]
    fn nothing_given_means_defaults() {
        let (settings, problems) = load_from("", &[("HOME", "/x")], &[]);
        assert_eq!(settings, Settings::default());
        assert!(problems.is_empty());
    }

    #[test]
    fn the_command_line_beats_the_environment_beats_the_file() {
        let file = "fail-on = 'never'\nexit-code = 5\nstacks = 'none'\nhalt = true\n\
                    [level]\nSC202 = 'off'\nSC201 = 'error'\n";
        let environment = [
            ("STREAMCHECK_EXIT_CODE", "6"),
            ("STREAMCHECK_STACKS", "caller"),
            ("STREAMCHECK_LEVEL", "SC201=off"),
        ];
        let overrides = [
            ("stacks", "full"),
            ("level", "SC112=off"),
            ("level", "SC101=off"),
        ];
        let (settings, problems) = load_from(file, &environment, &overrides);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(settings.fail_on, FailOn::Never);
        assert_eq!(settings.exit_code, 6);
        assert_eq!(settings.stacks, Stacks::Full);
        assert!(settings.halt);
        for rule in [
            RuleCode::SC202,
            RuleCode::SC201,
            RuleCode::SC112,
            RuleCode::SC101,
        ] {
            assert_eq!(settings.levels.of(rule), Level::Off, "{rule}");
        }
    }

    #[test]
    fn every_wrong_value_gets_its_sentence() {
        let file = "fail-on = 'sometimes'\nexit-code = 1.5\nfailon = 'error'\nhalt = []\n";
        let environment = [
            ("STREAMCHECK_STACKS", "half"),
            ("STREAMCHECK_JSON", ""),
            ("STREAMCHECK_TRACE", "t.%d"),
            ("STREAMCHECK_TRACE_LIMIT", "12K"),
            ("STREAMCHECK_EXITCODE", "1"),
            ("STREAMCHECK_XYZZY", "1"),
            ("STREAMCHECK_LEVEL", "SC202=of,SC201=off"),
            ("STREAMCHECK_GUARD", "maybe"),
        ];
        let overrides = [("color", "blue"), ("verbose", "1"), ("jsn", "x")];
        let (settings, problems) = load_from(file, &environment, &overrides);
        let mut expected = Settings::default();
        expected.levels.set(RuleCode::SC201, Level::Off);
        expected.given_levels.push((RuleCode::SC201, Level::Off));
        assert_eq!(settings, expected);
        insta::assert_snapshot!(problems.join("\n"));
    }

    #[test]
    fn a_wrong_value_gives_the_default_though_a_lesser_source_is_right() {
        let (settings, problems) =
            load_from("exit-code = 5\n", &[("STREAMCHECK_EXIT_CODE", "x")], &[]);
        assert_eq!(settings.exit_code, 66);
        assert_eq!(
            problems,
            [
                "STREAMCHECK_EXIT_CODE is \"x\", but it takes a number from 1 to 255; \
              the default is used (66)"
            ]
        );
    }

    #[test]
    fn paths_in_the_file_are_relative_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.toml");
        fs::write(&file, "json = 'r.json'\nsuppressions = 's.toml'\n").unwrap();
        let environment = [
            (CONFIG.into(), file.into()),
            ("STREAMCHECK_BASELINE".into(), "b.json".into()),
        ];
        let elsewhere = tempfile::tempdir().unwrap();
        let (settings, problems) = load(&[], environment.into_iter(), elsewhere.path());
        assert_eq!(problems, []);
        assert_eq!(settings.suppressions, Some(directory.path().join("s.toml")));
        assert_eq!(settings.baseline, Some(PathBuf::from("b.json")));
        assert!(Path::new(settings.json.unwrap().text()).is_absolute());
    }

    #[test]
    fn an_unreadable_file_is_one_problem() {
        let (_, problems) = load_from("a = 1\nfail-on = \n", &[], &[]);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("DIR/streamcheck.toml is not TOML: line 2: "),
            "{problems:?}"
        );
        let (_, problems) = load_from("", &[(CONFIG, "/nowhere/x.toml")], &[]);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("/nowhere/x.toml cannot be read: "),
            "{problems:?}"
        );
        let (_, problems) = load_from("", &[(CONFIG, "/")], &[]);
        assert!(
            problems[0].starts_with("/ is not a settings file"),
            "{problems:?}"
        );
    }
}
