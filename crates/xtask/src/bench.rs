//! `cargo xtask bench`: what the preload library adds to a CUDA call.
//!
//! Each round runs every loop natively and in each way of preloading in turn, so that a machine
//! which is busy for a while is busy for all of them. What is told is the median over the rounds
//! of the difference to the native run of the same round.

use std::fmt::Write as _;
use std::thread;

use anyhow::{Context as _, Result, bail};
use fixtures::loops::{Amount, LOOPS, Loop, Over, Program, SUBMIT, Tool};
use fixtures::stage_release;
use serde_json::{Value, json};

/// Iterations of a batch, and batches of a run.
const AMOUNT: Amount = Amount {
    iterations: 50_000,
    batches: 4,
    threads: 1,
};

/// Threads that submit at once.
const THREADS: u32 = 8;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    json: bool,
    rounds: u32,
    over: Over,
    loops: Vec<Loop>,
}

impl Options {
    /// Reads the words after `bench`.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            json: false,
            rounds: 5,
            over: Over::Standin,
            loops: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} takes a value"))
            };
            match word {
                "--json" => options.json = true,
                "--rounds" => {
                    let value = value()?;
                    let rounds = value.parse().ok().filter(|rounds| *rounds > 0);
                    options.rounds =
                        rounds.with_context(|| format!("--rounds takes a number, not {value}"))?;
                }
                "--over" => {
                    options.over = match *value()? {
                        "standin" => Over::Standin,
                        "static-sim" => Over::StaticSim,
                        other => bail!("--over takes standin or static-sim, not {other}"),
                    }
                }
                "--loop" => {
                    let name = *value()?;
                    let mut all = LOOPS.iter().chain([&SUBMIT]);
                    let found = all.find(|work| work.name == name);
                    options
                        .loops
                        .push(*found.with_context(|| format!("no loop is called {name}"))?);
                }
                other => bail!("bench does not take {other}"),
            }
        }
        if options.loops.is_empty() {
            options.loops = LOOPS.iter().copied().chain([SUBMIT]).collect();
        }
        Ok(options)
    }
}

/// One loop with one number of threads.
struct Row {
    work: Loop,
    threads: u32,
    /// Nanoseconds an iteration, natively, a round each.
    native: Vec<f64>,
    /// What each way of preloading adds to that.
    added: Vec<(Tool, Vec<f64>)>,
}

/// Builds what is measured, measures, and returns the table, or the JSON.
pub(crate) fn bench(options: &Options) -> Result<String> {
    let stage = stage_release()?;
    let program = Program::build(&stage, options.over)?;
    let cores = thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut rows: Vec<Row> = options
        .loops
        .iter()
        .flat_map(|&work| {
            let threads: &[u32] = if work == SUBMIT { &[1, THREADS] } else { &[1] };
            threads.iter().map(move |&threads| Row {
                work,
                threads,
                native: Vec::new(),
                added: Tool::PRELOADED.map(|tool| (tool, Vec::new())).into(),
            })
        })
        .collect();
    for _ in 0..options.rounds {
        for row in &mut rows {
            let time = |tool| {
                let amount = Amount {
                    threads: row.threads,
                    ..AMOUNT
                };
                let times = program.measure(tool, row.work, amount)?;
                // Of one thread, the time that it had a processor. Of several, what they
                // waited for each other counts as well.
                anyhow::Ok(match row.threads {
                    1 => times.processor,
                    several => times.wall * f64::from(several.min(cores)),
                })
            };
            let native = time(Tool::Native)?;
            for (tool, added) in &mut row.added {
                added.push(time(*tool)? - native);
            }
            row.native.push(native);
        }
    }
    let rows: Vec<_> = rows.iter().collect();
    if options.json {
        let value = as_json(&rows, options, cores);
        return Ok(format!("{value:#}\n"));
    }
    Ok(table(&rows, options, cores))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn table(rows: &[&Row], options: &Options, cores: u32) -> String {
    let mut text = format!(
        "ns a loop's iteration took natively, and ns added to it, over {}, {} rounds, {cores} cores\n\n",
        options.over.name(),
        options.rounds,
    );
    let mut line = |title: &str, calls: &str, cells: &[String]| {
        let _ = write!(text, "{title:<38} {calls:>5}");
        for cell in cells {
            let _ = write!(text, " {cell:>8}");
        }
        text.push('\n');
    };
    let mut heads = vec![Tool::Native.to_string()];
    heads.extend(Tool::PRELOADED.map(|tool| tool.to_string()));
    line("loop", "calls", &heads);
    for row in rows {
        let mut title = row.work.title.to_owned();
        if row.work == SUBMIT {
            let _ = write!(title, ", {}", row.threads);
        }
        let mut cells = vec![format!("{:.1}", median(&row.native))];
        cells.extend(
            row.added
                .iter()
                .map(|(_, added)| format!("{:.1}", median(added))),
        );
        line(&title, &row.work.calls.to_string(), &cells);
    }
    if let Some(ratios) = ratios(rows) {
        let mut cells = vec![String::new()];
        cells.extend(ratios.iter().map(|(_, ratio)| format!("{ratio:.2} x")));
        line("  of several threads, to one", "", &cells);
    }
    text
}

/// What submitting from many threads adds to a call, relative to one thread.
fn ratios(rows: &[&Row]) -> Option<Vec<(Tool, f64)>> {
    let of = |threads| {
        rows.iter()
            .find(|row| row.work == SUBMIT && row.threads == threads)
    };
    let (one, several) = (of(1)?, of(THREADS)?);
    let pairs = one.added.iter().zip(&several.added);
    Some(
        pairs
            .map(|((tool, one), (_, several))| (*tool, median(several) / median(one)))
            .collect(),
    )
}

fn as_json(rows: &[&Row], options: &Options, cores: u32) -> Value {
    let loops: Vec<Value> = rows
        .iter()
        .map(|row| {
            let added: serde_json::Map<_, _> = row
                .added
                .iter()
                .map(|(tool, added)| {
                    let calls = f64::from(row.work.calls);
                    let value = json!({
                        "ns": median(added),
                        "ns-per-call": median(added) / calls,
                        "rounds": added,
                    });
                    (tool.to_string(), value)
                })
                .collect();
            json!({
                "loop": row.work.name,
                "title": row.work.title,
                "calls": row.work.calls,
                "threads": row.threads,
                "native-ns": median(&row.native),
                "added": added,
            })
        })
        .collect();
    let ratios: serde_json::Map<_, _> = ratios(rows)
        .into_iter()
        .flatten()
        .map(|(tool, ratio)| (tool.to_string(), json!(ratio)))
        .collect();
    json!({
        "schema": "streamcheck-bench/1",
        "over": options.over.name(),
        "rounds": options.rounds,
        "cores": cores,
        "loops": loops,
        "threads-to-one": ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn unknown_words_are_refused() {
        let refused = |words: &[&str]| Options::parse(words).unwrap_err().to_string();
        assert_eq!(refused(&["--fast"]), "bench does not take --fast");
        assert_eq!(refused(&["--rounds"]), "--rounds takes a value");
        assert_eq!(refused(&["--loop", "x"]), "no loop is called x");
        assert_eq!(
            Options::parse(&["--loop", "copy", "--json"]).unwrap().loops,
            [LOOPS[7]]
        );
    }
}
