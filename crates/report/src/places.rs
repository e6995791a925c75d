//! Where a finding is, for the forms that point into a repository, and its calls in a line.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use streamcheck_engine::{Role, short_kernel};
use streamcheck_model::{HOST_READ, HOST_WRITE};

use crate::json::{Event, Finding};
use crate::lanes::short_name;
use crate::text::{clean, count};
use crate::{Context, Frame};

/// The longest name that a line holds.
const LONGEST_NAME: usize = 200;

/// A source file as the forms name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Below the root, and relative to it.
    Inside(PathBuf),
    /// Anywhere else.
    Outside(PathBuf),
}

impl Context {
    /// A source file's name; one without a folder is in the working directory.
    pub(crate) fn source(&self, file: &str) -> Source {
        let path = tidy(&self.here.join(file));
        match path.strip_prefix(&self.root) {
            Ok(inside) if inside != OsStr::new("") => Source::Inside(inside.to_owned()),
            _ => Source::Outside(path),
        }
    }
}

/// A path without `.` and `..`, as far as names tell.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if tidy.file_name().is_some() => {
                tidy.pop();
            }
            Component::ParentDir if tidy.has_root() => {}
            other => tidy.push(other),
        }
    }
    tidy
}

/// The place in `events` of the call at fault, the one that came last: up to there all
/// was well.
pub(crate) fn fault<E: Borrow<Event>>(events: &[E]) -> usize {
    let sequence = |place: &usize| -> u64 { events[*place].borrow().sequence };
    (0..events.len()).max_by_key(sequence).unwrap_or(0)
}

/// What should have come before what, where that is the fault: two operations' numbers.
pub(crate) fn missing(finding: &Finding) -> Option<(u64, u64)> {
    let (before, after) = match finding.rule.as_str() {
        "SC101" | "SC105" => (Role::Allocation, Role::Use),
        "SC103" => (Role::Use, Role::Free),
        "SC104" => (Role::Allocation, Role::Free),
        "SC107" => (Role::Copy, Role::Free),
        "SC108" | "SC109" => (Role::OtherAccess, Role::Use),
        _ => return None,
    };
    let of = |role| finding.events.iter().find(|event| event.role == role);
    let (before, after) = (of(before)?.sequence, of(after)?.sequence);
    (before < after).then_some((before, after))
}

/// A frame's file and line.
pub(crate) fn source_line(frame: &Frame) -> Option<(&str, u32)> {
    Some((frame.file.as_deref()?, frame.line.filter(|line| *line > 0)?))
}

/// The line to point at: of the call at fault, else of another, and inside the root
/// before any other.
pub(crate) fn pointed_at<'a>(
    finding: &'a Finding,
    context: &Context,
) -> Option<(&'a Event, &'a Frame)> {
    let first = finding.events.get(fault(&finding.events));
    let events = || first.into_iter().chain(finding.events.iter().rev());
    let frames = || events().flat_map(|event| event.stack.iter().map(move |frame| (event, frame)));
    let inside = |frame: &Frame| {
        source_line(frame)
            .is_some_and(|(file, _)| matches!(context.source(file), Source::Inside(_)))
    };
    frames()
        .find(|(_, frame)| inside(frame))
        .or_else(|| frames().find(|(_, frame)| source_line(frame).is_some()))
}

/// What a call did to the memory, or to the order, of a finding.
pub(crate) fn verb(event: &Event) -> &'static str {
    match event.role {
        Role::Allocation if event.api.contains("Register") => "registered",
        Role::Allocation => "allocated",
        Role::Use if event.api == HOST_READ => "read",
        Role::Use if event.api == HOST_WRITE => "written",
        Role::Use => "used",
        Role::Free => "freed",
        Role::Copy => "copied",
        Role::Event if event.api.contains("Wait") => "waited",
        Role::Event if event.api.contains("Record") => "recorded",
        Role::Event => "ordered",
        Role::OtherAccess => "accessed",
        Role::Node if event.api.contains("Graph") => "made a node",
        Role::Node => "captured",
    }
}

/// `used here: kernel saxpy(float*, int) on stream 2`.
pub(crate) fn call(event: &Event) -> String {
    let verb = verb(event);
    let name = match &event.kernel {
        Some(kernel) => format!("kernel {}", clean(&short_kernel(kernel), LONGEST_NAME)),
        None if matches!(&*event.api, HOST_READ | HOST_WRITE) => "the host".to_owned(),
        None => clean(&event.api, LONGEST_NAME).into_owned(),
    };
    match &event.stream {
        // Its handle and kind stand once, where its creation does.
        Some(stream) => format!(
            "{verb} here: {name} on {}",
            clean(short_name(stream), LONGEST_NAME)
        ),
        None => format!("{verb} here: {name}"),
    }
}

