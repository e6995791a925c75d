//! What a kernel does with the pointers among its parameters, read from its PTX.
//!
//! A kernel's signature says `const` at best; its code says whether a pointer is read,
//! written or only added to atomically, whether a value in a structure is looked at at
//! all, and whether an integer parameter moves the place, as in `data[offset + i]`. For
//! each register this finds out which parameters its value comes from, whatever the order
//! of the instructions, and for each access where its address comes from. A value that
//! goes where it cannot be followed (a call, memory, an instruction not known here)
//! *escapes*: nothing is said of it.
//!
//! Instructions are those of the PTX ISA reference, "Instruction Set".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;

use crate::Param;
use crate::index::{Indices, Spread};
use crate::instruction::{
    Instruction, instructions, is_negative, is_strong, names, place, size_of,
};
use crate::ptx::Entry;

/// Ways of using an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// It is read through.
    pub reads: bool,
    /// It is written through.
    pub writes: bool,
    /// It is updated through atomically, or by stores that threads synchronize with.
    pub updates: bool,
    /// It is read through by loads that threads synchronize with.
    pub polls: bool,
}

/// What is done with the value of an 8-byte slot of the parameters as an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whatever else the parameters hold.
    pub surely: Uses,
    /// At most: where a `bool` parameter is set, or another pointer is not chosen.
    pub perhaps: Uses,
    /// It goes where it cannot be followed.
    pub escapes: bool,
    /// Something may be taken off it first, at every use, so that it may be the end of what
    /// is used.
    pub back: bool,
    /// Parameters that are added to it: with other values it means another place.
    pub shifts: Vec<Param>,
    /// What from it on is read at least; `None` where nothing is.
    pub read: Option<Spread>,
    /// What is written.
    pub written: Option<Spread>,
}

impl Access {
    fn note_spread(&mut self, spread: Spread, note: impl Fn(&mut Uses)) {
        let mut uses = Uses::default();
        note(&mut uses);
        for (used, known) in [
            (uses.reads, &mut self.read),
            (uses.writes, &mut self.written),
        ] {
            if used {
                *known = Some(known.map_or(spread, |known| known.join(spread)));
            }
        }
    }
}

/// By the slot's place in the parameter buffer, in bytes, and whether parameters are added to
/// it: the same pointer may be used both ways. Slots that are not listed are not used as
/// addresses.
pub type Accesses = BTreeMap<(usize, bool), Access>;

/// What a kernel's code tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// What it does with its parameters.
    pub accesses: Accesses,
    /// It uses addresses that lie in memory: what for is not known before it runs.
    pub follows: bool,
}

/// A place among the parameters, and its size, in bytes.
type Slot = (usize, usize);

/// A test of a `bool` parameter, and one side of it.
type Arm = (usize, bool);

/// How a parameter enters a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Times what is 0 in the grid's first thread, or in a loop's first round.
    Scale,
    /// As a summand.
    Shift,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Value {
    slots: BTreeMap<Slot, Part>,
    /// It depends on the thread's place in the grid, on a loop's round, or on memory.
    varies: bool,
    /// Something may have been taken off.
    less: bool,
    /// An address may have been read from memory for it.
    loaded: bool,
}

impl Value {
    fn varying() -> Self {
        Self {
            varies: true,
            ..Self::default()
        }
    }

    /// Any part of a parameter of which the address is taken.
    fn of(param: Param) -> Self {
        /// Larger ones would take too long to compare at each launch.
        const LARGEST: usize = 256;
        let mut value = Self::varying();
        if param.size <= LARGEST {
            let end = param.offset + param.size;
            for at in (param.offset..end).step_by(8) {
                value.slots.insert((at, (end - at).min(8)), Part::Shift);
            }
        }
        value
    }

    fn join(&mut self, other: &Self) {
        for (slot, part) in &other.slots {
            let mine = self.slots.entry(*slot).or_insert(*part);
            *mine = (*mine).max(*part);
        }
        self.varies |= other.varies;
        self.less |= other.less;
        self.loaded |= other.loaded;
    }

    /// Whether taking something off may lead to what lies before the memory: off the
    /// pointer itself, or off a number that no index was added to.
    fn leads_back(&self) -> bool {
        let small = self.slots.keys().any(|slot| slot.1 < 8);
        let wide = self.slots.keys().any(|slot| slot.1 == 8);
        !small && (wide || !self.varies)
    }

    /// The same, times something that begins at 0.
    fn scaled(mut self) -> Self {
        for part in self.slots.values_mut() {
            *part = Part::Scale;
        }
        self.varies = true;
        self
    }

    fn product(&self, other: &Self) -> Self {
        let mut product = Self::default();
        for (one, by) in [(self, other), (other, self)] {
            let part = one.clone();
            // What begins elsewhere than at 0 keeps a summand one.
            let from_zero = by.varies && by.slots.values().all(|part| *part == Part::Scale);
            product.join(&if from_zero { part.scaled() } else { part });
        }
        product
    }
}

