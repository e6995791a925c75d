//! What well-known libraries do on purpose, which their users can do nothing about.
//!
//! Only advice is withheld here, never an error, and only where the library itself made
//! the call. The report keeps such findings, as suppressed, with the reason.

use streamcheck_engine::{Role, RuleCode};

use crate::json::Finding;

struct Known {
    rule: RuleCode,
    /// How the library's file name begins.
    file_name: &'static str,
    reason: &'static str,
}

/// Seen with NCCL 2.27 under PyTorch.
const KNOWN: &[Known] = &[
    Known {
        rule: RuleCode::SC112,
        file_name: "libnccl.so",
        reason: "NCCL waits for its own events from the first use on, recorded or not",
    },
    Known {
        rule: RuleCode::SC201,
        file_name: "libnccl.so",
        reason: "NCCL sets up its communicators with pageable memory",
    },
];

/// What lies between a library's own code and the call that was seen, by the beginning of
/// the file name; a statically linked runtime is the library itself.
const BELOW: &[&str] = &["libstreamcheck.", "libcudart.", "libcuda."];

/// Why a finding is no news, if it is none; its stacks are whole.
pub(crate) fn reason(finding: &Finding) -> Option<String> {
    let known = KNOWN.iter().find(|known| {
        known.rule.to_string() == finding.rule
            && finding
                .events
                .iter()
                .filter(|event| matches!(event.role, Role::Event | Role::Copy))
                .filter_map(|event| {
                    let mut modules = event.stack.iter().map(|frame| frame.module_name());
                    modules.find(|module| {
                        !module
                            .is_some_and(|file| BELOW.iter().any(|below| file.starts_with(below)))
                    })?
                })
                .any(|file| file.starts_with(known.file_name))
    });
    known.map(|known| known.reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Event;
    use crate::symbols::Frame;

    fn finding(rule: &str, module: &str) -> Finding {
        let frame = |module: &str| Frame {
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        Finding {
            rule: rule.to_owned(),
            name: String::new(),
            level: "warning".to_owned(),
            count: 1,
            process: None,
            ranks: Vec::new(),
            message: String::new(),
            ordering: String::new(),
            help: String::new(),
            allocation: None,
            events: vec![Event {
                role: Role::Event,
                api: "cuStreamWaitEvent".to_owned(),
                stream: None,
                kernel: None,
                device: 0,
                thread: 1,
                sequence: 1,
                stack: vec![
                    frame("/usr/lib/libstreamcheck.so"),
                    frame("/site/lib/libcudart.so.12"),
                    frame(module),
                    frame("/opt/libnccl.so.2"),
                ],
            }],
            streams: Vec::new(),
            timeline: streamcheck_engine::Timeline::default(),
            suppressed: None,
            baseline: false,
        }
    }

    #[test]
    fn only_the_librarys_own_calls_are_known() {
        assert!(reason(&finding("SC112", "/site/nvidia/nccl/lib/libnccl.so.2")).is_some());
        assert!(
            reason(&finding("SC112", "/opt/app")).is_none(),
            "it calls NCCL"
        );
        assert!(reason(&finding("SC109", "/opt/libnccl.so.2")).is_none());
    }

    #[test]
    fn errors_are_never_withheld() {
        for known in KNOWN {
            assert_ne!(known.rule.rule().level, streamcheck_engine::Level::Error);
        }
    }
}
