//! How streams, calls and orderings are put into words.

use std::cell::RefCell;

use streamcheck_model::{HOST_READ, HOST_WRITE, Names};

use crate::graph::Reason;
use crate::op::{Access, OpRef};
use crate::order::{Gap, Order, StreamId, StreamKind};
use crate::rules::RuleCode;
use crate::rules::violation::{Text, Violation};
use crate::{CallSite, Role, StreamFacts};

/// A stream of which nothing is remembered.
const GONE: &str = "a stream destroyed long before";

/// What a rule needs to describe a violation.
pub(crate) struct View<'a> {
    pub(crate) names: &'a Names,
    pub(crate) order: &'a Order,
    /// The operations that were named by their number.
    numbered: RefCell<Vec<OpRef>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(names: &'a Names, order: &'a Order) -> Self {
        Self {
            names,
            order,
            numbered: RefCell::default(),
        }
    }

    /// The operations that were named by their number so far and are none of `events`.
    pub(crate) fn mentioned(&self, events: &[(Role, OpRef)]) -> Vec<CallSite> {
        let mut sites: Vec<CallSite> = Vec::new();
        for op in self.numbered.borrow().iter() {
            let known = events
                .iter()
                .any(|(_, event)| event.sequence == op.sequence)
                || sites.iter().any(|site| site.sequence == op.sequence);
            if !known {
                sites.push(CallSite {
                    sequence: op.sequence,
                    kernel: self.kernel(*op),
                    stack: op.stack,
                });
            }
        }
        sites
    }

    /// The streams of operations, each once.
    pub(crate) fn streams(&self, ops: impl Iterator<Item = OpRef>) -> Vec<StreamFacts> {
        let mut ids: Vec<StreamId> = Vec::new();
        for id in ops.filter_map(|op| op.stream) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let facts = |id| {
            let facts = self.order.facts(id)?;
            Some(StreamFacts {
                name: self.stream_in_full(id),
                flags: match facts.kind {
                    StreamKind::Legacy => "legacy default",
                    StreamKind::PerThread(_) => "per-thread default",
                    StreamKind::Blocking => "blocking",
                    StreamKind::NonBlocking => "non-blocking",
                    StreamKind::Meeting => "all of a context",
                },
                device: facts.device,
                created: facts.created,
            })
        };
        ids.into_iter().filter_map(facts).collect()
    }

    fn kind(&self, id: StreamId) -> Option<StreamKind> {
        self.order.facts(id).map(|facts| facts.kind)
    }

    /// `stream 2`, or the name the application gave it.
    pub(crate) fn stream(&self, id: StreamId) -> String {
        let Some(facts) = self.order.facts(id) else {
            return GONE.into();
        };
        let name = self.names.text(facts.name);
        if !name.is_empty() {
            return format!("stream \"{name}\"");
        }
        match facts.kind {
            StreamKind::Legacy => "the legacy default stream".into(),
            StreamKind::Meeting => "the streams of a context".into(),
            StreamKind::PerThread(thread) => {
                format!("the per-thread default stream of thread {}", thread.0)
            }
            StreamKind::Blocking | StreamKind::NonBlocking => {
                format!("stream {}", facts.number)
            }
        }
    }

    /// `stream 2 (0x55d0, non-blocking)`.
    pub(crate) fn stream_in_full(&self, id: StreamId) -> String {
        let Some(facts) = self.order.facts(id) else {
            return GONE.into();
        };
        let kind = match facts.kind {
            StreamKind::Legacy => return "legacy default stream".into(),
            StreamKind::Meeting => return "all streams of a context".into(),
            StreamKind::PerThread(thread) => {
                return format!("per-thread default stream of thread {}", thread.0);
            }
            StreamKind::Blocking => "blocking",
            StreamKind::NonBlocking => "non-blocking",
        };
        format!("{} ({:#x}, {kind})", self.stream(id), facts.handle.0)
    }

    /// A stream, or the host.
    pub(crate) fn timeline(&self, id: Option<StreamId>) -> String {
        id.map_or_else(|| "the host".into(), |id| self.stream(id))
    }

    /// The kernel's name as it stands in the source.
    pub(crate) fn kernel(&self, op: OpRef) -> Option<String> {
        let mangled = self.names.text(op.kernel);
        (!mangled.is_empty()).then(|| demangle(mangled))
    }

    /// `kernel saxpy(float*, int)`, or the entry point.
    pub(crate) fn call(&self, op: OpRef) -> String {
        let kernel = self
            .kernel(op)
            .map(|kernel| format!("kernel `{}`", short_kernel(&kernel)));
        let api = self.names.text(op.api);
        match (kernel, op.replayed) {
            (Some(kernel), true) => format!("{kernel} of the graph that {api} launches"),
            (None, true) => format!("a node of the graph that {api} launches"),
            (Some(kernel), false) => kernel,
            (None, false) => match api {
                HOST_READ => "the host's read".to_owned(),
                HOST_WRITE => "the host's write".to_owned(),
                _ => api.to_owned(),
            },
        }
    }

    /// Adds what is to be told of graphs: the node at fault of a launch; that inside a
    /// graph only edges order.
    pub(crate) fn tell_graph(&self, violation: &Violation, text: &mut Text) {
        if let Some(node) = violation.node {
            let how = match node.stream {
                Some(_) => format!("captured from {}", self.work_at(node)),
                None => format!("made by {}", self.call_at(node)),
            };
            text.message.push_str(&format!("; the node was {how}"));
            text.events.insert(0, (Role::Node, node));
        }
        if violation.inside
            && let Some(after) = violation.after
        {
            let (from, to) = (self.work_at(after.op), self.work_at(violation.at));
            text.ordering = match violation.rule {
                RuleCode::SC102 => format!("In the graph, {to} comes after {from}."),
                _ => format!(
                    "Both are nodes of one graph, in which nothing but edges orders them, and no edges lead from \
                     {from} to {to}."
                ),
            };
            text.help = match (violation.rule, after.op.stream, violation.at.stream) {
                (RuleCode::SC102, ..) => format!("Let {from} come after {to} in the graph."),
                (_, Some(one), Some(other)) if one != other => {
                    self.missing_edge(after.op, violation.at, None)
                }
                _ => format!(
                    "Add the missing edge, from {from} to {to}, with {}.",
                    self.spell(
                        violation.at,
                        "cudaGraphAddDependencies",
                        "cuGraphAddDependencies"
                    )
                ),
            };
        }
    }

    /// `kernel saxpy(float*, int) on stream 2`.
    pub(crate) fn work(&self, op: OpRef) -> String {
        match op.stream {
            Some(id) => format!("{} on {}", self.call(op), self.stream(id)),
            None => self.call(op),
        }
    }

    /// As [`View::work`], with its place in the run.
    pub(crate) fn work_at(&self, op: OpRef) -> String {
        self.numbered.borrow_mut().push(op);
        format!("{} (operation {})", self.work(op), op.sequence)
    }

    /// The call alone, with its place in the run.
    pub(crate) fn call_at(&self, op: OpRef) -> String {
        self.numbered.borrow_mut().push(op);
        format!("{} (operation {})", self.call(op), op.sequence)
    }

    /// How far `later` is ordered after the timeline of `earlier`.
    pub(crate) fn ordering(&self, gap: Option<Gap>, earlier: &Access) -> String {
        let Some(gap) = gap else { return String::new() };
        let later = self.order.stream_of(gap.now.slot);
        let (who, whom) = (self.timeline(later), self.timeline(earlier.op.stream));
        let mut text = if gap.known.time == 0 {
            format!("Nothing orders {who} after {whom}.")
        } else {
            let path = self.order.path(gap);
            let steps: Vec<String> = path
                .iter()
                // That a call comes after what its thread waited for goes without saying.
                .filter(|link| link.reason != Reason::Submission)
                .map(|link| match (link.call, link.reason) {
                    // No operation of its own.
                    (Some(call), Reason::HostFunction) => self.work(call),
                    (Some(call), _) => self.work_at(call),
                    (None, Reason::LegacyStream) => "the legacy default stream".to_owned(),
                    (None, reason) => reason.label().to_owned(),
                })
                .collect();
            let through = if steps.is_empty() {
                String::new()
            } else {
                format!(", through {},", steps.join(", then "))
            };
            format!(
                "{who} does wait for {whom}{through} but only for what came before {}.",
                self.work_at(earlier.op)
            )
        };
        if let (Some(a), Some(b)) = (later, earlier.op.stream) {
            let kinds = [self.kind(a), self.kind(b)];
            if kinds.contains(&Some(StreamKind::Legacy))
                && kinds.contains(&Some(StreamKind::NonBlocking))
            {
                let free = if self.kind(a) == Some(StreamKind::NonBlocking) {
                    a
                } else {
                    b
                };
                text.push_str(&format!(
                    " {} was created with {}, so it does not wait for the legacy default stream, nor that for it.",
                    capitalize(self.stream(free)),
                    self.spell(earlier.op, "cudaStreamNonBlocking", "CU_STREAM_NON_BLOCKING"),
                ));
            }
        }
        if let Some(overtaken) = later.and_then(|id| self.order.overtaken(id, earlier.op)) {
            text.push_str(&format!(
                " The wait, {}, is for the event as it was last recorded, by {}; that replaced the record by {}.",
                self.work_at(overtaken.wait),
                self.work_at(overtaken.record),
                self.work_at(overtaken.replaced),
            ));
        }
        if earlier.op.staged {
            text.push_str(&format!(
                " {} from pageable memory returns once the bytes are staged; the transfer to the device may still be \
                 pending.",
                self.names.text(earlier.op.api)
            ));
        }
        capitalize(text)
    }

    /// The calls that would put `later` after `earlier`; `gap` is how far it is.
    pub(crate) fn missing_edge(&self, earlier: OpRef, later: OpRef, gap: Option<Gap>) -> String {
        let synchronize = self.spell(later, "cudaStreamSynchronize", "cuStreamSynchronize");
        // On a stream, but ordered by what the host knows alone.
        let early = gap.is_some_and(|gap| self.order.stream_of(gap.now.slot).is_none());
        if let Some(overtaken) = later
            .stream
            .and_then(|id| self.order.overtaken(id, earlier))
        {
            return format!(
                "Record another event in {}, or leave that out, so that {} waits for {}.",
                self.call_at(overtaken.record),
                self.call_at(overtaken.wait),
                self.work_at(overtaken.replaced),
            );
        }
        match (earlier.stream, later.stream) {
            (Some(from), Some(_)) if early => format!(
                "Before {}, call {synchronize}({}), or let that copy read its source in stream order \
                 ({}).",
                self.work_at(later),
                self.argument(from, later),
                self.spell(
                    later,
                    "cudaMemcpySrcAccessOrderStream",
                    "CU_MEMCPY_SRC_ACCESS_ORDER_STREAM"
                ),
            ),
            (Some(from), Some(to)) => format!(
                "After {}, call {}(event, {}){}; before {}, call {}({}, event{}){}.",
                self.work_at(earlier),
                self.spell(later, "cudaEventRecord", "cuEventRecord"),
                self.argument(from, later),
                self.thread_of(from, later),
                self.work_at(later),
                self.spell(later, "cudaStreamWaitEvent", "cuStreamWaitEvent"),
                self.argument(to, later),
                self.spell(later, "", ", 0"),
                self.thread_of(to, later),
            ),
            (Some(_), None) => self.wait_before(&self.work_at(later), earlier, later),
            (None, _) => format!(
                "Make {} before {}.",
                self.work_at(earlier),
                self.work_at(later)
            ),
        }
    }

    /// The calls by which the host would wait for `earlier` before what `later` does.
    pub(crate) fn wait_before(&self, what: &str, earlier: OpRef, later: OpRef) -> String {
        let Some(from) = earlier.stream else {
            return String::new();
        };
        format!(
            "Before {what}, call {}({}){}, or {}(event) for an event recorded after {}.",
            self.spell(later, "cudaStreamSynchronize", "cuStreamSynchronize"),
            self.argument(from, later),
            self.thread_of(from, later),
            self.spell(later, "cudaEventSynchronize", "cuEventSynchronize"),
            self.work_at(earlier),
        )
    }

    /// The entry point.
    pub(crate) fn name(&self, op: OpRef) -> &str {
        self.names.text(op.api)
    }

    /// Another way to have a free come after `earlier`: to free on its stream.
    pub(crate) fn or_free_there(&self, earlier: OpRef, free: OpRef) -> String {
        match (earlier.stream, free.stream) {
            (Some(stream), Some(other)) if stream != other => format!(
                " Or free on {}, if no other stream uses the memory.",
                self.stream(stream)
            ),
            _ => String::new(),
        }
    }

    /// A stream as an argument in advice, as the application of `op` would spell it.
    fn argument(&self, id: StreamId, op: OpRef) -> String {
        match self.kind(id) {
            Some(StreamKind::Legacy) => self
                .spell(op, "cudaStreamLegacy", "CU_STREAM_LEGACY")
                .to_owned(),
            Some(StreamKind::PerThread(_)) => self
                .spell(op, "cudaStreamPerThread", "CU_STREAM_PER_THREAD")
                .to_owned(),
            _ => self
                .stream(id)
                .trim_start_matches("the ")
                .replace(' ', "_")
                .replace('"', ""),
        }
    }

    /// A per-thread default stream is named by its own thread alone.
    fn thread_of(&self, id: StreamId, op: OpRef) -> String {
        match self.kind(id) {
            Some(StreamKind::PerThread(thread)) if thread.0 != op.thread => {
                format!(" on thread {}", thread.0)
            }
            _ => String::new(),
        }
    }

    /// The runtime's or the driver's spelling, whichever the application uses.
    pub(crate) fn spell(
        &self,
        op: OpRef,
        runtime: &'static str,
        driver: &'static str,
    ) -> &'static str {
        let api = self.names.text(op.api);
        if api.starts_with("cu") && !api.starts_with("cuda") {
            driver
        } else {
            runtime
        }
    }
}