/// What `entry` does with its parameters; `None` where that is not understood, or where it
/// uses none at all, as code for another architecture may be left empty.
pub(crate) fn code(entry: &Entry<'_>) -> Option<Code> {
    // Longer code than people write; what a generator made is not worth the time.
    const LONGEST: usize = 1 << 20;
    let params = entry
        .params
        .as_ref()
        .filter(|_| entry.body.len() <= LONGEST)?;
    let instructions: Vec<Instruction<'_>> = instructions(entry.body).collect();
    let params = params.iter().map(|(name, param)| (*name, *param)).collect();
    let cycles = cycles(&instructions);
    let mut kernel = Kernel {
        indices: Indices::of(&instructions, &params, &cycles),
        params,
        registers: HashMap::new(),
        cycles,
        addresses: BTreeSet::new(),
        found: BTreeMap::new(),
        sides: HashMap::new(),
        ahead: BTreeSet::new(),
        follows: false,
        work: 0,
    };
    // Each pass adds parameters to registers, of which there are few.
    const PASSES: usize = 64;
    let settled = (0..PASSES).any(|_| {
        !instructions.iter().fold(false, |changed, instruction| {
            kernel.flow(instruction) | changed
        })
    });
    if !settled || kernel.work > Kernel::MOST_WORK {
        return None;
    }
    let arms = kernel.arms(&instructions);
    for (instruction, arm) in instructions.iter().zip(arms) {
        kernel.access(instruction, arm);
    }
    kernel.settle();
    let used = kernel
        .found
        .values()
        .any(|access| access.perhaps != Uses::default() || access.escapes);
    used.then_some(Code {
        accesses: kernel.found,
        follows: kernel.follows,
    })
}

struct Kernel<'a> {
    params: HashMap<&'a str, Param>,
    registers: HashMap<&'a str, Value>,
    /// Registers that depend on themselves, by the loop that they are of.
    cycles: HashMap<&'a str, usize>,
    indices: Indices<'a>,
    /// Slots that are taken for addresses (`cvta`).
    addresses: BTreeSet<Slot>,
    found: Accesses,
    /// What is done on either side of a test.
    sides: HashMap<((usize, bool), usize), [Uses; 2]>,
    /// Slots through which something at or after the pointer is used.
    ahead: BTreeSet<usize>,
    /// See [`Code::follows`].
    follows: bool,
    /// Slots looked at so far.
    work: usize,
}

impl<'a> Kernel<'a> {
    /// Past it the code counts as not understood: a first launch must not take long.
    const MOST_WORK: usize = 1_000_000;

    /// Where an operand's value comes from.
    fn value(&mut self, operand: &str) -> Value {
        let mut value = Value::default();
        for name in names(operand) {
            if let Some(param) = self.params.get(name) {
                value.join(&Value::of(*param));
            } else if let Some(known) = self.registers.get(name) {
                self.work += 1 + known.slots.len();
                value.join(known);
                value.varies |= self.cycles.contains_key(name);
            } else if let Some(special) = name.strip_prefix('%') {
                let special = special.split('.').next().unwrap_or_default();
                value.varies |= VARYING.contains(&special);
            }
        }
        value
    }

    fn joined(&mut self, operands: &[&str]) -> Value {
        let mut value = Value::default();
        for operand in operands {
            let one = self.value(operand);
            value.join(&one);
        }
        value
    }

    fn assign(&mut self, operand: &'a str, value: &Value) -> bool {
        let mut changed = false;
        for name in names(operand) {
            let register = self.registers.entry(name).or_default();
            let before = register.clone();
            register.join(value);
            changed |= *register != before;
        }
        changed
    }

    /// The loop that both are of.
    fn carries(&self, operand: &str, target: &str) -> bool {
        let of = |operand: &str| names(operand).next().and_then(|name| self.cycles.get(name));
        of(operand).is_some() && of(operand) == of(target)
    }

    /// A sum: what a loop adds in every round to what it carries is added 0 times at first.
    fn sum(&mut self, target: &str, terms: &[(&str, Value)]) -> Value {
        let carried = terms
            .iter()
            .any(|(operand, _)| self.carries(operand, target));
        let mut sum = Value::default();
        for (operand, term) in terms {
            let stride = carried && !self.carries(operand, target);
            let term = term.clone();
            sum.join(&if stride { term.scaled() } else { term });
        }
        sum
    }

