//! What the tests of several tasks need.

use serde_json::Value;

/// The codes of a report's findings.
pub(crate) fn rules(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().map_or(&[][..], Vec::as_slice);
    findings
        .iter()
        .filter_map(|finding| finding["rule"].as_str())
        .collect()
}
