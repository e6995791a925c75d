//! What a finding's fix is called in the framework that made the call.

use crate::json::Finding;

/// Advice for one rule, where a frame lies in a framework's library.
struct Advice {
    rule: &'static str,
    /// What the path of such a library has in it.
    module: &'static str,
    text: &'static str,
}

const ADVICE: &[Advice] = &[
    Advice {
        rule: "SC201",
        module: "/libtorch",
        text: "In PyTorch: `pin_memory=True` for the `DataLoader` or the tensor, or `tensor.pin_memory()` once.",
    },
    Advice {
        rule: "SC201",
        module: "/cupy",
        text: "In CuPy: arrays of `cupyx.empty_pinned` and the like.",
    },
    Advice {
        rule: "SC108",
        module: "/libtorch",
        text: "In PyTorch: `torch.cuda.current_stream().synchronize()`, or an event, after a copy with \
               `non_blocking=True` and before its tensor is used on the CPU.",
    },
    Advice {
        rule: "SC108",
        module: "/cupy",
        text: "In CuPy: `stream.synchronize()` after a copy with `blocking=False`.",
    },
];

/// Adds the advice to a finding whose stacks are whole.
pub(crate) fn advise(finding: &mut Finding) {
    let frames = || finding.events.iter().flat_map(|event| &event.stack);
    let made_by = |part: &str| {
        let mut modules = frames().filter_map(|frame| frame.module.as_deref());
        modules.any(|module| module.contains(part))
    };
    let advice = ADVICE
        .iter()
        .find(|advice| advice.rule == finding.rule && made_by(advice.module));
    if let Some(advice) = advice {
        finding.help.push(' ');
        finding.help.push_str(advice.text);
    }
}