    /// Passes values on through one instruction; true if that told anything new.
    fn flow(&mut self, instruction: &Instruction<'a>) -> bool {
        let operands = &instruction.operands;
        let Some((&target, sources)) = operands.split_first() else {
            return false;
        };
        if self.work > Self::MOST_WORK {
            return false;
        }
        let value = match (instruction.name, sources) {
            ("ld", _) if instruction.full.starts_with("ld.param") => {
                return self.load_param(instruction, target, sources);
            }
            // No register is set.
            (
                "st" | "red" | "bra" | "bar" | "barrier" | "ret" | "exit" | "prefetch"
                | "prefetchu" | "membar" | "fence" | "trap" | "cp" | "call" | "brx",
                _,
            ) => return false,
            ("ld" | "ldu", _) => Value {
                loaded: is_wide(instruction.full) && !is_apart(instruction.full),
                ..Value::varying()
            },
            ("atom" | "tex" | "tld4" | "suld" | "ldmatrix" | "vote" | "match", _) => {
                Value::varying()
            }
            ("mul" | "shl", [a, b, ..]) => {
                let (x, y) = (self.value(a), self.value(b));
                let mut product = x.product(&y);
                product.less |= is_negative(a) || is_negative(b);
                product
            }
            ("mad" | "fma", [a, b, c, ..]) => {
                let (x, y, z) = (self.value(a), self.value(b), self.value(c));
                let product = x.product(&y);
                let less = is_negative(c) && product.leads_back();
                let mut sum = self.sum(target, &[(a, product), (c, z)]);
                sum.less |= less;
                sum
            }
            ("add", [a, b, ..]) => {
                let (x, y) = (self.value(a), self.value(b));
                let less = is_negative(b) && x.leads_back() || is_negative(a) && y.leads_back();
                let mut sum = self.sum(target, &[(a, x), (b, y)]);
                sum.less |= less;
                sum
            }
            ("sub", [a, b, ..]) => {
                let (x, y) = (self.value(a), self.value(b));
                let less = x.leads_back();
                let mut difference = self.sum(target, &[(a, x), (b, y)]);
                difference.less |= less;
                difference
            }
            // What limits an index, or takes it apart, is 0 where that is.
            ("div" | "rem" | "and" | "shr" | "min" | "max" | "bfe", [a, b, rest @ ..]) => {
                let (x, y) = (self.value(a), self.value(b));
                let varies = x.varies || y.varies;
                let mut value = self.joined(rest);
                for part in [x, y] {
                    let limits = varies && !part.varies;
                    value.join(&if limits { part.scaled() } else { part });
                }
                value
            }
            ("neg" | "not", [a, ..]) => Value {
                less: true,
                ..self.value(a)
            },
            // Which of two places it is depends on what the last operand does; of two pointers
            // each may be used.
            ("selp" | "slct", [a, b, choice, ..]) => {
                let mut value = self.joined(&[a, b]);
                let choice = self.value(choice);
                let pointers = value.slots.keys().filter(|slot| slot.1 == 8).count();
                if !choice.varies && pointers < 2 {
                    value.join(&choice);
                }
                value
            }
            // The value of another lane's register.
            ("shfl", [a, ..]) => {
                let mut value = self.value(a);
                value.varies = true;
                value
            }
            ("cvta", [a, ..]) => {
                let value = self.value(a);
                let mut told = false;
                for slot in value.slots.keys() {
                    told |= self.addresses.insert(*slot);
                }
                return self.assign(target, &value) | told;
            }
            _ => self.joined(sources),
        };
        self.assign(target, &value)
    }

    /// `ld.param.v2.u64 {%rd1, %rd2}, [param+8]`.
    fn load_param(
        &mut self,
        instruction: &Instruction<'a>,
        target: &'a str,
        sources: &[&str],
    ) -> bool {
        let source = sources.first().copied().unwrap_or_default();
        let (name, offset) = place(source);
        let Some(param) = self.params.get(name).copied() else {
            // What a call returned, or some part of a parameter.
            let mut value = self.value(source);
            value.varies = true;
            return self.assign(target, &value);
        };
        let size = size_of(instruction.full);
        let mut changed = false;
        for (index, register) in names(target).enumerate() {
            let mut value = Value::default();
            // Beyond the parameter there is nothing to load.
            let at = offset.zip(size).and_then(|(offset, size)| {
                let start = offset.checked_add(index * size)?;
                let end = start.checked_add(size)?;
                (end <= param.size).then_some((param.offset + start, size))
            });
            if let Some(slot) = at {
                value.slots.insert(slot, Part::Shift);
            }
            changed |= self.assign(register, &value);
        }
        changed
    }

