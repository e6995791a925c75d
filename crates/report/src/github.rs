//! Annotations of a GitHub Actions job.
//!
//! A line is a workflow command: `::error file=a.cu,line=3,title=SC101 …::message`. GitHub shows
//! at most ten errors and ten warnings of a step.

use crate::Context;
use crate::json::{Finding, Report};
use crate::places::{Source, pointed_at, sentences};
use crate::text::{clean, count};

/// What GitHub shows of each kind in a step.
const SHOWN: usize = 10;

/// Characters of a path, as many as Linux takes.
const LONGEST_PATH: usize = 4096;

/// The annotations of all findings that count, errors first.
pub(crate) fn annotations(report: &Report, context: &Context) -> String {
    let mut out = String::new();
    for level in ["error", "warning"] {
        let live = report
            .findings
            .iter()
            .filter(|finding| finding.is_live() && finding.level == level);
        for finding in live.clone().take(SHOWN) {
            out.push_str(&annotation(finding, context));
        }
        let rest = live.count().saturating_sub(SHOWN);
        if rest > 0 {
            let rest = count(
                rest as u64,
                &format!("more {level}"),
                &format!("more {level}s"),
            );
            out.push_str(&command(
                "notice",
                &[("title", "streamcheck".to_owned())],
                &format!("{rest}; GitHub shows {SHOWN} of a step"),
            ));
        }
    }
    out
}

/// A run in which nothing was checked.
#[must_use]
pub fn nothing_checked(why: &str) -> String {
    command("error", &[("title", "streamcheck".to_owned())], why)
}

fn annotation(finding: &Finding, context: &Context) -> String {
    let mut properties = Vec::new();
    if let Some((_, frame)) = pointed_at(finding, context)
        && let (Some(file), Some(line)) = (&frame.file, frame.line)
        && let Source::Inside(path) = context.source(file)
    {
        let path = path.to_string_lossy();
        properties.push(("file", clean(&path, LONGEST_PATH).into_owned()));
        properties.push(("line", line.to_string()));
    }
    let title = format!("{} {}", clean(&finding.rule, 40), clean(&finding.name, 80));
    properties.push(("title", title));
    command(&finding.level, &properties, &sentences(finding).join("\n"))
}

/// A workflow command, escaped as GitHub's own toolkit does it.
fn command(name: &str, properties: &[(&str, String)], message: &str) -> String {
    let data = |text: &str| {
        text.replace('%', "%25")
            .replace('\r', "%0D")
            .replace('\n', "%0A")
    };
    let properties: Vec<String> = properties
        .iter()
        .map(|(key, value)| {
            let value = data(value).replace(':', "%3A").replace(',', "%2C");
            format!("{key}={value}")
        })
        .collect();
    format!("::{name} {}::{}\n", properties.join(","), data(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tests::report;
    use crate::places::tests::context;

    #[test]
    fn a_finding_points_into_the_repository() {
        insta::assert_snapshot!(annotations(&report(), &context()));
    }

    #[test]
    fn what_would_end_a_command_is_escaped() {
        let mut odd = report();
        let finding = &mut odd.findings[0];
        finding.message = "100% of a::b\nand more".to_owned();
        finding.ordering.clear();
        finding.help.clear();
        finding.events[0].stack[0].file = Some("/src/a,b:c%.cu".to_owned());
        assert_eq!(
            annotations(&odd, &context()),
            "::error file=a%2Cb%3Ac%25.cu,line=10,title=SC101 use-before-alloc::\
             100%25 of a::b\u{fffd}and more.\n"
        );
    }

    #[test]
    fn a_path_tells_a_terminal_nothing() {
        let mut odd = report();
        odd.findings[0].events[0].stack[0].file = Some("/src/a\u{1b}[2J\0.cu".to_owned());
        let text = annotations(&odd, &context());
        assert!(
            text.starts_with("::error file=a\u{fffd}[2J\u{fffd}.cu,line=10"),
            "{text}"
        );
    }

    #[test]
    fn a_file_elsewhere_is_no_annotation_of_a_file() {
        let mut elsewhere = report();
        elsewhere.findings[0].events[0].stack[0].file = Some("/usr/include/x.h".to_owned());
        assert!(annotations(&elsewhere, &context()).starts_with("::error title=SC101"));
    }

    #[test]
    fn errors_come_first_and_ten_of_each_are_enough() {
        let mut many = report();
        let error = many.findings.remove(0);
        let warning = Finding {
            level: "warning".to_owned(),
            ..error.clone()
        };
        many.findings.extend(vec![warning.clone(); 9]);
        many.findings.extend(vec![error.clone(); 12]);
        many.findings.push(Finding {
            suppressed: Some("known".to_owned()),
            ..error.clone()
        });
        many.findings.push(Finding {
            baseline: true,
            ..error
        });
        let text = annotations(&many, &context());
        let kinds: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        let mut wanted = vec!["::error"; 10];
        wanted.push("::notice");
        wanted.extend(["::warning"; 9]);
        assert_eq!(kinds, wanted);
        assert!(
            text.contains("::notice title=streamcheck::2 more errors;"),
            "{text}"
        );
    }

    #[test]
    fn a_clean_report_has_none() {
        let mut clean = report();
        clean.findings.clear();
        assert_eq!(annotations(&clean, &context()), "");
    }
}
