//! `man`: manual pages.

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Arguments;
use crate::failure::{Failure, reason};
use crate::output;

/// Prints the page of a command; of `streamcheck` itself if none is named.
pub(crate) fn print(command: Option<&str>) -> Result<u8, Failure> {
    output::out(&page(command)?)?;
    Ok(0)
}

fn page(command: Option<&str>) -> Result<String, Failure> {
    let mut all = Arguments::command();
    all.build();
    let about = match command {
        None => all,
        Some(name) => all
            .find_subcommand(name)
            .cloned()
            .map(with_full_name)
            .ok_or_else(|| {
                Failure::new(
                    crate::USAGE,
                    format!("there is no command {name:?}; see `streamcheck --help`"),
                )
            })?,
    };
    let name = about.get_name().to_owned();
    let mut page = Vec::new();
    Man::new(about)
        .render(&mut page)
        .map_err(|error| Failure::new(crate::USAGE, reason(&error)))?;
    let page = in_ascii(&String::from_utf8_lossy(&page));
    let lines = page.lines().map(|line| match line.starts_with(".TH ") {
        // Made without a date, it has the rest where the date belongs.
        true => format!(
            ".TH {name} 1 \"\" \"streamcheck {}\" \"streamcheck\"\n",
            env!("CARGO_PKG_VERSION")
        ),
        false => format!("{line}\n"),
    });
    Ok(lines.collect())
}

/// Spells characters as roff does that understands ASCII alone.
fn in_ascii(page: &str) -> String {
    let spelt = |c: char| match c {
        c if c.is_ascii() => c.to_string(),
        c => format!("\\[u{:04X}]", u32::from(c)),
    };
    page.chars().map(spelt).collect()
}

/// `man streamcheck-run` is how pages of commands are asked for.
fn with_full_name(command: Command) -> Command {
    let name = format!("streamcheck-{}", command.get_name());
    command.name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn pages() -> Vec<(String, String)> {
        let names: Vec<_> = Arguments::command()
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        let of = |name: Option<&str>| page(name).map_err(|failure| failure.text()).unwrap();
        let mut pages = vec![(String::new(), of(None))];
        pages.extend(names.into_iter().map(|name| {
            let page = of(Some(&name));
            (name, page)
        }));
        pages
    }

    #[test]
    fn every_command_has_a_page() {
        for (name, page) in pages() {
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{name}"
            );
        }
        let run = page(Some("run")).map_err(|failure| failure.text()).unwrap();
        assert!(
            run.contains("streamcheck\\-run") && run.contains("fail\\-on"),
            "{run}"
        );
        assert!(page(Some("frobnicate")).is_err());
    }

    #[test]
    fn groff_and_mandoc_find_no_fault() {
        for (program, arguments) in [
            ("groff", &["-man", "-ww", "-Tutf8", "-z"][..]),
            ("mandoc", &["-T", "lint", "-W", "error"]),
        ] {
            for (name, page) in pages() {
                let child = Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn();
                let Ok(mut child) = child else { continue };
                child
                    .stdin
                    .take()
                    .unwrap()
                    .write_all(page.as_bytes())
                    .unwrap();
                let output = child.wait_with_output().unwrap();
                assert!(
                    output.status.success() && output.stderr.is_empty(),
                    "{program}, {name}: {output:?}"
                );
            }
        }
    }
}