    /// For each instruction, which `bool` parameter's test decides whether it is executed,
    /// by the test's place, and on which side of it: by its own predicate, or because a
    /// branch ahead leads past it.
    fn arms(&mut self, instructions: &[Instruction<'a>]) -> Vec<Option<Arm>> {
        let labels: HashMap<&str, usize> = instructions
            .iter()
            .enumerate()
            .flat_map(|(place, instruction)| {
                instruction.labels.iter().map(move |label| (*label, place))
            })
            .collect();
        let mut arms = vec![None; instructions.len()];
        for (place, instruction) in instructions.iter().enumerate() {
            let by_flag = instruction
                .guard
                .is_some_and(|guard| self.value(guard).slots.keys().any(|slot| slot.1 == 1));
            let target = instruction
                .operands
                .first()
                .and_then(|label| labels.get(label));
            let ahead = target
                .copied()
                .filter(|target| instruction.name == "bra" && *target > place);
            match (ahead, arms[place]) {
                (Some(target), _) if by_flag => arms[place + 1..target].fill(Some((place, false))),
                // The first part's end leads past the other part.
                (Some(target), Some((test, false))) if instruction.guard.is_none() => {
                    arms[place + 1..target].fill(Some((test, true)));
                }
                _ if by_flag => arms[place] = Some((place, false)),
                _ => {}
            }
        }
        arms
    }

    /// Notes what one instruction does with memory.
    fn access(&mut self, instruction: &Instruction<'a>, arm: Option<Arm>) {
        let operands = &instruction.operands;
        let strong = is_strong(instruction);
        match (instruction.name, &operands[..]) {
            ("ld", [_, place, ..]) if instruction.full.starts_with("ld.param") => {
                // A place that is computed may be any of the parameter's.
                let named = names(place)
                    .next()
                    .is_some_and(|name| self.params.contains_key(name));
                if !named {
                    let value = self.value(place);
                    self.escape(&value);
                }
            }
            ("ld" | "ldu", [_, place, ..]) => {
                self.touch(place, arm, instruction, |uses| match strong {
                    true => uses.polls = true,
                    false => uses.reads = true,
                });
            }
            ("st", [place, value, ..]) => {
                if !instruction.full.starts_with("st.param") {
                    self.touch(place, arm, instruction, |uses| match strong {
                        true => uses.updates = true,
                        false => uses.writes = true,
                    });
                }
                let value = self.value(value);
                self.escape(&value);
            }
            ("atom", [_, place, rest @ ..]) | ("red", [place, rest @ ..]) => {
                self.touch(place, arm, instruction, |uses| uses.updates = true);
                let value = self.joined(rest);
                self.escape(&value);
            }
            ("cp", [_, place, ..]) if instruction.full.starts_with("cp.async.c") => {
                self.touch(place, arm, instruction, |uses| uses.reads = true);
            }
            ("cp", _) if instruction.full.starts_with("cp.async.") && operands.len() < 2 => {}
            (name, _) if UNDERSTOOD.contains(&name) => {}
            _ => {
                let value = self.joined(operands);
                self.escape(&value);
            }
        }
        // Whoever takes a parameter's own address may look at all of it.
        let is_load = instruction.full.starts_with("ld.param");
        for operand in operands.iter().filter(|_| !is_load) {
            for name in names(operand) {
                if let Some(param) = self.params.get(name).copied() {
                    let whole = param.offset + param.size / 8 * 8;
                    for at in (param.offset..whole).step_by(8) {
                        self.escaped(at);
                    }
                }
            }
        }
    }

    /// Notes an access by the address in `[register+16]`.
    fn touch(
        &mut self,
        place: &str,
        arm: Option<Arm>,
        instruction: &Instruction<'_>,
        note: impl Fn(&mut Uses),
    ) {
        let mut value = self.value(place);
        value.less |= place.contains("+-") && value.leads_back();
        let wide: Vec<Slot> = value
            .slots
            .keys()
            .copied()
            .filter(|slot| slot.1 == 8)
            .collect();
        if wide.is_empty() {
            self.follows |= value.loaded && !is_apart(instruction.full);
            self.escape_pieces(&value);
            return;
        }
        let known: Vec<Slot> = wide
            .iter()
            .copied()
            .filter(|slot| self.addresses.contains(slot))
            .collect();
        // Where nothing says which of several is the address, each may be.
        let bases = if known.is_empty() { &wide } else { &known };
        let shifts = |slot: &&Slot, part: &Part| *part == Part::Shift && !bases.contains(slot);
        let shifted = value.slots.iter().any(|(slot, part)| shifts(&slot, part));
        let spread = match (bases.len(), self.indices.spread(place, instruction.full)) {
            (1, spread) => spread,
            _ => Spread::default(),
        };
        for base in bases {
            let access = self.found.entry((base.0, shifted)).or_default();
            access.note_spread(spread, &note);
            note(&mut access.perhaps);
            match arm {
                _ if bases.len() > 1 => {}
                None => note(&mut access.surely),
                Some((test, side)) => {
                    let sides = self.sides.entry(((base.0, shifted), test)).or_default();
                    note(&mut sides[usize::from(side)]);
                }
            }
            if !value.less {
                self.ahead.insert(base.0);
            }
            for (slot, _) in value.slots.iter().filter(|(slot, part)| shifts(slot, part)) {
                let shift = Param {
                    offset: slot.0,
                    size: slot.1,
                };
                if !access.shifts.contains(&shift) {
                    access.shifts.push(shift);
                }
            }
        }
    }

    /// What is done on both sides of a test is done; a pointer through which nothing at or
    /// after it is used may be an end.
    fn settle(&mut self) {
        for ((slot, _), [one, other]) in self.sides.drain() {
            if let Some(access) = self.found.get_mut(&slot) {
                let surely = &mut access.surely;
                surely.reads |= one.reads && other.reads;
                surely.writes |= one.writes && other.writes;
                surely.updates |= one.updates && other.updates;
                surely.polls |= one.polls && other.polls;
            }
        }
        for ((at, _), access) in &mut self.found {
            access.back = access.perhaps != Uses::default() && !self.ahead.contains(at);
        }
    }

    fn escape(&mut self, value: &Value) {
        for &(offset, size) in value.slots.keys() {
            if size == 8 {
                self.escaped(offset);
            }
        }
        self.escape_pieces(value);
    }

    /// An address may be put together from pieces of a parameter.
    fn escape_pieces(&mut self, value: &Value) {
        for &(offset, size) in value.slots.keys() {
            let at = offset / 8 * 8;
            let whole = |param: &&Param| param.offset <= at && at + 8 <= param.offset + param.size;
            if size < 8
                && self
                    .params
                    .values()
                    .any(|param| whole(&param) && param.size > 8)
            {
                self.escaped(at);
            }
        }
    }

    fn escaped(&mut self, at: usize) {
        self.found.entry((at, false)).or_default().escapes = true;
    }
}

/// The registers that depend on themselves, numbered by loop.
fn cycles<'a>(instructions: &[Instruction<'a>]) -> HashMap<&'a str, usize> {
    let mut graph = DiGraph::<&str, ()>::new();
    let mut nodes = HashMap::new();
    for instruction in instructions {
        let Some((target, sources)) = instruction.operands.split_first() else {
            continue;
        };
        if matches!(
            instruction.name,
            "ld" | "ldu" | "st" | "red" | "atom" | "bra" | "call"
        ) {
            continue;
        }
        for to in names(target).filter(|name| name.starts_with('%')) {
            let to = *nodes.entry(to).or_insert_with(|| graph.add_node(to));
            for from in sources
                .iter()
                .flat_map(|source| names(source))
                .filter(|name| name.starts_with('%'))
            {
                let from = *nodes.entry(from).or_insert_with(|| graph.add_node(from));
                graph.add_edge(from, to, ());
            }
        }
    }
    // Not Tarjan's, which takes stack for each register.
    let mut cycles = HashMap::new();
    for (number, members) in kosaraju_scc(&graph).into_iter().enumerate() {
        let is_cycle = members.len() > 1 || graph.find_edge(members[0], members[0]).is_some();
        if is_cycle {
            cycles.extend(members.into_iter().map(|node| (graph[node], number)));
        }
    }
    cycles
}

