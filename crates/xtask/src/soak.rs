//! `cargo xtask soak`: how much of a process is in memory while it makes millions of calls.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use fixtures::{loops, stage_release};

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    calls: u64,
    trace: bool,
}

impl Options {
    /// Reads the words after `soak`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            calls: 10_000_000,
            trace: false,
        };
        for word in words {
            match word.parse() {
                _ if *word == "--trace" => options.trace = true,
                Ok(calls) if calls >= 1_000 => options.calls = calls,
                _ => bail!("soak takes a number of calls, 1000 or more, and --trace, not {word}"),
            }
        }
        Ok(options)
    }
}

/// Runs the program natively and preloaded, and returns both curves side by side.
pub(crate) fn soak(options: &Options) -> Result<String> {
    let stage = stage_release()?;
    let program = loops::churn(&stage)?;
    let folder = program.parent().context("a program lies in a folder")?;
    let trace = folder.join("churn.trace");
    let run = |preloaded: bool| {
        let mut command = Command::new(&program);
        command
            .arg(options.calls.to_string())
            .env("LD_LIBRARY_PATH", stage.root.join("standin"))
            .stdin(Stdio::null());
        if preloaded {
            command
                .env("LD_PRELOAD", &stage.preload)
                .env("STREAMCHECK_JSON", folder.join("churn.json"));
            if options.trace {
                command.env("STREAMCHECK_TRACE", &trace);
            }
        }
        let output = loops::finished(&mut command)?;
        curve(&String::from_utf8_lossy(&output.stdout))
    };
    let (native, preloaded) = (run(false)?, run(true)?);
    let mut text = format!("{:>12} {:>12} {:>12}\n", "calls", "native MiB", "preloaded");
    for ((calls, with), (_, without)) in preloaded.iter().zip(&native) {
        let _ = writeln!(text, "{calls:>12} {without:>12.1} {with:>12.1}");
    }
    if options.trace {
        let bytes = std::fs::metadata(&trace)?.len();
        let _ = writeln!(text, "the trace has {} MiB", bytes >> 20);
        std::fs::remove_file(&trace)?;
    }
    Ok(text)
}

/// Calls made, and MiB in memory, as the program prints them.
fn curve(text: &str) -> Result<Vec<(u64, f64)>> {
    text.lines()
        .map(|line| {
            let (calls, kib) = line.split_once(' ').context("two numbers a line")?;
            Ok((calls.parse()?, kib.parse::<f64>()? / 1024.0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_line_by_line() {
        assert_eq!(curve("5 1024\n10 1536\n").unwrap(), [(5, 1.0), (10, 1.5)]);
        assert!(curve("5\n").is_err());
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(Options::parse(&["10"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
        let options = Options::parse(&["5000", "--trace"]).unwrap();
        assert!(options.trace && options.calls == 5_000);
    }
}
