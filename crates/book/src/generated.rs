//! Pages that are made from the declarations in the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use streamcheck_engine::RULES;
use streamcheck_report::OPTIONS;

/// A generated page.
#[derive(Debug)]
pub struct Page {
    /// Its path in the repository.
    pub path: &'static str,
    /// Its text.
    pub text: String,
}

impl Page {
    /// Writes the page where it belongs; says whether that changed anything.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, root: &Path) -> Result<bool> {
        let place = root.join(self.path);
        if fs::read_to_string(&place).is_ok_and(|old| old == self.text) {
            return Ok(false);
        }
        fs::write(&place, &self.text).with_context(|| format!("write {}", place.display()))?;
        Ok(true)
    }
}

/// All of them.
#[must_use]
pub fn pages() -> Vec<Page> {
    vec![
        Page {
            path: "docs/options.md",
            text: options(),
        },
        Page {
            path: "docs/rules.md",
            text: rules(),
        },
    ]
}

fn options() -> String {
    let mut text = String::from(
        "# Options\n\n\
         Every option has one name and three spellings: `--fail-on` on the command line of `streamcheck`, \
         `STREAMCHECK_FAIL_ON` in the environment, and `fail-on` in `streamcheck.toml`, which is looked for from the \
         working directory upward, or named by `STREAMCHECK_CONFIG`. The command line beats the environment, the \
         environment beats the file.\n\n\
         A value that makes no sense is one line on standard error. A preloaded program then goes on with the \
         default; `streamcheck` itself refuses with exit code 2.\n\n\
         | option | takes | default | meaning |\n| --- | --- | --- | --- |\n",
    );
    for option in OPTIONS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            option.name,
            cell(option.takes),
            cell(option.default),
            cell(option.meaning)
        );
    }
    text.push_str(
        "\n`streamcheck run --help` shows the same, `streamcheck report --help` and `streamcheck replay --help` \
         those that apply there.\n",
    );
    text
}

fn rules() -> String {
    let mut text = String::from(
        "# Rules\n\n\
         A code never changes its meaning. `level` in [the options](options.md) sets a rule to `off`, `warning` or \
         `error`; `streamcheck explain SC101` prints a rule's page.\n\n\
         | rule | name | level | finds |\n| --- | --- | --- | --- |\n",
    );
    for rule in RULES {
        let _ = writeln!(
            text,
            "| [{0}](rules/{0}.md) | {1} | {2} | {3} |",
            rule.code,
            rule.name,
            rule.level.label(),
            cell(rule.summary)
        );
    }
    text
}

/// Text that stays within a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