/// Whether what a load yields may be an address.
fn is_wide(full: &str) -> bool {
    size_of(full) == Some(8)
}

/// Whether an access is to memory that no pointer of the host's leads to.
fn is_apart(full: &str) -> bool {
    let apart = [
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "const",
        "param",
    ];
    full.split('.').any(|modifier| apart.contains(&modifier))
}

/// Special registers that differ from thread to thread, and begin at 0.
const VARYING: &[&str] = &[
    "tid",
    "laneid",
    "warpid",
    "ctaid",
    "smid",
    "clusterid",
    "cluster_ctaid",
    "cluster_ctarank",
];

/// Instructions that only compute, or that do nothing with an address.
const UNDERSTOOD: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "and",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "createpolicy",
    "cvt",
    "cvta",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "trap",
    "vote",
    "wgmma",
    "xor",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    fn code_of(text: &str) -> Option<Code> {
        code(&Entry::parse(&ptx::entry(text, "k")?)?)
    }

    fn of(params: &str, body: &str) -> Option<Accesses> {
        let text = format!(".version 8.0\n.visible .entry k({params})\n{{\n{body}\nret;\n}}\n");
        code_of(&text).map(|code| code.accesses)
    }

    const TWO: &str = ".param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2";
    /// `%rd3` and `%rd4` are the pointers, `%r2` the integer, `%rd5` the thread's place.
    const LOADED: &str = "ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];
        ld.param.u32 %r2, [k_param_2];\ncvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;
        mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd6, %rd3, %rd5;\n";

    fn two(body: &str) -> BTreeMap<usize, Access> {
        by_slot(of(TWO, &format!("{LOADED}{body}")).unwrap())
    }

    /// For slots that are used one way only.
    fn by_slot(accesses: Accesses) -> BTreeMap<usize, Access> {
        let slots: BTreeMap<usize, Access> = accesses
            .iter()
            .map(|((at, _), access)| (*at, access.clone()))
            .collect();
        assert_eq!(slots.len(), accesses.len(), "{accesses:?}");
        slots
    }

    #[test]
    fn reads_writes_and_updates_are_told_apart() {
        let found = two("ld.global.f32 %f1, [%rd6];\nst.global.f32 [%rd4+4], %f1;");
        assert!(found[&0].surely.reads && !found[&0].surely.writes && found[&0].shifts.is_empty());
        assert!(found[&8].surely.writes && !found[&8].surely.reads && !found[&8].escapes);
        let found =
            two("@%p1 red.global.add.u32 [%rd6], 1;\natom.global.add.u32 %r9, [%rd4], %r2;");
        assert!(found[&0].surely.updates && !found[&0].surely.writes && found[&8].surely.updates);
        let found = two("ld.global.v2.f32 {%f1, %f2}, [%rd6];");
        assert!(
            found[&0].surely.reads && !found.contains_key(&8),
            "the second is not used"
        );
    }

    #[test]
    fn loads_and_stores_that_threads_synchronize_with_are_told_apart() {
        let found =
            two("ld.acquire.gpu.global.u32 %r9, [%rd6];\nst.volatile.global.u32 [%rd4], %r2;");
        assert!(found[&0].surely.polls && !found[&0].surely.reads);
        assert!(found[&8].surely.updates && !found[&8].surely.writes);
    }

    #[test]
    fn an_integer_that_is_added_moves_the_place() {
        let shift = vec![Param {
            offset: 16,
            size: 4,
        }];
        let found = two(
            "add.s32 %r3, %r1, %r2;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts, shift);
        let found = two(
            "mov.u32 %r5, %ntid.x;\nmad.lo.s32 %r3, %r5, %r2, %r1;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts, shift, "times what is the same everywhere");
        let found = two(
            "mad.lo.s32 %r3, %r1, %r2, %r1;\nmul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert!(
            found[&0].shifts.is_empty(),
            "the first thread's place stays"
        );
    }

    #[test]
    fn loops_are_followed() {
        let found = two(
            "$L__BB0_1:\nst.global.u32 [%rd9], 0;\nadd.s64 %rd9, %rd10, 4;\nmov.u64 %rd10, %rd9;\nmov.u64 %rd10, %rd6;\n@%p1 bra $L__BB0_1;",
        );
        assert!(found[&0].surely.writes);
    }

    #[test]
    fn what_cannot_be_followed_escapes() {
        let call = "{ // callseq\n.param .b64 param0;\nst.param.b64 [param0+0], %rd1;\ncall.uni helper, (param0);\n}";
        assert!(two(call)[&0].escapes);
        assert!(two("st.local.u64 [%rd20], %rd3;")[&0].escapes);
        assert!(two("st.global.u64 [%rd4], %rd3;")[&0].escapes);
        assert!(two("multimem.red.global.add.u32 [%rd6], 1;")[&0].escapes);
        assert!(two("cp.async.bulk.shared.global [%r9], [%rd6], 16, [%r8];")[&0].escapes);
        assert!(
            two("cp.async.ca.shared.global [%r9], [%rd6], 16;\ncp.async.wait_all;")[&0]
                .surely
                .reads
        );
    }

    #[test]
    fn structures_are_told_by_slot() {
        let params = ".param .align 8 .b8 k_param_0[24], .param .u32 k_param_1";
        let found = of(params, "ld.param.u64 %rd1, [k_param_0+16];\ncvta.to.global.u64 %rd2, %rd1;\nst.global.u32 [%rd2], 0;").unwrap();
        let found = by_slot(found);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&16]);
        // A place that is computed.
        let found = of(params, "mov.b64 %rd1, k_param_0;\nadd.s64 %rd2, %rd1, %rd9;\nld.param.u64 %rd3, [%rd2];\nst.u32 [%rd3], 0;").unwrap();
        let found = by_slot(found);
        assert!([0, 8, 16].iter().all(|slot| found[slot].escapes));
        let found = of(
            params,
            "ld.param.v2.u64 {%rd1, %rd2}, [k_param_0];\nld.u32 %r1, [%rd1];\nst.u32 [%rd2], %r1;",
        )
        .unwrap();
        let found = by_slot(found);
        assert!(found[&0].surely.reads && found[&8].surely.writes);
    }

    #[test]
    fn code_that_uses_nothing_says_nothing() {
        assert_eq!(of(TWO, "trap;"), None);
        assert_eq!(of(TWO, ""), None);
    }

    #[test]
    fn the_order_of_the_text_is_no_matter() {
        // A loop's head uses what its end computes.
        let found = two(
            "$L__BB0_1:\nmul.lo.s32 %r4, %r3, %r9;\nmul.wide.s32 %rd7, %r4, 4;\nadd.s64 %rd8, %rd3, %rd7;\n\
             st.global.u32 [%rd8], 0;\nmov.u32 %r9, 3;\nadd.s32 %r3, %r2, 1;\n@%p1 bra $L__BB0_1;",
        );
        assert_eq!(
            found[&0].shifts,
            [Param {
                offset: 16,
                size: 4
            }]
        );
    }

    #[test]
    fn nothing_lies_beyond_a_parameter() {
        for place in [
            "k_param_0+8",
            "k_param_0+18446744073709551615",
            "k_param_0+1",
        ] {
            let body = format!(
                "ld.param.u64 %rd1, [{place}];\nst.global.u32 [%rd1], 0;\nst.global.u32 [%rd2], 0;\nld.param.u64 %rd2, [k_param_1];"
            );
            let found = by_slot(of(TWO, &body).unwrap());
            assert_eq!(found.keys().collect::<Vec<_>>(), [&8], "{place}");
        }
        let endless = ".param .align 8 .b8 k_param_0[1152921504606846976]";
        assert_eq!(
            of(endless, "mov.b64 %rd1, k_param_0;\nst.u64 [%rd1], %rd1;"),
            None
        );
    }

    /// What is used at the pointer itself, and where something is added to it.
    fn ways(accesses: &Accesses, at: usize) -> (Uses, Uses) {
        let of = |shifted| {
            accesses
                .get(&(at, shifted))
                .map_or_else(Uses::default, |access| access.surely)
        };
        (of(false), of(true))
    }

    #[test]
    fn a_loops_stride_is_no_offset() {
        // for (i = thread; ...; i += n) p[i] = 1
        let found = two(
            "mov.u64 %rd9, %rd6;\n$L__BB0_1:\nst.global.u32 [%rd9], 0;\nmul.wide.s32 %rd8, %r2, 4;\n\
             add.s64 %rd9, %rd9, %rd8;\n@%p1 bra $L__BB0_1;",
        );
        assert!(found[&0].surely.writes && found[&0].shifts.is_empty());
        // for (j = 0; ...; j++) p[j * n + thread] = 1
        let found = two(
            "mov.u32 %r7, 0;\n$L__BB0_1:\nmad.lo.s32 %r8, %r7, %r2, %r1;\nmul.wide.s32 %rd8, %r8, 4;\n\
             add.s64 %rd9, %rd3, %rd8;\nst.global.u32 [%rd9], 0;\nadd.s32 %r7, %r7, 1;\n@%p1 bra $L__BB0_1;",
        );
        assert!(found[&0].surely.writes && found[&0].shifts.is_empty());
    }

    #[test]
    fn a_pointer_is_used_with_and_without_an_offset() {
        let body = "ld.global.f32 %f1, [%rd6];\nmul.wide.s32 %rd7, %r2, 4;\nadd.s64 %rd8, %rd6, %rd7;\nst.global.f32 [%rd8], %f1;";
        let found = of(TWO, &format!("{LOADED}{body}")).unwrap();
        let (plain, shifted) = ways(&found, 0);
        assert!(plain.reads && !plain.writes && shifted.writes && !shifted.reads);
    }

    #[test]
    fn the_end_of_a_range_is_told() {
        for body in [
            "ld.global.u32 %r9, [%rd3+-4];",
            "add.s64 %rd9, %rd3, -8;\nld.global.u32 %r9, [%rd9];",
            "sub.s64 %rd9, %rd3, %rd5;\nld.global.u32 %r9, [%rd9];",
            "neg.s32 %r8, %r1;\nmul.wide.s32 %rd8, %r8, 4;\nadd.s64 %rd9, %rd3, %rd8;\nld.global.u32 %r9, [%rd9];",
        ] {
            assert!(two(body)[&0].back, "{body}");
        }
        assert!(!two("ld.global.u32 %r9, [%rd6+4];")[&0].back);
    }

    #[test]
    fn what_a_flag_or_a_choice_decides_is_not_sure() {
        let params = ".param .u64 k_param_0, .param .u64 k_param_1, .param .u8 k_param_2";
        let head = "ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\nld.param.u8 %rs1, [k_param_2];\n\
             cvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;\nsetp.eq.s16 %p1, %rs1, 0;\n";
        // if (flag) p[0] = 1; else q[0] = p[0]; q[1] = 1
        let body = "@%p1 bra $L_else;\nst.global.u32 [%rd3], 1;\nbra.uni $L_end;\n$L_else:\nld.global.u32 %r1, [%rd3];\n\
             st.global.u32 [%rd4], %r1;\n$L_end:\nst.global.u32 [%rd4+4], 1;";
        let found = by_slot(of(params, &format!("{head}{body}")).unwrap());
        assert_eq!(found[&0].surely, Uses::default());
        assert!(found[&0].perhaps.writes && found[&0].perhaps.reads);
        assert!(found[&8].surely.writes, "the last store is no part of it");
        let found = by_slot(of(params, &format!("{head}@%p1 st.global.u32 [%rd3], 1;")).unwrap());
        assert!(found[&0].perhaps.writes && !found[&0].surely.writes);
        let found = by_slot(
            of(
                params,
                &format!("{head}selp.b64 %rd5, %rd3, %rd4, %p1;\nst.global.u32 [%rd5], 1;"),
            )
            .unwrap(),
        );
        assert!(
            [0, 8]
                .iter()
                .all(|slot| found[slot].perhaps.writes && !found[slot].surely.writes)
        );
        // The end of the work is no flag.
        let found =
            two("setp.ge.s32 %p1, %r1, %r2;\n@%p1 bra $L_end;\nst.global.u32 [%rd6], 1;\n$L_end:");
        assert!(found[&0].surely.writes);
    }

    #[test]
    fn pointers_from_other_lanes_and_from_pieces_are_seen() {
        let found = two(
            "shfl.sync.idx.b32 %r8, %rd3, %r1, 31, -1;\ncvt.u64.u32 %rd9, %r8;\nst.global.u32 [%rd9], 0;\nld.global.u32 %r9, [%rd4];",
        );
        assert!(found[&0].surely.writes);
        let params = ".param .align 4 .b8 k_param_0[32], .param .u64 k_param_1";
        let found = by_slot(of(params, "ld.param.u32 %r1, [k_param_0+8];\nld.param.u32 %r2, [k_param_0+12];\nmov.b64 %rd1, {%r1, %r2};\n\
             st.u32 [%rd1], 0;\nld.param.u64 %rd2, [k_param_1];\nld.global.u32 %r3, [%rd2];").unwrap());
        assert!(found[&8].escapes && found[&32].surely.reads);
    }

    #[test]
    fn work_is_bounded() {
        use std::fmt::Write as _;
        let params: Vec<String> = (0..200)
            .map(|n| format!(".param .u64 k_param_{n}"))
            .collect();
        let mut body = String::new();
        for n in 0..200 {
            let _ = writeln!(
                body,
                "ld.param.u64 %rd{n}, [k_param_{n}];\nadd.s64 %rd900, %rd900, %rd{n};"
            );
        }
        for n in 0..20_000 {
            let _ = writeln!(
                body,
                "add.s64 %rd{}, %rd{}, 1;",
                1001 + n,
                if n == 0 { 900 } else { 1000 + n }
            );
        }
        body.push_str("st.global.u32 [%rd21000], 0;");
        assert_eq!(of(&params.join(", "), &body), None);
    }

    #[test]
    fn a_use_ahead_makes_a_pointer_no_end() {
        assert!(!two("ld.global.u32 %r9, [%rd6+-4];\nld.global.u32 %r8, [%rd6];")[&0].back);
        // a[n - 1]
        let found = two(
            "mul.wide.s32 %rd7, %r2, 4;\nadd.s64 %rd8, %rd3, %rd7;\nld.global.u32 %r9, [%rd8+-4];",
        );
        assert!(!found[&0].back);
        // i - i / n * n
        let found = two(
            "div.s32 %r4, %r1, %r2;\nmul.lo.s32 %r5, %r4, %r2;\nsub.s32 %r6, %r1, %r5;\nmul.wide.s32 %rd7, %r6, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert!(!found[&0].back);
    }

    #[test]
    fn what_limits_an_index_is_no_offset() {
        for limit in [
            "div.s32 %r4, %r1, %r2;",
            "rem.s32 %r4, %r1, %r2;",
            "and.b32 %r4, %r1, %r2;",
            "min.s32 %r4, %r1, %r2;",
        ] {
            let found = two(&format!(
                "{limit}\nmul.wide.s32 %rd7, %r4, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;"
            ));
            assert!(found[&0].shifts.is_empty(), "{limit}");
        }
        // p[n / 2 + i]
        let found = two(
            "div.s32 %r4, %r2, 2;\nadd.s32 %r5, %r4, %r1;\nmul.wide.s32 %rd7, %r5, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts.len(), 1);
        // p[(n + i) * (n + i)]
        let found = two(
            "add.s32 %r4, %r2, %r1;\nmul.lo.s32 %r5, %r4, %r4;\nmul.wide.s32 %rd7, %r5, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts.len(), 1);
        // (n ? p + 1024 : p)[i]
        let found = two(
            "setp.eq.s32 %p1, %r2, 0;\nadd.s64 %rd7, %rd3, 4096;\nselp.b64 %rd8, %rd3, %rd7, %p1;\nadd.s64 %rd9, %rd8, %rd5;\nst.global.u32 [%rd9], 0;",
        );
        assert_eq!(found[&0].shifts.len(), 1);
        // p[(n ? 1024 : 0) + i]
        let found = two(
            "setp.eq.s32 %p1, %r2, 0;\nselp.b32 %r4, 0, 1024, %p1;\nadd.s32 %r5, %r4, %r1;\nmul.wide.s32 %rd7, %r5, 4;\nadd.s64 %rd8, %rd3, %rd7;\nst.global.u32 [%rd8], 0;",
        );
        assert_eq!(found[&0].shifts.len(), 1);
    }

    #[test]
    fn a_table_of_offsets_moves_the_place() {
        let params = ".param .u64 k_param_0, .param .align 4 .b8 k_param_1[12]";
        let body = "ld.param.u64 %rd1, [k_param_0];\ncvta.to.global.u64 %rd2, %rd1;\nmov.b64 %rd3, k_param_1;\nadd.s64 %rd4, %rd3, %rd9;\n\
             ld.param.u32 %r1, [%rd4];\nmul.wide.s32 %rd5, %r1, 4;\nadd.s64 %rd6, %rd2, %rd5;\nst.global.u32 [%rd6], 0;";
        let found = of(params, body).unwrap();
        assert_eq!(
            found[&(0, true)].shifts,
            [
                Param { offset: 8, size: 8 },
                Param {
                    offset: 16,
                    size: 4
                }
            ]
        );
    }

    #[test]
    fn what_both_sides_of_a_flag_do_is_sure() {
        let params = ".param .u64 k_param_0, .param .u64 k_param_1, .param .u8 k_param_2";
        let body = "ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\nld.param.u8 %rs1, [k_param_2];\n\
             cvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;\nsetp.eq.s16 %p1, %rs1, 0;\nmov.u32 %r1, %tid.x;\n\
             setp.gt.s32 %p2, %r1, 9;\nor.pred %p3, %p2, %p1;\n@%p3 bra $L_else;\nst.global.u32 [%rd3], 1;\nst.global.u32 [%rd4], 1;\n\
             bra.uni $L_end;\n$L_else:\nst.global.u32 [%rd3], 2;\n$L_end:";
        let found = by_slot(of(params, body).unwrap());
        assert!(found[&0].surely.writes);
        assert!(found[&8].perhaps.writes && !found[&8].surely.writes);
    }

    #[test]
    fn addresses_in_memory_are_followed() {
        let follows = |body: &str| {
            let text =
                format!(".version 8.0\n.visible .entry k({TWO})\n{{\n{LOADED}{body}\nret;\n}}\n");
            code_of(&text).unwrap().follows
        };
        // table[i][j] = 1
        assert!(follows(
            "ld.global.u64 %rd9, [%rd6];\ncvta.to.global.u64 %rd10, %rd9;\nadd.s64 %rd11, %rd10, %rd5;\nst.global.u32 [%rd11], 1;"
        ));
        // p[index[i]] = 1
        assert!(!follows(
            "ld.global.u64 %rd9, [%rd6];\nshl.b64 %rd10, %rd9, 2;\nadd.s64 %rd11, %rd4, %rd10;\nst.global.u32 [%rd11], 1;"
        ));
        assert!(!follows(
            "ld.global.u32 %r9, [%rd6];\nst.shared.u32 [%r9], 1;\nld.local.u64 %rd9, [%SP];\nst.global.u64 [%rd4], %rd9;"
        ));
    }
}