/// The sentences of a finding, each on a line: what is wrong, what order there is, what to
/// add, how often and by whom.
pub(crate) fn sentences(finding: &Finding) -> Vec<String> {
    let mut lines: Vec<String> = [&finding.message, &finding.ordering, &finding.help]
        .into_iter()
        .filter(|text| !text.is_empty())
        .map(|text| as_sentence(&clean(text, usize::MAX)))
        .collect();
    if finding.count > 1 {
        lines.push(format!(
            "It happened {}.",
            count(finding.count, "time", "times")
        ));
    }
    if !finding.ranks.is_empty() {
        let ranks: Vec<String> = finding.ranks.iter().map(u32::to_string).collect();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        lines.push(format!("On {word} {}.", ranks.join(", ")));
    }
    lines
}

/// Text with a capital at its beginning and a full stop at its end. A name stays as it is.
fn as_sentence(text: &str) -> String {
    let mut text = text.trim_end().to_owned();
    let word_end = text.find(' ').unwrap_or(text.len());
    if text
        .bytes()
        .take(word_end)
        .all(|byte| byte.is_ascii_lowercase())
        && let Some(first) = text.get_mut(..1)
    {
        first.make_ascii_uppercase();
    }
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::json::tests::{finding, frame};
    use crate::{FailOn, Settings};

    /// A context whose root is `/src`.
    pub(crate) fn context() -> Context {
        Context {
            fail_on: FailOn::Error,
            here: PathBuf::from("/src/build"),
            root: PathBuf::from("/src"),
            exit_code: None,
            baseline: false,
        }
    }

    #[test]
    fn what_the_cpu_does_itself_is_told_by_what_it_does() {
        let told = |api: &str| {
            let facts = finding();
            let frames = facts.stacks().map(|_| Vec::new()).collect();
            let mut event = Finding::new(facts, frames).events.pop().expect("a call");
            event.role = Role::Use;
            event.api = api.to_owned();
            (event.kernel, event.stream) = (None, None);
            call(&event)
        };
        assert_eq!(told(HOST_READ), "read here: the host");
        assert_eq!(told(HOST_WRITE), "written here: the host");
        assert_eq!(told("recv"), "used here: recv");
    }

    #[test]
    fn paths_are_tidied_and_taken_from_the_root() {
        let inside = |path: &str| Source::Inside(PathBuf::from(path));
        let outside = |path: &str| Source::Outside(PathBuf::from(path));
        for (file, source) in [
            ("/src/a/x.cu", inside("a/x.cu")),
            ("/src/build/../a/./x.cu", inside("a/x.cu")),
            ("x.cu", inside("build/x.cu")),
            ("../x.cu", inside("x.cu")),
            ("../../x.cu", outside("/x.cu")),
            ("/srcs/x.cu", outside("/srcs/x.cu")),
            ("/src", outside("/src")),
            ("/../x.cu", outside("/x.cu")),
        ] {
            assert_eq!(context().source(file), source, "{file}");
        }
        assert!(
            Context::of_this_process(&Settings::default())
                .here
                .is_absolute()
        );
    }

    #[test]
    fn what_is_pointed_at_is_the_fault_inside_the_root() {
        let outside = || vec![frame("lib", "/usr/include/lib.h", 3)];
        let inside = |line| {
            vec![
                frame("lib", "/usr/include/lib.h", 3),
                frame("f", "/src/a.cu", line),
            ]
        };
        let line = |stacks| {
            let finding = Finding::new(finding(), stacks);
            pointed_at(&finding, &context()).map(|(event, frame)| (event.role, frame.line))
        };
        assert_eq!(line(vec![inside(7), inside(8)]), Some((Role::Use, Some(8))));
        assert_eq!(
            line(vec![inside(7), outside()]),
            Some((Role::Allocation, Some(7)))
        );
        assert_eq!(line(vec![outside(), outside()]), Some((Role::Use, Some(3))));
        assert_eq!(line(vec![Vec::new(), Vec::new()]), None);
    }

    #[test]
    fn sentences_begin_and_end_as_such() {
        assert_eq!(as_sentence("kernel f uses p"), "Kernel f uses p.");
        assert_eq!(as_sentence("cudaFree waits."), "cudaFree waits.");
        assert_eq!(as_sentence("call f(a)"), "Call f(a).");
        assert_eq!(as_sentence(""), ".");
    }
}
