//! `rules` and `explain`.

use streamcheck_engine::{RULES, RuleCode};

use crate::failure::Failure;
use crate::output;

/// Lists every rule.
pub(crate) fn list() -> Result<u8, Failure> {
    let widest = RULES.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
    let lines: String = RULES
        .iter()
        .map(|rule| {
            let (code, name, level) = (rule.code, rule.name, rule.level.label());
            format!("{code}  {name:widest$}  {level:7}  {}\n", rule.summary)
        })
        .collect();
    output::out(&lines)?;
    Ok(0)
}

/// Shows a rule's page.
pub(crate) fn explain(name: &str) -> Result<u8, Failure> {
    let code: RuleCode = name.parse().map_err(|()| {
        Failure::new(
            crate::USAGE,
            format!("there is no rule {name:?}; `streamcheck rules` lists them"),
        )
    })?;
    output::out(&format!("{}\n", code.rule().page.trim_end()))?;
    Ok(0)
}