/// `1 byte`, `1,024 bytes`.
pub(crate) fn bytes(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text.push_str(if count == 1 { " byte" } else { " bytes" });
    text
}

fn capitalize(text: String) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The source form of a C++ or Rust symbol; other names as they are.
fn demangle(name: &str) -> String {
    // A short plain name (`f`) would be taken for a type's.
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    match rustc_demangle::try_demangle(name) {
        Ok(symbol) => format!("{symbol:#}"),
        Err(_) => name.to_owned(),
    }
}

/// The longest name of a kernel that stands in a sentence as it is, in characters.
const LONGEST_KERNEL: usize = 80;

/// A kernel's name for a sentence: one that is long loses what is in its brackets, as in
/// `at::native::reduce_kernel<…>(…)`.
#[must_use]
pub fn short_kernel(name: &str) -> String {
    if name.chars().count() <= LONGEST_KERNEL {
        return name.to_owned();
    }
    let mut short = String::new();
    let mut depth = 0_usize;
    for c in name.strip_prefix("void ").unwrap_or(name).chars() {
        match c {
            '<' | '(' => {
                if depth == 0 {
                    short.push(c);
                    short.push('…');
                }
                depth += 1;
            }
            '>' | ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    short.push(c);
                }
            }
            _ if depth == 0 => short.push(c),
            _ => {}
        }
    }
    // Operators in a name are brackets, too, and may have misled.
    if depth > 0 || short.chars().count() > LONGEST_KERNEL {
        short = name.chars().take(LONGEST_KERNEL - 1).collect();
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_kernel_names_lose_what_is_in_brackets() {
        let long = "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<double>, \
                    std::array<char*, 1ul> >(int, at::native::FillFunctor<double>, std::array<char*, 1ul>)";
        assert_eq!(
            short_kernel(long),
            "at::native::vectorized_elementwise_kernel<…>(…)"
        );
        assert_eq!(short_kernel("saxpy(int, float*)"), "saxpy(int, float*)");
        for odd in [
            "<".repeat(100),
            "é".repeat(100),
            format!("{}>(", "a<b".repeat(40)),
        ] {
            assert!(
                short_kernel(&odd).chars().count() <= LONGEST_KERNEL,
                "{odd}"
            );
        }
    }

    #[test]
    fn bytes_are_grouped() {
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_048_576), "1,048,576 bytes");
    }

    #[test]
    fn names_are_read_or_kept() {
        assert_eq!(
            demangle("_Z5saxpyfPKfPf"),
            "saxpy(float, float const*, float*)"
        );
        for name in ["add_kernel", "f", "a", "St"] {
            assert_eq!(demangle(name), name);
        }
    }
}
